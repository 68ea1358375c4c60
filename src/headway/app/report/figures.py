"""Curves as SVG: lines over steps, with a few round numbers at the axes.

The drawing is told in its own units, 640 × 240, and grows and shrinks with the page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headway.app.report.markup import Markup, tag

WIDTH, HEIGHT = 640, 240
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 26, 30  # room around the lines
MOST = 300  # points of a line; more are drawn as the means of their neighbours
DOTTED = 40  # points or fewer are also drawn one by one


class Point(NamedTuple):
    step: float
    value: float


@dataclass(frozen=True)
class Curve:
    name: str
    points: Sequence[Point]


def chart(title: str, curves: Sequence[Curve], kept: Sequence[int] = (), across: str = "step") -> Markup | None:
    """Curves over steps, and a mark at the steps whose weights were `kept`; None where there is nothing to draw.

    `across` is what is counted along the drawing where it is not steps: a short word.
    """
    drawn = [curve for curve in map(thinned, map(finite, curves)) if curve.points]
    if not drawn:
        return None
    points = [point for curve in drawn for point in curve.points]
    low, high = spread([point.value for point in points])
    last = max(1.0, *(point.step for point in points))
    x = scale(min(0.0, min(point.step for point in points)), last, LEFT, WIDTH - RIGHT)
    y = scale(low, high, HEIGHT - BOTTOM, TOP)
    said = "; ".join(summary(curve, across) for curve in drawn)
    return tag(
        "svg",
        tag("title", title),
        tag("desc", said),
        *rulers(low, high, last, x, y, across),
        *(mark(x(step)) for step in kept if step <= last),
        *(piece for at, curve in enumerate(drawn) for piece in line(curve, at, x, y, across)),
        *names(drawn),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        class_="chart",
    )


Scale = Callable[[float], float]


def scale(first: float, last: float, low: float, high: float) -> Scale:
    return lambda value: round(low + (value - first) / (last - first) * (high - low), 1)


def line(curve: Curve, at: int, x: Scale, y: Scale, across: str) -> list[Markup]:
    places = [(x(point.step), y(point.value)) for point in curve.points]
    path = tag("polyline", points=" ".join(f"{a},{b}" for a, b in places), class_=f"line line{at % 3}")
    if len(places) > DOTTED:
        return [path]
    dots = [
        tag("circle", tag("title", f"{across} {point.step:g}: {curve.name} {point.value:.4g}"), cx=a, cy=b, r=3)
        for point, (a, b) in zip(curve.points, places, strict=True)
    ]
    return [path, tag("g", *dots, class_=f"dots{at % 3}")]


def rulers(low: float, high: float, last: float, x: Scale, y: Scale, across: str) -> list[Markup]:
    found = [tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y(low), y2=y(low), class_="axis")]
    for value in round_numbers(low, high):
        found.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y(value), y2=y(value), class_="grid"))
        found.append(tag("text", f"{value:g}", x=LEFT - 6, y=y(value) + 4, text_anchor="end"))
    found.append(tag("text", across, x=LEFT - 14, y=HEIGHT - 10, text_anchor="end"))
    for value in round_numbers(0, last):
        found.append(tag("text", f"{value:,g}", x=x(value), y=HEIGHT - 10, text_anchor="middle"))
    return found


def mark(x: float) -> Markup:
    return tag(
        "line", tag("title", "the weights that were kept"), x1=x, x2=x, y1=TOP, y2=HEIGHT - BOTTOM, class_="kept"
    )


def names(curves: Sequence[Curve]) -> list[Markup]:
    found, left = list[Markup](), float(LEFT)
    for at, curve in enumerate(curves):
        found.append(tag("line", x1=left, x2=left + 16, y1=12, y2=12, class_=f"line line{at % 3}"))
        found.append(tag("text", curve.name, x=left + 22, y=16))
        left += 40 + 7.5 * len(curve.name)
    return found


def summary(curve: Curve, across: str) -> str:
    first, last = curve.points[0], curve.points[-1]
    if len(curve.points) == 1:
        return f"{curve.name}: {first.value:.4g} at {across} {first.step:g}"
    start, end = (f"{point.value:.4g} at {across} {point.step:g}" for point in (first, last))
    return f"{curve.name}: from {start} to {end}"


def finite(curve: Curve) -> Curve:
    return Curve(curve.name, [point for point in curve.points if math.isfinite(point.value)])


def thinned(curve: Curve) -> Curve:
    """The curve with no more points than can be seen: each the mean of as many."""
    size = -(-len(curve.points) // MOST)
    if size <= 1:
        return curve
    groups = [curve.points[at : at + size] for at in range(0, len(curve.points), size)]
    return Curve(
        curve.name, [Point(group[-1].step, math.fsum(p.value for p in group) / len(group)) for group in groups]
    )


def spread(values: Sequence[float]) -> tuple[float, float]:
    """The lowest and highest value with a little room; some room also where all are equal."""
    low, high = min(values), max(values)
    room = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    return (low if low == 0 else low - room), high + room


def round_numbers(low: float, high: float, most: int = 6) -> list[float]:
    """The multiples of 1, 2 or 5 times a power of ten between two numbers: `most` of them at most."""
    step = 10.0 ** math.floor(math.log10((high - low) / most))
    step *= next(factor for factor in (1, 2, 5, 10, 20) if (high - low) / (step * factor) <= most - 1)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]
