"""What an inspection returns: a `Result`, as data, as text and as a figure.  Numbers are formatted here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from math import isfinite, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from headway.console import aligned
from headway.errors import UserError
from headway.figures import HeatMap, Plot, draw, save_plot
from headway.model import Model

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LazyModel = Model | Callable[[], Model]  # a function loads it after the other arguments have been checked

SUFFIXES = (".png", ".svg")


class Result(ABC):
    """The outcome of an inspection."""

    @abstractmethod
    def data(self) -> dict[str, Any]:
        """The numbers, as they were computed."""

    @abstractmethod
    def blocks(self) -> Iterable[str]:
        """The paragraphs and tables of the text."""

    @abstractmethod
    def plot(self) -> Plot:
        """What the figure shows."""

    def to_dict(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        return plain(self.data())

    def to_text(self) -> str:
        """As tables, for people."""
        return "\n\n".join(self.blocks())

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


def check_counts(**counts: int) -> None:
    """Refuses counts below 1, by the names of the arguments."""
    for name, count in counts.items():
        if count < 1:
            raise UserError(f"{name}={count}", allowed="1 or more")


def plain(value: Any) -> Any:
    """A value as JSON has it: tensors as lists, records by their fields, null for infinity and NaN."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Tensor):
        return plain(value.tolist())
    if is_dataclass(value):
        return plain(vars(value))
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, Mapping):
        return {name: plain(one) for name, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value


def format_number(value: float | None, spec: str = ".3f") -> str:
    return "–" if value is None or not isfinite(value) else f"{value:{spec}}"


def table(header: Sequence[str], rows: Iterable[Sequence[str | float | None]]) -> str:
    """Aligned columns; whole numbers and texts as they are, other numbers with three digits."""
    texts = [[str(cell) if isinstance(cell, str | int) else format_number(cell) for cell in row] for row in rows]
    return aligned([header, *texts])


def head_map(title: str, sites: Mapping[str, Sequence[float | None]], *, signed: bool = False) -> HeatMap:
    """A row for each site and a column for each head; NaN where a site has fewer heads or a value is unknown."""
    heads = max(map(len, sites.values()))
    rows = [[nan if x is None else x for x in row] + [nan] * (heads - len(row)) for row in sites.values()]
    return HeatMap(title, rows, list(sites), [str(head) for head in range(heads)], "", "head", signed=signed)
