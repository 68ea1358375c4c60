"""Options that several commands have, each declared once: how a model is read, and how what was found is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from headway.app.inspect.told import Found
    from headway.checkpoint import Loaded

HEADS = "How many heads the model has, where its folder has no config.json to say it (fairseq, nn.Transformer)."
UNSAFE = "Let weights be read from a PyTorch pickle (no code in it is run)."
DEBUG = "Show where in the code an error came from."

Heads = Annotated[int | None, Parameter(help=HEADS)]
Unsafe = Annotated[bool, Parameter(help=UNSAFE)]
Debug = Annotated[bool, Parameter(help=DEBUG)]


@Parameter(name="*")
@dataclass(frozen=True)
class Telling:
    """How a part of inspect tells what it found.

    Parameters
    ----------
    json
        Print the numbers as JSON, and nothing else.
    figure
        Draw them too, into this file (.png or .svg).
    """

    json: bool = False
    figure: Path | None = None
    debug: Debug = False

    def tell(self, find: Callable[[], Found]) -> int:
        """Prints what is found; that it could not be drawn is told before."""
        from headway.app.inspect.told import check_figure, tell

        check_figure(self.figure)
        return tell(find(), json=self.json, figure=self.figure)


@Parameter(name="*")
@dataclass(frozen=True)
class Common(Telling):
    """What every part of inspect that looks into a model can be told."""

    heads: Heads = None
    unsafe: Unsafe = False

    def look(self, model: Path, find: Callable[[], Callable[[Loaded], Found]]) -> int:
        """Prints what is found in a model; what is wrong with all else is told before the model is loaded."""

        def found() -> Found:
            look = find()
            return look(self.load(model))

        return self.tell(found)

    def load(self, model: Path) -> Loaded:
        from headway.checkpoint import load

        return load(model, heads=self.heads, unsafe=self.unsafe)


TELLING = Telling()
COMMON = Common()
