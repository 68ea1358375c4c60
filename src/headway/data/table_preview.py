"""The first rows of a table as texts, with the names of its columns.

A first row is a header where a person said so (data.header), else where it looks like one (`table_header.py`), or where
a column was requested by name.  A file is sampled once for each `DataQuery`, whatever it is then tried as.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from headway.data.records import DataQuery, RecordSource
from headway.data.table import Dialect, JsonLines, JsonRow, Table, TableRow, as_text, as_texts, read_objects, sniff
from headway.data.table_header import is_header, medium_of
from headway.data.text_lines import Problem, suffix_of
from headway.errors import UserError, counted, listed, nearest

T = TypeVar("T", TableRow, JsonRow)
SEVERAL = "give every line as many cells as the header, and quotes to cells of a .csv that hold its separator"
MAX_ROWS, MAX_CHARACTERS = 2000, 2**22  # of a sample


@dataclass(frozen=True)
class TablePreview:
    """Rows as texts, all of one width.  `lists` are the columns of JSON lists; lines of JSON have no dialect."""

    file: Path
    names: tuple[str, ...] | None
    rows: tuple[tuple[str, ...], ...]
    dialect: Dialect | None = None
    lists: frozenset[int] = frozenset()

    @property
    def width(self) -> int:
        return len(self.rows[0]) if self.names is None else len(self.names)

    @property
    def header_lines(self) -> int:
        """Lines before the first record."""
        return int(self.names is not None and self.dialect is not None)

    def name(self, column: int) -> str:
        return self.names[column].strip().casefold() if self.names else ""

    def columns_besides(self, names: Container[str]) -> tuple[int, ...]:
        """Columns with other names than these; one without a name, beside others that have one, is an index."""
        columns = range(self.width)
        return tuple(at for at in columns if self.name(at) not in names and (self.name(at) or not self.names))

    def values(self, column: int) -> list[str]:
        return [row[column] for row in self.rows]

    def find(self, column: str | int) -> int:
        """The index of a column that is given by name or by number from 1."""
        names = self.names or ()
        if isinstance(column, str) and column in names:
            return names.index(column)
        if str(column).isdecimal() and 0 < int(column) <= self.width and self.dialect:
            return int(column) - 1
        allowed = listed(name[:24] for name in names) if names else f"1 to {self.width}"
        noun = "column" if self.dialect else "key"
        raise UserError(f"{self.file} has no {noun} {column!r}", allowed=allowed, meant=nearest(str(column), names))

    def source(self, columns: tuple[int, ...]) -> RecordSource:
        if self.dialect:
            return Table(self.file, self.dialect, self.width, columns, self.names)
        assert self.names is not None
        return JsonLines(self.file, tuple(self.names[column] for column in columns))


def preview_texts(query: DataQuery, file: Path, suffix: str) -> TablePreview:
    """The preview of a file that is named or meant as one of .tsv, .csv and .jsonl."""
    if suffix != ".jsonl":
        return preview_rows(query, file, suffix)
    found, objects = preview_objects(query, file, as_text), sample_objects(query, file)
    if not found.names:
        keys = listed(dict.fromkeys(key for one in objects for key in one))
        raise UserError(
            f"{file} has no key with texts on most of its lines",
            allowed="texts and labels by key",
            do=f"its keys are {keys}" if keys else None,
        )
    lists = (at for at, key in enumerate(found.names) if any(isinstance(one.get(key), list) for one in objects))
    return replace(found, lists=frozenset(lists))


def preview_rows(query: DataQuery, file: Path, suffix: str) -> TablePreview:
    dialect, sampled = sample_rows(query, file, suffix)
    rows = tuple(cells for _, cells in sampled)
    first = rows[0]
    (width, _), *_ = Counter(map(len, rows)).most_common(1)
    rest = tuple(cells for cells in rows[1:] if len(cells) == len(first))
    by_name = [column for column in query.columns if not str(column).isdecimal()]
    looks = sampled[0][0] == 1 and len(first) == width and is_header(first, rest)
    if query.header is None and by_name and not looks and not {*map(str, by_name)} & {*first}:
        said = f"{file} has no column {by_name[0]!r}, and its first line does not look like a header"
        do = "put a line of names above it, or give numbers of columns"
        raise UserError(said, do=do)
    if query.header == "no" or (query.header is None and not by_name and not looks):
        return TablePreview(file, None, tuple(cells for cells in rows if len(cells) == width), dialect)
    if len(rows) == 1:
        do = "give more lines, or data.header no where it is a record"
        raise UserError(f"{file} has a header and no records below it", do=do)
    if not rest:
        raise UserError(f"{file} has no row with {counted(len(first), 'column')}, as its first line has", do=SEVERAL)
    return TablePreview(file, first, rest, dialect)


def sample_rows(query: DataQuery, file: Path, suffix: str) -> tuple[Dialect, list[TableRow]]:
    """The first rows of a table, and how its lines are split."""

    def read() -> tuple[Dialect, list[TableRow]]:
        dialect = sniff(file) if suffix == ".csv" else Dialect()
        return dialect, sample(dialect.rows(file), file)

    return query.once((file, suffix), read)


def sample_objects(query: DataQuery, file: Path) -> list[dict[str, Any]]:
    """The first objects of a file of JSON lines."""
    return query.once((file, ".jsonl"), lambda: [value for _, value in sample(read_objects(file), file)])


def preview_objects(
    query: DataQuery, file: Path, cell_of: Callable[[Any], str | tuple[str, ...] | None]
) -> TablePreview:
    """Keys that most objects have, where `cell_of` finds a text, or several, which are joined by spaces."""
    objects = sample_objects(query, file)
    cells = [{key: cell for key, value in one.items() if (cell := cell_of(value)) is not None} for one in objects]
    counts = Counter(key for row in cells for key in row)
    keys = tuple(key for key, count in counts.items() if 2 * count >= len(objects))
    whole = [[row[key] for key in keys] for row in cells if row.keys() >= set(keys)]
    rows = tuple(tuple(cell if isinstance(cell, str) else " ".join(cell) for cell in row) for row in whole)
    lists = frozenset(at for row in whole for at, cell in enumerate(row) if isinstance(cell, tuple))
    return TablePreview(file, keys, rows, None, lists)


def sample(rows: Iterable[T | Problem], file: Path) -> list[T]:
    """The first good rows; a UserError with the first problem where there is none."""
    first: Problem | None = None
    good: list[T] = []
    size = 0
    for number, row in enumerate(rows):
        if isinstance(row, Problem):
            first = first or row
        else:
            good.append(row)
            size += len(str(row))
        if number + 1 == MAX_ROWS or size > MAX_CHARACTERS:
            break
    if not good:
        raise first.error() if first else UserError(f"{file} is empty")
    return good


def media_column(query: DataQuery, file: Path) -> tuple[TablePreview, int, str] | None:
    """A table, its column that names files, and whether these are images or sounds; None where no column does."""
    suffix = suffix_of(file)
    objects = suffix == ".jsonl"
    preview = preview_objects(query, file, media_cell) if objects else preview_rows(query, file, suffix)
    named = {at: noun for at in range(preview.width) if (noun := medium_of(preview.values(at)))}
    if not named:
        return None
    column = preview.find(query.columns[0]) if query.columns else next(iter(named))
    return (preview, column, named[column]) if column in named else None


def media_cell(value: Any) -> str | tuple[str, ...] | None:
    texts = as_texts(value)
    return texts[0] if texts and len(texts) == 1 else texts
