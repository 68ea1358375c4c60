"""Numbers as records: rows of a table, and sets of vectors in lines of JSON.

A field holds vectors as a text, numbers apart by spaces and vectors by semicolons: "0.5 1; 2 3".  So a record is read,
compared and held out as a text is, and `vectors` turns it into an array when a batch is made.

Axes:  T vectors: steps of a series, members of a set   F numbers of each
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.data.lines import Problem, What
from headway.data.sources import Record, Rewritten, Table, read_objects, shortened

LARGEST = 3e38  # what four bytes hold


def vectors(text: str) -> NDArray[np.float32]:
    """The numbers of a field, T F."""
    return np.array([row.split() for row in text.split(";")], np.float32)


def written(rows: Sequence[Sequence[float]]) -> str:
    """What `vectors` reads."""
    return "; ".join(" ".join(f"{value:.9g}" for value in row) for row in rows)


@dataclass(frozen=True)
class Series(Rewritten[Table]):
    """Rows of a table: the numbers of each, one after the other in time, and its label in the last column."""

    def read(self) -> Iterator[Record | Problem]:
        for row in self.table.read():
            if isinstance(row, Problem):
                yield row
                continue
            *cells, label = row.fields
            values = numbers_in(cells, self.table, row.line)
            yield (
                values
                if isinstance(values, Problem)
                else Record((written([[value] for value in values]), label), row.file, row.line)
            )

    def side(self, field: int) -> tuple[Path, str]:
        return self.table.side(-1) if field else (self.table.file, "the series")


@dataclass(frozen=True)
class Forecast(Rewritten[Table]):
    """Rows of a table, each a moment: one long record that goes on from row to row."""

    def read(self) -> Iterator[Record | Problem]:
        begun = False
        for row in self.table.read():
            values = row if isinstance(row, Problem) else numbers_in(row.fields, self.table, row.line)
            if isinstance(values, Problem):
                yield values
            else:
                yield Record((written([values]),), self.table.file, row.line, goes_on=begun)
                begun = True

    def side(self, field: int) -> tuple[Path, str]:
        return self.table.file, "the row"


@dataclass(frozen=True)
class Sets:
    """Lines of JSON with a list of vectors, each of `width` numbers, and a label."""

    file: Path
    key: str
    label: str
    width: int

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.file,)

    @property
    def columns(self) -> tuple[str | int, ...]:
        return self.key, self.label

    def read(self) -> Iterator[Record | Problem]:
        for found in read_objects(self.file):
            yield found if isinstance(found, Problem) else self.record(*found)

    def record(self, line: int, value: dict[str, Any]) -> Record | Problem:
        for key in (self.key, self.label):
            if value.get(key) is None:
                said = f"{key!r} is null" if key in value else f"no {key!r} among its keys"
                return Problem(self.file, line, What.KEY, said)
        rows, label = vectors_in(value[self.key]), value[self.label]
        if rows is None:
            said = f"{self.key!r} is {shortened(value[self.key])}, not a list of vectors of numbers"
            return Problem(self.file, line, What.NUMBER, said)
        widths = {len(row) for row in rows}
        if widths != {self.width}:
            wrong = min(widths - {self.width}) if widths else 0
            said = f"{self.key!r} has a vector of {wrong} numbers where others have {self.width}" if widths else ""
            return Problem(self.file, line, What.NUMBER, said or f"{self.key!r} is empty")
        if not isinstance(label, str | int):
            return Problem(self.file, line, What.VALUE, f"{self.label!r} is {shortened(label)}, not a label")
        return Record((written(rows), str(label)), self.file, line)

    def side(self, field: int) -> tuple[Path, str]:
        return self.file, repr(self.label if field else self.key)


def numbers_in(cells: Sequence[str], table: Table, line: int) -> list[float] | Problem:
    """The cells of a row as numbers, or which of them is none."""
    found: list[float] = []
    for field, cell in enumerate(cells):
        value = number_in(cell)
        if value is None:
            said = f"{table.side(field)[1]} is {shortened(cell)}, not a number"
            return Problem(table.file, line, What.EMPTY if not cell.strip() else What.NUMBER, said)
        found.append(value)
    return found


def number_in(cell: str) -> float | None:
    """A number that four bytes can hold, as programs write it."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if is_number(value) and "_" not in cell else None


def vectors_in(value: Any) -> list[list[float]] | None:
    """Lists of finite numbers of JSON; a list of numbers is one of vectors of one number each."""
    if not isinstance(value, list):
        return None
    rows = [[one] if is_number(one) else one for one in value]
    if not all(isinstance(row, list) and row and all(map(is_number, row)) for row in rows):
        return None
    return rows


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST
