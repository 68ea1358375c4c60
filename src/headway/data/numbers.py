"""Numbers as records: series, rows over time and sets of vectors, recognised in tables and in lines of JSON.

A field holds vectors as a text, numbers separated by spaces and vectors by semicolons: "0.5 1; 2 3".  So a record is
read, compared and held out as a text is, and `vectors` turns it into an array when a batch is made.

Axes:  T vectors: steps of a series, members of a set   F numbers of each
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.data.kinds import NUMERIC, DataKind
from headway.data.records import DataQuery, RecognisedData, Record, records
from headway.data.table import JsonLines, Rewritten, Table, shortened
from headway.data.table_preview import BESIDES, LABEL, TablePreview, preview_rows, sample_objects, words
from headway.data.text_lines import Flaw, Problem, check_file, line_count, suffix_of
from headway.errors import UserError, counted, listed

MAX_FLOAT = 3e38  # what four bytes hold
MIN_VECTOR_SHARE = 0.9  # of the values under a key of JSON that are to be lists of numbers
MIN_NUMBER_SHARE = 0.5  # of the values in a column that are to be numbers: a column of texts has hardly any
MIN_NUMBER_COLUMNS = 3  # that are taken for such without --task or a time: two may be a pair of texts
LABELS = LABEL | {"target", "y"}
TIME = words("date time timestamp datetime day month year hour")
TYPED = "numbers apart by spaces, vectors by semicolons, as in 0.5 1; 2 3"


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
class NumberRows(Rewritten[Table]):
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
class Sets(JsonLines):
    """Lines of JSON with a list of vectors, each of `width` numbers, and a label."""

    width: int

    def fields(self, line: int, value: dict[str, Any]) -> tuple[str, ...] | Problem:
        key, label_key = self.keys
        rows, label = vectors_in(value[key]), value[label_key]
        if rows is None:
            said = f"{key!r} is {shortened(value[key])}, not a list of vectors of numbers"
            return Problem(self.file, line, Flaw.NUMBER, said)
        widths = {len(row) for row in rows}
        if widths != {self.width}:
            wrong = min(widths - {self.width}) if widths else 0
            said = f"{key!r} has a vector of {wrong} numbers where others have {self.width}" if widths else ""
            return Problem(self.file, line, Flaw.NUMBER, said or f"{key!r} is empty")
        if not isinstance(label, str | int):
            return Problem(self.file, line, Flaw.VALUE, f"{label_key!r} is {shortened(label)}, not a label")
        return written(rows), str(label)


def numbers_in(cells: Sequence[str], table: Table, line: int) -> list[float] | Problem:
    """The cells of a row as numbers, or which of them is none."""
    found: list[float] = []
    for field, cell in enumerate(cells):
        value = number_in(cell)
        if value is None:
            said = f"{table.side(field)[1]} is {shortened(cell)}, not a number"
            return Problem(table.file, line, Flaw.EMPTY if not cell.strip() else Flaw.NUMBER, said)
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
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MAX_FLOAT


def recognise_numbers(asked: DataQuery) -> RecognisedData | None:
    """Series, sets or rows over time; None where something else was handed over."""
    if asked.kind not in {None, *NUMERIC} or not all(path.is_file() for path in asked.paths):
        return None
    suffixes = {suffix_of(path) for path in asked.paths}
    if suffixes == {".jsonl"} and asked.kind in (None, DataKind.SETS):
        return sets(asked)
    if suffixes <= {".csv", ".tsv"} and asked.kind is not DataKind.SETS:
        return rows(asked)
    return None


def rows(asked: DataQuery) -> RecognisedData | None:
    """Tables of numbers; a label makes each row a record, without one they are moments."""
    sources: list[Series | NumberRows] = []
    lines, kind = 0, asked.kind
    for file in asked.paths:
        head = with_number_header(preview_rows(asked, file, suffix_of(file)))
        chosen = columns_of(head, asked, kind)
        if chosen is None:
            return None
        kind, columns = chosen
        assert head.dialect is not None
        table = Table(file, head.dialect, head.width, columns, head.names)
        sources.append(Series(table) if kind is DataKind.SERIES else NumberRows(table))
        lines += line_count(file) - head.header_lines
    assert kind is not None
    wide = len(sources[0].table.chosen) - (kind is DataKind.SERIES)
    label = " and a label" if kind is DataKind.SERIES else ""
    said = f"{counted(lines, 'line')} of {counted(wide, 'number')}{label}"
    return RecognisedData(kind, tuple(sources), f"{listed(map(str, asked.paths), 3)}: {said}")


def columns_of(head: TablePreview, asked: DataQuery, kind: DataKind | None) -> tuple[DataKind, tuple[int, ...]] | None:
    """Series or rows over time, and the columns: those of numbers, then that of the label."""
    columns = tuple(head.find(column) for column in asked.columns) or tuple(
        at for at in range(head.width) if head.name(at) not in BESIDES | TIME
    )
    if kind is DataKind.ROWS and asked.columns:
        return kind, columns
    timed = any(head.name(at) in TIME for at in range(head.width))
    label = [] if kind is DataKind.ROWS else labels_in(head, columns, kind, timed)
    numbers = tuple(at for at in columns if at not in label[:1] and numeric(head, at))
    enough = len(numbers) >= (MIN_NUMBER_COLUMNS if kind is None and not timed else 1)
    if enough and len(label) < 2 and len(numbers) + len(label) == len(columns):
        return (DataKind.SERIES, (*numbers, *label)) if label else (DataKind.ROWS, numbers)
    if kind is None:
        return None
    raise UserError(f"{head.file} has other columns than of numbers and one label", do="choose some with data.columns")


def labels_in(head: TablePreview, columns: Sequence[int], kind: DataKind | None, timed: bool) -> list[int]:
    """Columns that look like a label: by their names, by having no numbers, or by being the last of a series."""
    named = [at for at in columns if head.name(at) in LABELS]
    if timed and kind is None:
        named = [at for at in named if not numeric(head, at)]  # beside a time, y is a number like the others
    found = named or [at for at in columns if not numeric(head, at)]
    return found or ([columns[-1]] if kind is DataKind.SERIES else [])


def with_number_header(head: TablePreview) -> TablePreview:
    """A table whose first row has no number where all others have some has a header."""
    if head.names is not None or len(head.rows) < 2:
        return head
    rest = head.with_header()
    numbers = [at for at in range(head.width) if numeric(rest, at)]
    is_header = numbers and all(number_in(head.rows[0][at]) is None for at in numbers)
    return rest if is_header else head


def numeric(head: TablePreview, column: int) -> bool:
    values = head.values(column)
    return sum(number_in(value) is not None for value in values) > MIN_NUMBER_SHARE * len(values)


def sets(asked: DataQuery) -> RecognisedData | None:
    """Lines of JSON, of which one key has lists of vectors and another the label."""
    sources: list[Sets] = []
    for file in asked.paths:
        found = keys_of(sample_objects(asked, file), asked.columns, file, asked.kind)
        if found is None:
            return None
        sources.append(found)
    lines = counted(sum(line_count(file) for file in asked.paths), "line")
    said = f"{lines} of sets of vectors of {counted(sources[0].width, 'number')} and a label"
    return RecognisedData(DataKind.SETS, tuple(sources), f"{listed(map(str, asked.paths), 3)}: {said}")


def keys_of(
    objects: Sequence[dict[str, Any]], columns: Sequence[str | int], file: Path, kind: DataKind | None
) -> Sets | None:
    keys = [str(key) for key in columns] or list(dict.fromkeys(key for value in objects for key in value))
    lists = [
        key
        for key in keys
        if sum(vectors_in(one.get(key)) is not None for one in objects) >= MIN_VECTOR_SHARE * len(objects)
    ]
    nested = [key for key in lists if any(is_nested(one.get(key)) for one in objects)]
    chosen = lists if kind is DataKind.SETS else nested  # a flat list of numbers may be tags
    others = [key for key in keys if any(isinstance(one.get(key), str | int) for one in objects)]
    labels = [key for key in others if key.casefold() in LABELS] or [k for k in others if k.casefold() not in BESIDES]
    if not chosen or (kind is None and not labels):
        return None
    if len(chosen) > 1 or len(labels) != 1:
        said = f"{file}: nothing says which of {listed(keys)} are the vectors and which the label"
        raise UserError(said, do=f"choose two, as in data.columns {chosen[0]},{(labels or ['label'])[0]}")
    widths = Counter(len(row) for one in objects for row in vectors_in(one.get(chosen[0])) or ())
    return Sets(file, (chosen[0], labels[0]), widths.most_common(1)[0][0] if widths else 1)


def is_nested(value: Any) -> bool:
    """Whether a value of JSON is a list in which others stand."""
    return isinstance(value, list) and any(isinstance(row, list) for row in value)


def numbers_of(given: str, columns: Sequence[str | int] | None, width: int) -> str:
    """Vectors of `width` numbers as a text; a model that knows its columns by name reads these of a table."""
    path = Path(given)
    if columns is not None and suffix_of(path) in (".csv", ".tsv"):
        return "; ".join(rows_of(path, columns))
    for row in given.split(";"):
        if len(row.split()) != width or None in map(number_in, row.split()):
            allowed = TYPED if columns is None else f"{TYPED}; or a table, as .csv or .tsv"
            raise UserError(f"{row.strip()[:60]!r} is no vector of {width} numbers", allowed=allowed)
    return given


def rows_of(path: Path, columns: Sequence[str | int]) -> list[str]:
    """All rows of a table, none of which may be bad: what comes next depends on each."""
    check_file(path)
    found = recognise_numbers(DataQuery((path,), DataKind.ROWS, tuple(columns)))
    assert found is not None
    rows = list[str]()
    for record in records(found):
        if isinstance(record, Problem):
            raise UserError(str(record), do=f"see headway check {path}")
        rows.append(record.fields[0])
    return rows
