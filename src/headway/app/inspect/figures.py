"""Figures by matplotlib: maps of colours, curves and bars, as PNG or SVG.

matplotlib is imported when a figure is drawn, and never its windows (pyplot): a figure is made, written and dropped.
Texts are drawn letter by letter as they are: no formula is looked for in them, and no sign that is none is drawn.

Axes:  Y X rows and columns of a map
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from headway.app.inspect.cells import visible
from headway.files import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 144
STYLE: dict[Any, Any] = {
    "text.parse_math": False,  # a token such as $x$ is a token
    "svg.fonttype": "none",  # letters stay letters
    "svg.hashsalt": "headway",  # the same figure is the same file
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
LABELS = 64  # rows or columns that have their names beside them; more would lie on one another
LETTERS = 16  # of such a name
CELL = 0.22  # inches of a row or column that has a name
ORDERED = "cividis"  # from nothing to much
SIGNED = ("#1f5fa8", "#f4f4f2", "#d2691e")  # blue is less, orange is more, and zero has no colour
GREY = "0.8"  # nothing is known


class Panel(Protocol):
    """One part of a figure: `width` and `height` in inches, without what stands around it."""

    @property
    def title(self) -> str: ...

    @property
    def width(self) -> float: ...

    @property
    def height(self) -> float: ...

    def draw(self, axes: Axes, figure: Figure) -> None: ...


@dataclass(frozen=True, eq=False)
class Heat:
    """A map of colours, Y X: NaN is grey.  With `signed` the colours part at zero."""

    title: str
    values: Sequence[Sequence[float]]
    rows: Sequence[str]
    columns: Sequence[str]
    down: str = ""
    along: str = ""
    signed: bool = False
    limits: tuple[float, float] | None = None

    @property
    def width(self) -> float:
        return side(len(self.columns))

    @property
    def height(self) -> float:
        return side(len(self.rows))

    def draw(self, axes: Axes, figure: Figure) -> None:
        import numpy as np
        from matplotlib import colormaps
        from matplotlib.colors import LinearSegmentedColormap

        values = np.asarray(self.values, dtype=float)
        chosen = LinearSegmentedColormap.from_list("signed", SIGNED) if self.signed else colormaps[ORDERED]
        colours = chosen.with_extremes(bad=GREY)
        low, high = self.limits or spread(values, self.signed)
        drawn = axes.imshow(values, cmap=colours, vmin=low, vmax=high, aspect="auto", interpolation="nearest")
        figure.colorbar(drawn, ax=axes, fraction=0.05, pad=0.02)
        named(axes.yaxis, self.rows)
        named(axes.xaxis, self.columns)
        if any(len(visible(name, LETTERS)) > 2 for name in self.columns[:LABELS]):
            axes.tick_params(axis="x", labelrotation=90)
        axes.set_xlabel(self.along)
        axes.set_ylabel(self.down)


@dataclass(frozen=True, eq=False)
class Curves:
    """Lines over names that stand in an order; those in `levels` are the same everywhere, and dashed."""

    title: str
    names: Sequence[str]
    lines: Mapping[str, Sequence[float]]
    levels: Mapping[str, float]
    up: str = ""
    bottom: float | None = None
    height: float = 2.8

    @property
    def width(self) -> float:
        return max(3.5, side(len(self.names)))

    def draw(self, axes: Axes, figure: Figure) -> None:
        across = range(len(self.names))
        for name, values in self.lines.items():
            axes.plot(across, values, marker="o", markersize=4, label=name)
        for name, value in self.levels.items():
            axes.axhline(value, linestyle="--", color="0.4", label=name)
        named(axes.xaxis, self.names)
        axes.tick_params(axis="x", labelrotation=90)
        axes.set_ylabel(self.up)
        axes.set_ylim(bottom=self.bottom)
        axes.legend(frameon=False)


@dataclass(frozen=True, eq=False)
class Bars:
    """A bar for each name, the first on top."""

    title: str
    names: Sequence[str]
    values: Sequence[float]
    along: str = ""
    width: float = 3.5

    @property
    def height(self) -> float:
        return side(len(self.names))

    def draw(self, axes: Axes, figure: Figure) -> None:
        axes.barh(range(len(self.names)), self.values, color="C0")
        named(axes.yaxis, self.names)
        axes.invert_yaxis()
        axes.set_xlabel(self.along)


@dataclass(frozen=True, eq=False)
class Drawing:
    """Panels side by side, in rows of at most `abreast`, below a title."""

    title: str
    panels: Sequence[Panel]
    abreast: int = 3


def save(drawing: Drawing, path: Path) -> None:
    """Writes a figure, whole or not at all."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    columns = min(drawing.abreast, len(drawing.panels))
    rows = ceil(len(drawing.panels) / columns)
    width = columns * (1.7 + max(panel.width for panel in drawing.panels))
    height = 0.5 + rows * (1.3 + max(panel.height for panel in drawing.panels))
    with rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # the font has not every script's letters
        figure = Figure(figsize=(width, height), layout="constrained")
        places = figure.subplots(rows, columns, squeeze=False).flatten()
        for axes, panel in zip(places, drawing.panels, strict=False):
            panel.draw(axes, figure)
            axes.set_title(visible(panel.title, 60))
        for axes in places[len(drawing.panels) :]:
            axes.set_axis_off()
        figure.suptitle(visible(drawing.title, 90))
        kind = path.suffix.lower().removeprefix(".")
        metadata = {"Date": None} if kind == "svg" else None
        write_whole(path, lambda part: figure.savefig(part, format=kind, dpi=DPI, metadata=metadata))


def side(count: int) -> float:
    """Inches of so many rows or columns."""
    return min(8.0, max(1.5, CELL * count))


def named(axis: Any, names: Sequence[str]) -> None:
    """The names beside an axis; of very many only some, by their numbers."""
    if len(names) <= LABELS:
        axis.set_ticks(range(len(names)), [visible(name, LETTERS) for name in names])


def spread(values: Any, signed: bool) -> tuple[float, float]:
    """The values that have the first and the last colour."""
    import numpy as np

    known = values[np.isfinite(values)]
    if not len(known):
        return 0.0, 1.0
    if signed:
        most = float(np.abs(known).max()) or 1.0
        return -most, most
    low, high = float(known.min()), float(known.max())
    return (low, high) if low < high else (low, low + 1.0)
