"""Options that several commands share: how a model is loaded, and how a result is shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from headway.inspect.presentation import Result
    from headway.model import Model

HEADS = "Number of attention heads, where the folder has no config.json to say it (fairseq, nn.Transformer)."
UNSAFE = "Allow weights in a PyTorch pickle (no code in it is run)."
DEBUG = "Show the traceback of an error."

Heads = Annotated[int | None, Parameter(help=HEADS)]
Unsafe = Annotated[bool, Parameter(help=UNSAFE)]
Debug = Annotated[bool, Parameter(help=DEBUG)]


@Parameter(name="*")
@dataclass(frozen=True)
class ResultOptions:
    """How a result is shown.

    Parameters
    ----------
    json
        Print the result as JSON, and nothing else.
    figure
        Also draw it, into this file (.png or .svg).
    """

    json: bool = False
    figure: Path | None = None
    debug: Debug = False

    def show(self, compute: Callable[[], Result]) -> int:
        """Prints a result; a figure that could not be written is reported before."""
        from json import dumps

        from headway.inspect.presentation import check_figure

        check_figure(self.figure)
        result = compute()
        if self.figure is not None:
            result.save_figure(self.figure)
        if self.json:
            print(dumps(result.to_dict(), indent=1, ensure_ascii=False, allow_nan=False))
        else:
            print(result.to_text(), *([] if self.figure is None else [f"figure: {self.figure}"]), sep="\n\n")
        return 0


@Parameter(name="*")
@dataclass(frozen=True)
class ModelOptions(ResultOptions):
    """Options of every inspection of a model."""

    heads: Heads = None
    unsafe: Unsafe = False

    def loader(self, folder: Path) -> Callable[[], Model]:
        """Loads the model when it is needed: other mistakes are reported before."""

        def load_model() -> Model:
            from headway.model import load

            return load(folder, heads=self.heads, unsafe=self.unsafe)

        return load_model


RESULT_OPTIONS = ResultOptions()
MODEL_OPTIONS = ModelOptions()
