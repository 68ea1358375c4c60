"""Figures by matplotlib: heat maps and curves, as files or as SVG inside a page.

matplotlib is imported when a figure is drawn, without pyplot: a figure is made, written and dropped.  Texts are drawn
literally: nothing in them is parsed as a formula, and control characters are replaced.  In a page, the colours of
`THEME` follow the page's own variables, so that a figure is readable in dark mode.

Axes:  Y X rows and columns of a heat map
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from headway.system import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

DPI = 144
THEME = {  # colours of a figure on white, and the variables of a page that stand for them
    "#1b1f24": "ink",
    "#57606a": "soft",
    "#d0d7de": "rule",
    "#1a7f37": "good",
    "#1f5fbf": "a",
    "#b35900": "b",
    "#2a7f4f": "c",
}
INK, SOFT, RULE, GOOD, *LINES = THEME
STYLE: dict[Any, Any] = {
    "text.parse_math": False,  # a token such as $x$ is a token
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "headway",  # the same figure is the same file
    "font.size": 9.0,
    "font.sans-serif": ["DejaVu Sans"],
    "axes.titlesize": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "axes.labelcolor": SOFT,
    "axes.edgecolor": SOFT,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "grid.color": RULE,
}
MAX_LABELS = 64  # rows or columns with a tick label each; of more, every second, third …
MAX_LABEL_CHARACTERS = 16
CELL = 0.22  # inches of a labelled row or column


def stops(text: str) -> list[tuple[int, int, int]]:
    """Colours, red green blue, of hexadecimal ones."""
    return [(red, green, blue) for red, green, blue in map(bytes.fromhex, text.split())]


# Numbers as colours, red green blue at equal distances, for figures and for the explorer: from paper to indigo, in the
# dark theme from near-black over violet to ivory; cividis, the same with and without colour blindness; and for signed
# numbers blue to orange, with paper between them.
COLOURS = {
    "light": stops("eeeff8 c9cdf0 969ce2 6567cf 4338b0 2d2082 1b1254"),
    "dark": stops("181528 32225c 582e9b 8648d0 b77ae8 e1b8ec fffae8"),
    "cividis": stops("00224e 00306f 2a3f6d 434e6c 575d6d 6a6d71 7d7c78 908d78 a59e75 baaf6d d0c262 e7d550 fee838"),
    "negative": stops("0c3a78 1a5fb4 5492db a3c6f0"),
    "positive": stops("fad0a0 f09b4a cc640a 873c00"),
}
PAPER = (244, 244, 242)  # of a figure, where a signed number is 0
UNKNOWN = "0.8"  # grey, for NaN
MAX_POINTS = 300  # of a curve; more are drawn as the means of their neighbours
STROKES = ("-", "--", ":")  # of curves that have the same colour
MARKED_POINTS = 40  # or fewer have a marker each


@dataclass(frozen=True, eq=False)
class Plot:
    """Panels below a title, in rows of at most `columns`; sizes of panels are in inches, without labels."""

    title: str
    panels: Sequence[Panel]
    columns: int = 3


@dataclass(frozen=True, eq=False)
class HeatMap:
    """Y X values as colours, NaN in grey.  With `signed`, zero is the centre of a diverging colour map."""

    title: str
    values: Sequence[Sequence[float]]
    rows: Sequence[str]
    columns: Sequence[str]
    ylabel: str = ""
    xlabel: str = ""
    signed: bool = False
    limits: tuple[float, float] | None = None

    @property
    def width(self) -> float:
        return inches(len(self.columns))

    @property
    def height(self) -> float:
        return inches(len(self.rows))

    def draw(self, axes: Axes, figure: Figure) -> None:
        import numpy as np
        from matplotlib.ticker import LinearLocator

        values = np.asarray(self.values, dtype=float)
        colours = colour_map(signed=self.signed).with_extremes(bad=UNKNOWN)
        low, high = self.limits or value_range(values, self.signed)
        image = axes.imshow(values, cmap=colours, vmin=low, vmax=high, aspect="auto", interpolation="none")
        figure.colorbar(image, ax=axes, fraction=0.05, pad=0.02, ticks=LinearLocator(3), format="%.3g")
        label_ticks(axes.yaxis, self.rows)
        label_ticks(axes.xaxis, self.columns)
        if any(len(printable(name, MAX_LABEL_CHARACTERS)) > 2 for name in self.columns):
            axes.tick_params(axis="x", labelrotation=90)
        axes.set_xlabel(self.xlabel)
        axes.set_ylabel(self.ylabel)


def colour_map(*, signed: bool = False) -> Colormap:
    """The colours of numbers on white."""
    from matplotlib.colors import LinearSegmentedColormap

    stops = [*COLOURS["negative"], PAPER, *COLOURS["positive"]] if signed else COLOURS["light"]
    return LinearSegmentedColormap.from_list("", [tuple(one / 255 for one in stop) for stop in stops])


class Point(NamedTuple):
    x: float
    y: float


@dataclass(frozen=True)
class Curve:
    name: str
    points: Sequence[Point]

    def drawable(self) -> Curve:
        """The finite points; of more than can be seen, the means of neighbours."""
        points = [point for point in self.points if math.isfinite(point.y)]
        size = max(1, -(-len(points) // MAX_POINTS))
        groups = [points[at : at + size] for at in range(0, len(points), size)]
        return Curve(self.name, [Point(some[-1].x, math.fsum(p.y / len(some) for p in some)) for some in groups])

    def summary(self, xlabel: str) -> str:
        """The first point and the last, in words."""
        first, last = (f"{point.y:.4g} at {xlabel} {point.x:g}" for point in (self.points[0], self.points[-1]))
        return f"{self.name}: {first}" if len(self.points) == 1 else f"{self.name}: from {first} to {last}"


@dataclass(frozen=True, eq=False)
class CurveChart:
    """Curves over numbers, with dashed vertical lines at the `marks`; `xscale` and `yscale` are matplotlib's."""

    title: str
    curves: Sequence[Curve]
    xlabel: str = "step"
    marks: Sequence[float] = ()
    width: float = 3.6
    height: float = 1.7
    xscale: str = "linear"
    yscale: str = "linear"

    def draw(self, axes: Axes, figure: Figure) -> None:
        lines = list[Any]()
        for at, curve in enumerate(self.curves):
            marker, colour = "o" if len(curve.points) <= MARKED_POINTS else None, LINES[at % len(LINES)]
            style = STROKES[at // len(LINES) % len(STROKES)]
            lines += axes.plot(*zip(*curve.points, strict=True), style, color=colour, marker=marker, markersize=3.5)
        names = [printable(curve.name, 40) for curve in self.curves]  # also one with an underscore before it
        for mark in self.marks:
            axes.axvline(mark, linestyle=(0, (4, 4)), linewidth=1.2, color=GOOD)
        axes.grid(axis="y", linewidth=0.5)
        axes.set_axisbelow(True)
        axes.set_xlabel(printable(self.xlabel))
        axes.set(xscale=self.xscale, yscale=self.yscale)
        for axis, scale in ((axes.xaxis, self.xscale), (axes.yaxis, self.yscale)):
            thin_ticks(axis, scale)
        if self.yscale == "linear" and min(point.y for curve in self.curves for point in curve.points) == 0:
            axes.set_ylim(bottom=0)
        above: Any = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0}
        axes.legend(lines, names, frameon=False, ncols=self.legend_columns, **above)

    @property
    def legend_columns(self) -> int:
        longest = max(len(curve.name) for curve in self.curves)
        return min(3, len(self.curves), max(1, int(self.width * 13 / (longest + 7))))

    @property
    def title_pad(self) -> float:
        """Points between the axes and the title, for the legend."""
        return 6.0 + 13.0 * math.ceil(len(self.curves) / self.legend_columns)


