"""Options that several commands share: what data is, how a model is loaded, and how a result is shown."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from headway.console import phase
from headway.data.records import BUILTIN
from headway.data.text_lines import check_exists, expanded
from headway.dtype import check_device_present, check_dtype
from headway.errors import UserError, no_model
from headway.system import CPU

if TYPE_CHECKING:
    from headway.inspect.presentation import Result
    from headway.model import Model


TYPED: ContextVar[Sequence[str]] = ContextVar("headway.typed", default=())  # the words of the command


def check_model(_: type, place: Path | None) -> None:
    """Refuses a model that is not there, before torch is imported."""
    if place is not None and not place.exists():
        raise no_model(place)


def check_data(_: type, file: Path | None) -> None:
    """Refuses data that is not there."""
    if file is not None and str(file) != BUILTIN:
        for one in expanded(file):
            check_exists(one)


def check_name_of_dtype(_: type, name: str | None) -> None:
    if name is not None:
        check_dtype(name)


def check_name_of_device(_: type, name: str) -> None:
    check_device_present(name)


DTYPE = (
    "What the model computes in: fp32, bf16, fp16 or int8 (linear layers in int8, all else in fp32); by default fp32, "
    "or int8 for a folder of int8 weights.  bf16 and fp16 are slower than fp32 on CPUs without instructions for them; "
    "a note says so."
)
STORED_DTYPE = (
    "The dtype of the weights to write: fp32, bf16, fp16, or int8 for a folder that runs in int8; by default fp32."
)
DEVICE = (
    "What the model computes on: cpu, cuda, cuda:N, mps, xpu, or auto, an accelerator where there is one.  "
    "Accelerators are tested by simulation only."
)
StoredDtype = Annotated[str | None, Parameter(validator=check_name_of_dtype, help=STORED_DTYPE)]
Dtype = Annotated[str | None, Parameter(validator=check_name_of_dtype, help=DTYPE)]
Device = Annotated[str, Parameter(validator=check_name_of_device, help=DEVICE)]
ModelPath = Annotated[Path, Parameter(validator=check_model)]
DataPath = Annotated[Path, Parameter(validator=check_data)]


def import_torch() -> None:
    """Imports torch, which takes seconds: a command calls it when all else was checked."""
    with phase("loading PyTorch", moving=True):
        import torch  # noqa: F401  # pyright: ignore[reportUnusedImport]


DEBUG = "Show the traceback of an error."
Debug = Annotated[bool, Parameter(help=DEBUG)]


@Parameter(name="*")
@dataclass(frozen=True)
class DataOptions:
    """What data is.

    Parameters
    ----------
    task
        Task of the data, as for headway train: translation, images, speech, masked-lm …; recognised unless given.
    columns
        Names or numbers of the columns to use, as in en,de; recognised unless given.
    header
        Whether the first line of a table is a header: yes or no; recognised unless given.
    label_from
        Regular expression that finds the class, or the transcript, in names of images or sounds.
    """

    task: str | None = None
    columns: str | None = None
    header: Annotated[Literal["yes", "no"] | None, Parameter(name=["--header", "--data.header"])] = None
    label_from: str | None = None


def trained_label_from(model: Path) -> str | None:
    """The pattern by which labels were found in names, where the folder's recipe has one."""
    if not (model / "preprocessor_config.json").is_file():  # a model of texts has no labels in names
        return None
    from headway.training.recipe_sources import read_file

    with suppress(UserError):  # what is no recipe of a run says nothing
        given = read_file(model / "recipe.yaml").get("data.label_from")
        return None if given is None else given.value
    return None


@Parameter(name="*")
@dataclass(frozen=True)
class SplitOptions(DataOptions):
    """What data is, also in two parallel files, and which part of it is test data.

    Parameters
    ----------
    source
        File of source texts, line by line parallel to --target.
    target
        File of target texts.
    test_from
        Regular expression: images or sounds with matching names are the test data.
    """

    source: Path | None = None
    target: Path | None = None
    # the test or the validation split of a recipe
    test_from: Annotated[str | None, Parameter(name=["--test-from", "--validation-from", "--held-from"])] = None


@Parameter(name="*")
@dataclass(frozen=True)
class LoadOptions:
    """How a model is loaded.

    Parameters
    ----------
    heads
        Number of attention heads, where the folder has no config.json to say it (fairseq, nn.Transformer).
    unsafe
        Allow weights in a PyTorch pickle (no code in it is run).
    """

    heads: int | None = None
    unsafe: bool = False

    def load(self, folder: Path, dtype: str | None = None, device: str = CPU) -> Model:
        check_model(Path, folder)
        import_torch()
        from headway.dtype import slow_dtype
        from headway.loading import load

        with phase("loading the model", moving=True):
            loaded = load(folder, heads=self.heads, unsafe=self.unsafe, dtype=dtype, device=device)
        slow = slow_dtype(loaded.dtype) if device == CPU else None
        for note in (*loaded.notes, *filter(None, [slow])):
            print(f"note: {note}", file=sys.stderr)
        return loaded


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
class ModelOptions(LoadOptions, ResultOptions):
    """Options of every inspection of a model."""

    def loader(self, folder: Path) -> Callable[[], Model]:
        """Loads the model when it is needed: other mistakes are reported before."""
        return lambda: self.load(folder)


DATA_OPTIONS = DataOptions()
SPLIT_OPTIONS = SplitOptions()
LOAD_OPTIONS = LoadOptions()
RESULT_OPTIONS = ResultOptions()
MODEL_OPTIONS = ModelOptions()
