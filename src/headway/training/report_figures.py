"""The figures of a report as parts of a page: curves over steps, heat maps, strips of images."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence

from headway.figures import Curve, CurveChart, HeatMap, Panel, Plot, inline_svg, printable
from headway.tasks.report_details import PictureStrip
from headway.training.markup import Markup, drawing, tag
from headway.training.report_attention import WeightMap

SMALLEST, LARGEST = 0.8, 1.6  # pixels of a point: text of 9 points has 7 to 14 pixels, on a phone and on a desk


def curve_figure(
    title: str, curves: Sequence[Curve], xlabel: str = "step", marks: Sequence[float] = ()
) -> Markup | None:
    """Curves over numbers, with dashed lines at the `marks`; None where there is nothing finite to draw."""
    drawn = [curve for curve in (one.drawable() for one in curves) if curve.points]
    if not drawn:
        return None
    description = "; ".join(curve.summary(xlabel) for curve in drawn)
    return svg(CurveChart("", drawn, xlabel, marks), title, description)


def map_figure(one: WeightMap, *, ylabel: str = "", xlabel: str = "") -> Markup:
    """A heat map below its title."""
    most = max((weight for row in one.weights for weight in row), default=0.0) or 1.0
    panel = HeatMap("", one.weights, one.rows, one.columns, ylabel, xlabel, limits=(0.0, most))
    caption = tag("figcaption", one.title, dir="auto") if one.title else None
    return tag("figure", caption, svg(panel, one.title or "attention", "; ".join(largest(one))))


def largest(one: WeightMap) -> Iterator[str]:
    """For each row the column with its largest weight, in words."""
    for row, weights in zip(one.rows, one.weights, strict=True):
        at = max(range(len(weights)), key=weights.__getitem__)
        yield f"{printable(row)}: most at {printable(one.columns[at])}, {weights[at]:.2f}"


def svg(panel: Panel, title: str, description: str) -> Markup:
    """One panel as an element that scales with the page, and scrolls where it would become too small."""
    figure = inline_svg(Plot("", [panel]))
    return tag(
        "div",
        tag(
            "svg",
            tag("title", title),
            tag("desc", description),
            drawing(figure.elements),
            viewBox=f"0 0 {figure.width:g} {figure.height:g}",
            style=f"min-width:{SMALLEST * figure.width:.0f}px;max-width:{LARGEST * figure.width:.0f}px",
            role="img",
        ),
        class_="wide",
    )


def picture_figure(one: PictureStrip) -> Markup:
    """Each image over what it is."""
    frames = [
        tag(
            "span",
            tag("img", src=f"data:image/png;base64,{b64encode(file).decode()}", alt=name),
            tag("span", name, dir="auto"),
            class_="frame",
        )
        for file, name in zip(one.files, one.names, strict=True)
    ]
    return tag("figure", tag("figcaption", one.title, dir="auto"), *frames)