@dataclass(frozen=True, eq=False)
class LineChart:
    """Lines over ordered names; `levels` are dashed horizontal lines."""

    title: str
    names: Sequence[str]
    lines: Mapping[str, Sequence[float]]
    levels: Mapping[str, float]
    ylabel: str = ""
    bottom: float | None = None
    height: float = 2.8

    @property
    def width(self) -> float:
        return max(3.5, inches(len(self.names)))

    def draw(self, axes: Axes, figure: Figure) -> None:
        for name, values in self.lines.items():
            axes.plot(range(len(self.names)), values, marker="o", markersize=4, label=name)
        for name, value in self.levels.items():
            axes.axhline(value, linestyle="--", color="0.4", label=name)
        label_ticks(axes.xaxis, self.names)
        axes.tick_params(axis="x", labelrotation=90)
        axes.set_ylabel(self.ylabel)
        axes.set_ylim(bottom=self.bottom)
        axes.legend(frameon=False)


@dataclass(frozen=True, eq=False)
class BarChart:
    """A horizontal bar for each name, the first on top."""

    title: str
    names: Sequence[str]
    values: Sequence[float]
    xlabel: str = ""
    width: float = 3.5

    @property
    def height(self) -> float:
        return inches(len(self.names))

    def draw(self, axes: Axes, figure: Figure) -> None:
        axes.barh(range(len(self.names)), self.values, color="C0")
        label_ticks(axes.yaxis, self.names)
        axes.invert_yaxis()
        axes.set_xlabel(self.xlabel)


@dataclass(frozen=True, eq=False)
class Drawing:
    """Whatever `paint` draws."""

    title: str
    paint: Callable[[Axes], None]
    width: float = 3.5
    height: float = 2.8

    def draw(self, axes: Axes, figure: Figure) -> None:
        self.paint(axes)


