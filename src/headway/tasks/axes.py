"""What the rows or the columns of a map are: pieces of a text, cells of a picture, stretches of a sound, or items.

An axis knows what a person would call each of its rows; a page draws it by its kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Axis:
    """A row (or column) for each label; `special` are the indices of those that stand for no part of the input."""

    kind: ClassVar[str] = ""

    name: str
    labels: tuple[str, ...]
    special: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class TokenAxis(Axis):
    """Pieces of a text."""

    kind: ClassVar[str] = "text"


@dataclass(frozen=True)
class GridAxis(Axis):
    """Cells of a picture, row by row, behind the `first` tokens that are none: a class token, say."""

    kind: ClassVar[str] = "grid"

    grid: tuple[int, int] = (0, 0)  # rows, columns
    first: int = 0


@dataclass(frozen=True)
class FrameAxis(Axis):
    """Stretches of a sound, each of so many seconds."""

    kind: ClassVar[str] = "frames"

    seconds: float = 0.0


@dataclass(frozen=True)
class ItemAxis(Axis):
    """Rows of numbers, or members of a set."""

    kind: ClassVar[str] = "items"


def cells(grid: tuple[int, int], before: tuple[str, ...] = ()) -> GridAxis:
    """The cells of a grid, labelled `row,column` from 1, behind the tokens `before` them."""
    down, along = grid
    labels = tuple(f"{y},{x}" for y in range(1, down + 1) for x in range(1, along + 1))
    name = f"cells-{down}x{along}" + (f"+{len(before)}" if before else "")
    return GridAxis(name, before + labels, tuple(range(len(before))), grid, len(before))


def frames(count: int, seconds: float) -> FrameAxis:
    """Stretches of a sound one after the other, labelled by the second at which each begins."""
    digits = 2 if seconds >= 0.01 else 4
    return FrameAxis("frames", tuple(f"{at * seconds:.{digits}f} s" for at in range(count)), (), seconds)


def items(name: str, count: int) -> ItemAxis:
    """Items that have no name but their number, from 1."""
    return ItemAxis(name, tuple(str(at) for at in range(1, count + 1)))
