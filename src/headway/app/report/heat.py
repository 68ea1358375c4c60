"""Attention weights as colours: a map of rows × columns, or a ribbon of pieces, from dark blue to yellow.

The colours are cividis, which people with any kind of colour vision read alike, and which stay in order when printed
in grey.  Weights below `FAINT` are left at the colour of 0: most are, and a page of all of them would be large.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from unicodedata import east_asian_width

from headway.app.report.markup import Markup, joined, tag

CELL = 18  # units of the drawing
LETTER = 8.5  # that a letter of a label takes
LABEL = 12  # letters of a label
UPRIGHT = 1.6  # letters that have room side by side
FAINT = 0.015
ANCHORS = ("00224e", "123570", "3b496c", "575d6d", "707173", "8a8678", "a59c74", "c3b369", "e1cc55", "fee838")
# spaces, ends of lines and tabs, so that they can be seen
SIGNS = {" ": "␣", "\n": "↵", "\t": "⇥", "\u00a0": "␣"}


@dataclass(frozen=True)
class Map:
    """How much each row looked at each column."""

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    weights: Sequence[Sequence[float]]


@dataclass(frozen=True)
class Ribbon:
    """How much one thing looked at each piece of a text."""

    title: str
    pieces: Sequence[str]
    weights: Sequence[float]


def figure(one: Map | Ribbon) -> Markup:
    return tag(
        "figure",
        tag("figcaption", one.title, dir="auto"),
        drawn_map(one) if isinstance(one, Map) else drawn_ribbon(one),
    )


def drawn_map(one: Map) -> Markup:
    rows, columns = [label(piece) for piece in one.rows], [label(piece) for piece in one.columns]
    left = 10 + LETTER * max(map(breadth, rows), default=0)
    top = 10 + LETTER * max(map(breadth, columns), default=0)
    wide, high = CELL * len(columns), CELL * len(rows)
    return tag(
        "svg",
        tag("title", one.title),
        tag("desc", "; ".join(strongest(one))),
        *(column_label(piece, left + CELL * (at + 0.5), top) for at, piece in enumerate(columns)),
        *(tag("text", piece, x=left - 5, y=top + CELL * at + 13, text_anchor="end") for at, piece in enumerate(rows)),
        tag("rect", x=left, y=top, width=wide, height=high, fill=colour(0)),
        *cells(one, left, top),
        viewBox=f"0 0 {left + wide + 4:g} {top + high + 4:g}",
        style=f"max-width:{left + wide + 4:g}px",
        role="img",
        class_="map",
    )


def cells(one: Map, left: float, top: float) -> Iterator[Markup]:
    most = max((weight for weights in one.weights for weight in weights), default=1.0) or 1.0
    for at, (row, weights) in enumerate(zip(one.rows, one.weights, strict=True)):
        for place, (column, weight) in enumerate(zip(one.columns, weights, strict=True)):
            if weight >= FAINT:
                said = tag("title", f"{label(row)} ← {label(column)}  {weight:.2f}")
                x, y = f"{left + CELL * place:g}", f"{top + CELL * at:g}"
                yield tag("rect", said, x=x, y=y, width=CELL, height=CELL, fill=colour(weight / most))


def column_label(piece: str, x: float, y: float) -> Markup:
    """Above its column: upright where it has room, else turned."""
    if breadth(piece) <= UPRIGHT:
        return tag("text", piece, x=f"{x:g}", y=f"{y - 5:g}", text_anchor="middle")
    turned = f"translate({x + 4:g} {y - 5:g}) rotate(-90)"
    return tag("text", piece, transform=turned)


def drawn_ribbon(one: Ribbon) -> Markup:
    """The text itself, which wraps as texts do; the strongest weight is the brightest."""
    most = max(one.weights, default=1.0) or 1.0
    pieces = [
        tag(
            "span",
            label(piece),
            title=f"{weight:.3f}",
            style=f"background:{colour(weight / most)};color:{ink(weight / most)}",
        )
        for piece, weight in zip(one.pieces, one.weights, strict=True)
    ]
    return tag(
        "p",
        joined(piece for pair in zip(pieces, [" "] * len(pieces), strict=True) for piece in pair),
        dir="auto",
        class_="ribbon",
    )


def strongest(one: Map) -> Iterator[str]:
    """For each row the column that it looked at most, in words."""
    for row, weights in zip(one.rows, one.weights, strict=True):
        at = max(range(len(weights)), key=weights.__getitem__)
        yield f"{label(row)} looks most at {label(one.columns[at])}, {weights[at]:.2f}"


def label(piece: str) -> str:
    """A piece of text, short and with its spaces to be seen."""
    text = "".join(SIGNS.get(letter, letter) for letter in piece) or "∅"
    return text if len(text) <= LABEL else text[: LABEL - 1] + "…"


def breadth(text: str) -> float:
    """How many letters wide a text is; those of East Asia are wider than others."""
    return sum(1.6 if east_asian_width(letter) in "WF" else 1.0 for letter in text)


def colour(weight: float) -> str:
    """The colour of a weight between 0 and 1."""
    place = min(max(weight, 0.0), 1.0) * (len(ANCHORS) - 1)
    at = min(int(place), len(ANCHORS) - 2)
    low, high = (bytes.fromhex(anchor) for anchor in ANCHORS[at : at + 2])
    return "#" + bytes(round(a + (b - a) * (place - at)) for a, b in zip(low, high, strict=True)).hex()


def ink(weight: float) -> str:
    """What can be read on that colour."""
    return "#000" if weight > 0.5 else "#fff"