Panel = HeatMap | CurveChart | LineChart | BarChart | Drawing


def draw(plot: Plot) -> Figure:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    columns = min(plot.columns, len(plot.panels))
    rows = math.ceil(len(plot.panels) / columns)
    width = columns * (1.7 + max(panel.width for panel in plot.panels))
    height = 0.5 * bool(plot.title) + rows * (1.3 + max(panel.height for panel in plot.panels))
    with rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        cells = figure.subplots(rows, columns, squeeze=False).flatten()
        for axes, panel in zip(cells, plot.panels, strict=False):
            panel.draw(axes, figure)
            if panel.title:
                axes.set_title(printable(panel.title, 60), pad=getattr(panel, "title_pad", None))
        for axes in cells[len(plot.panels) :]:
            axes.set_axis_off()
        if plot.title:
            figure.suptitle(printable(plot.title, 90))
    return figure


def save_plot(plot: Plot, path: Path) -> None:
    """Writes a figure, whole or not at all."""
    kind = path.suffix.lower().removeprefix(".")
    metadata = {"Date": None} if kind == "svg" else None
    write_whole(path, lambda part: write_figure(draw(plot), part, format=kind, dpi=DPI, metadata=metadata))


def write_figure(figure: Figure, file: Any, **options: Any) -> None:
    from matplotlib import rc_context

    with rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # the font does not cover every script
        figure.savefig(file, **options)


class InlineSVG(NamedTuple):
    """A figure to stand inside a page: its size in points, and the elements of the drawing."""

    width: float
    height: float
    elements: str


def inline_svg(plot: Plot) -> InlineSVG:
    """A figure without a background, in the colours of the page; it refers to nothing outside itself."""
    figure, file = draw(plot), StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    write_figure(figure, file, format="svg", transparent=True, metadata=nothing)
    drawing = file.getvalue()
    whole = drawing[drawing.index(">", drawing.index("<svg")) + 1 : drawing.rindex("</svg>")]
    whole = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", whole, count=1, flags=re.S)  # which a page has itself
    elements = re.sub(r"<[^>]*>", lambda tag: themed(tag[0]), whole)
    width, height = (72 * float(side) for side in figure.get_size_inches())
    return InlineSVG(width, height, elements.strip())


def themed(tag: str) -> str:
    """A tag without the number of its group, in the colours of the page."""
    tag = re.sub(r'^<g id="[^"]*"', "<g", tag)  # several figures of a page have the same numbers
    tag = re.sub(r"\s*\n\s*", " ", tag) if "base64" not in tag else tag.replace("\n", "")
    for colour, variable in THEME.items():
        tag = re.sub(rf": {colour}\b", f": var(--{variable})", tag)
    return tag


def inches(count: int) -> float:
    """The side of so many rows or columns."""
    return min(8.0, max(1.5, CELL * count))


def exponent(xs: Sequence[float], ys: Sequence[float]) -> float:
    """p of y ≈ c · x^p: the slope of a curve on logarithmic axes, by least squares."""
    a, b = [math.log(x) for x in xs], [math.log(y) for y in ys]
    mean_a, mean_b = sum(a) / len(a), sum(b) / len(b)
    return sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True)) / sum((x - mean_a) ** 2 for x in a)


def thin_ticks(axis: Any, scale: str) -> None:
    """A few ticks; on a logarithmic axis plain numbers, as texts are drawn literally."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

    if scale == "linear":
        axis.set_major_locator(MaxNLocator(5))
        return
    low, high = axis.get_view_interval()
    narrow = high < 30 * low  # without room for two powers of ten
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if narrow else (1.0,), numticks=6))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def label_ticks(axis: Any, names: Sequence[str]) -> None:
    """Names as tick labels; of many, every second, third …"""
    places = range(0, len(names), max(1, -(-len(names) // MAX_LABELS)))
    axis.set_ticks(places, [printable(names[at], MAX_LABEL_CHARACTERS) for at in places])


def printable(text: str, limit: int = 28) -> str:
    """A text from a file or a vocabulary: shortened, without control characters and line breaks."""
    clean = "".join(character if character.isprintable() else "·" for character in text)
    return clean if len(clean) <= limit else f"{clean[: limit - 1]}…"


def value_range(values: Any, signed: bool) -> tuple[float, float]:
    """The values with the first and the last colour."""
    import numpy as np

    known = values[np.isfinite(values)]
    if not len(known):
        return 0.0, 1.0
    if signed:
        largest = float(np.abs(known).max()) or 1.0
        return -largest, largest
    low, high = float(known.min()), float(known.max())
    return (low, high) if low < high else (low, low + 1.0)
