"""Tables and numbers, as people read them in a terminal of 80 columns, and as JSON takes them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

WIDTH = 80  # columns of a terminal


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows under one another, the first column to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = ([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])] for row in rows)
    return "\n".join("  ".join(cells).rstrip() for cells in padded)


def widest(table: str) -> int:
    return max(map(len, table.splitlines()))


def spaced(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def side_by_side(rows: Sequence[Sequence[str]], fixed: int = 2, width: int = WIDTH) -> list[str]:
    """Tables of at most `width`: as many of the columns of each row as it allows, behind the first ones."""
    tables: list[list[int]] = []
    for column in range(fixed, len(rows[0])):
        if tables and widest(chosen(rows, [*tables[-1], column])) <= width:
            tables[-1].append(column)
        else:
            tables.append([*range(fixed), column])
    return [chosen(rows, columns) for columns in tables]


def chosen(rows: Sequence[Sequence[str]], columns: Sequence[int]) -> str:
    return aligned([[row[at] for at in columns] for row in rows])


def short(number: int) -> str:
    """1 557 611 200 as 1.56 G"""
    return scaled(number, 1000, ("", " k", " M", " G", " T", " P"))


def binary(number: int) -> str:
    """1 280 000 000 000 bytes as 1.16 TiB"""
    return scaled(number, 1024, (" B", " KiB", " MiB", " GiB", " TiB", " PiB"))


def scaled(number: int, base: int, units: tuple[str, ...]) -> str:
    value, power = float(number), 0
    while value >= base and power < len(units) - 1:
        value, power = value / base, power + 1
    return f"{value:.0f}{units[0]}" if power == 0 else f"{value:.2f}{units[power]}"


def cut(label: str) -> str:
    """A class's name, short enough to stand in a table."""
    return label if len(label) <= 16 else f"{label[:15]}…"


def finite(numbers: Mapping[str, float]) -> dict[str, float | None]:
    """For JSON, which has no infinity: what is not finite is null."""
    return {name: number if math.isfinite(number) else None for name, number in numbers.items()}
