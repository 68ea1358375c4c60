"""What an inspection returns: a `Result`, as data, as text and as a figure.  Numbers are formatted here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from math import isfinite, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.errors import UserError
from headway.figures import Plot, draw, save_plot
from headway.metrics.scores import aligned
from headway.model import Model

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LazyModel = Model | Callable[[], Model]  # a function loads it after the other arguments have been checked

SUFFIXES = (".png", ".svg")


class Result(ABC):
    """The outcome of an inspection."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """As plain data, for JSON."""

    @abstractmethod
    def to_text(self) -> str:
        """As tables, for people."""

    @abstractmethod
    def plot(self) -> Plot:
        """What the figure shows."""

    def to_figure(self) -> Figure:
        """As a matplotlib figure."""
        return draw(self.plot())

    def save_figure(self, path: Path) -> None:
        """Writes the figure as PNG or SVG."""
        check_figure(path)
        save_plot(self.plot(), path)


def resolve(model: LazyModel) -> Model:
    return model if isinstance(model, Model) else model()


def check_figure(path: Path | None) -> None:
    """Refuses a figure that could not be written, before anything is computed."""
    if path is None:
        return
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"a figure cannot be {path.name!r}", allowed="a name that ends in .png or .svg")
    if not path.parent.is_dir():
        raise UserError(f"the folder {path.parent} does not exist", do="make it, or name another")


# ---- numbers and texts


def finite(value: float | None) -> float | None:
    """A number for JSON, which has no infinity and no NaN."""
    return value if value is not None and isfinite(value) else None


def format_number(value: float | None, spec: str = ".3f") -> str:
    """A number for a table."""
    return "–" if value is None or not isfinite(value) else f"{value:{spec}}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return aligned([header, *rows])


def padded(row: Sequence[float | None], length: int) -> list[float]:
    """A row of a heat map, filled up with NaN."""
    return [nan if value is None else value for value in (*row, *[None] * (length - len(row)))]
