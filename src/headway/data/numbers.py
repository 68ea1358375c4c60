"""Numbers as records: series, rows over time and sets of vectors, recognised in tables and in lines of JSON.

A field holds vectors as a text, numbers separated by spaces and vectors by semicolons: "0.5 1; 2 3".  So a record is
read, compared and held out as a text is, and `vectors` turns it into an array when a batch is made.

Axes:  T vectors: steps of a series, members of a set   F numbers of each
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.data.column_choice import ColumnChoice, are_scores, described
from headway.data.kinds import NUMERIC, DataKind
from headway.data.records import DataQuery, RecognisedData, Record, as_number, is_number, records
from headway.data.table import JsonLines, Table, row_count, shortened
from headway.data.table_preview import (
    BESIDES,
    LABEL,
    SCORE,
    TablePreview,
    is_numeric,
    preview_rows,
    sample_objects,
    words,
)
from headway.data.text_lines import OBJECT_SUFFIXES, Flaw, Problem, check_file, suffix_of
from headway.errors import UserError, counted, listed

MIN_VECTOR_SHARE = 0.9  # of the values under a key of JSON that are to be lists of numbers
LABELS = LABEL | {"target", "y"}
TIME = words("date time timestamp datetime day month year hour")
TYPED = "numbers apart by spaces or commas, vectors by semicolons, as in 0.5 1; 2 3"


def vectors(text: str) -> NDArray[np.float32]:
    """The numbers of a field, T F."""
    return np.array([row.split() for row in text.split(";")], np.float32)


def written(rows: Sequence[Sequence[float]]) -> str:
    """What `vectors` reads."""
    return "; ".join(" ".join(f"{value:.9g}" for value in row) for row in rows)


@dataclass(frozen=True)
class NumberTable(Table):
    """Rows of numbers.

    Where `labelled`, each row is a series over time with its label, or its number, in the last column; else each row is
    a moment, and all are one long record that goes on from row to row.
    """

    labelled: bool = False

    def read(self) -> Iterator[Record | Problem]:
        begun = False
        for row in super().read():
            if isinstance(row, Problem):
                yield row
                continue
            cells = row.fields[:-1] if self.labelled else row.fields
            values = [value for cell in cells if (value := as_number(cell)) is not None]
            if len(values) < len(cells):
                at = next(at for at, cell in enumerate(cells) if as_number(cell) is None)
                said = f"{super().field_name(at)} is {shortened(cells[at])}, not a number"
                yield Problem(self.file, row.line, Flaw.NUMBER if cells[at].strip() else Flaw.EMPTY, said)
            elif self.labelled:
                yield Record((written([[value] for value in values]), row.fields[-1]), row.file, row.line)
            else:
                yield Record((written([values]),), row.file, row.line, goes_on=begun)
                begun = True

    def field_name(self, field: int) -> str:
        if not self.labelled:
            return "the row"
        return super().field_name(-1) if field else "the series"


@dataclass(frozen=True)
class Sets(JsonLines):
    """Objects with a list of vectors, each of `width` numbers, and a label."""

    width: int

    def fields(self, line: int, value: dict[str, Any]) -> tuple[str, ...] | Problem:
        key, label_key = self.keys
        rows, label = vectors_in(value[key]), value[label_key]
        if rows is None:
            said = f"{key!r} is {shortened(value[key])}, not a list of vectors of numbers"
            return Problem(self.file, line, Flaw.NUMBER, said)
        if not rows:
            return Problem(self.file, line, Flaw.NUMBER, f"{key!r} is empty")
        if wrong := {len(row) for row in rows} - {self.width}:
            said = f"{key!r} has a vector of {min(wrong)} numbers where others have {self.width}"
            return Problem(self.file, line, Flaw.NUMBER, said)
        if not isinstance(label, str | int):
            return Problem(self.file, line, Flaw.VALUE, f"{label_key!r} is {shortened(label)}, not a label")
        return written(rows), str(label)


def vectors_in(value: Any) -> list[list[float]] | None:
    """Lists of finite numbers of JSON; a list of numbers is one of vectors of one number each."""
    if not isinstance(value, list):
        return None
    rows = [[one] if is_number(one) else one for one in value]
    if not all(isinstance(row, list) and row and all(map(is_number, row)) for row in rows):
        return None
    return rows


def recognise_numbers(query: DataQuery) -> RecognisedData | None:
    """Series, sets or rows over time; None where something else was given."""
    kind, suffixes = query.kind, {suffix_of(path) for path in query.paths}
    if kind not in {None, *NUMERIC} or not all(path.is_file() for path in query.paths):
        return None
    if suffixes <= {*OBJECT_SUFFIXES} and kind in (None, DataKind.SETS):
        return recognise_sets(query)
    if suffixes <= {".csv", ".tsv", ".txt"} and kind is not DataKind.SETS:
        return recognise_rows(query)
    return None


def recognise_rows(query: DataQuery) -> RecognisedData | None:
    """Tables of numbers; a label, or a number to predict, makes each row a record, without one they are moments."""
    sources: list[NumberTable] = []
    lines, kind, columns_said = 0, query.kind, ""
    for file in query.paths:
        preview = preview_rows(query, file, table_suffix(file))
        chosen = number_columns(preview, query, kind)
        if chosen is None:
            return None
        kind, columns = chosen
        assert preview.dialect is not None
        labelled = kind is not DataKind.ROWS
        sources.append(NumberTable(file, preview.dialect, preview.width, columns, preview.names, labelled))
        lines += row_count(file) - preview.header_lines
        columns_said = columns_said or (described(preview, columns) if preview.names else "")
    assert kind is not None
    said_of = {DataKind.SERIES: " and a label", DataKind.SCORED_SERIES: " and the one to predict"}.get(kind, "")
    numbers = counted(len(sources[0].chosen) - bool(said_of), "number")
    said = f"{counted(lines, 'line')} of {numbers}{said_of}{columns_said}"
    return RecognisedData(kind, tuple(sources), f"{listed(map(str, query.paths), 3)}: {said}")


def table_suffix(file: Path) -> str:
    """The suffix as which a table of numbers is read; lines of a text are rows of one column."""
    return ".tsv" if suffix_of(file) == ".txt" else suffix_of(file)


def numeric(preview: TablePreview, column: int) -> bool:
    return is_numeric(preview.values(column))


def number_columns(preview: TablePreview, query: DataQuery, kind: DataKind | None) -> ColumnChoice | None:
    """Series or rows over time, and the columns: those of numbers, then that of the label or number to predict."""
    columns = tuple(preview.find(column) for column in query.columns) or preview.columns_besides(BESIDES | TIME)
    if kind is DataKind.ROWS and query.columns:
        return kind, columns
    timed = any(preview.name(at) in TIME for at in range(preview.width))
    label = [] if kind is DataKind.ROWS else label_columns(preview, columns, kind, timed)
    label = [columns[-1]] if kind is DataKind.SCORED_SERIES and query.columns else label
    numbers = tuple(at for at in columns if at not in label[:1] and numeric(preview, at))
    if kind is None and label and are_columns_of_labels(preview, label[0], numbers):
        return None
    enough = len(numbers) >= (1 if kind is not None or timed else min_numbers(preview, label))
    if enough and len(label) < 2 and len(numbers) + len(label) == len(columns):
        if not label:
            return DataKind.ROWS, numbers
        scored = kind is DataKind.SCORED_SERIES or (kind is None and are_scores(preview, label[0], labels=True))
        return DataKind.SCORED_SERIES if scored else DataKind.SERIES, (*numbers, *label)
    if kind is None:
        return None
    said = f"{preview.file} has other columns than of numbers and one label"
    raise UserError(said, do="choose some with data.columns")


def are_columns_of_labels(preview: TablePreview, text: int, numbers: Sequence[int]) -> bool:
    """Whether all numbers are 0 or 1 beside texts of several words: what each column is named after, or not."""
    values = preview.values(text)
    wordy = sum(len(value.split()) for value in values) >= 2 * len(values) and 2 * len(set(values)) > len(values)
    return wordy and all(set(preview.values(at)) <= {"0", "1"} for at in numbers)


def min_numbers(preview: TablePreview, label: Sequence[int]) -> int:
    """Columns that are taken for numbers, without data.task or a time: beside words, which may be texts, more."""
    if not label or numeric(preview, label[0]):
        return 1
    values = preview.values(label[0])
    return 2 if 2 * len(set(values)) <= len(values) else 3


def label_columns(preview: TablePreview, columns: Sequence[int], kind: DataKind | None, timed: bool) -> list[int]:
    """Columns that look like a label: by their names, by having no numbers, or by being the last of a series."""
    if kind is DataKind.SCORED_SERIES:
        return number_to_predict(preview, columns)
    named = [at for at in columns if preview.name(at) in LABELS]
    if timed and kind is None:
        named = [at for at in named if not numeric(preview, at)]  # beside a time, y is a number like the others
    found = named or [at for at in columns if not numeric(preview, at)]
    return found or ([columns[-1]] if kind is DataKind.SERIES else [])


def number_to_predict(preview: TablePreview, columns: Sequence[int]) -> list[int]:
    """The column that is named like a label or a score, else the last one."""
    named = [at for at in columns if preview.name(at) in LABELS | SCORE]
    return named if len(named) == 1 else list(columns[-1:])


def has_only_numbers(query: DataQuery, file: Path) -> bool:
    """Whether the columns of a table, requested or all, are two of numbers or more."""
    preview = preview_rows(query, file, table_suffix(file))
    columns = tuple(preview.find(column) for column in query.columns) or preview.columns_besides(BESIDES | TIME)
    return len(columns) > 1 and all(numeric(preview, at) for at in columns)


def recognise_sets(query: DataQuery) -> RecognisedData | None:
    """Objects, of which one key has lists of vectors and another the label."""
    sources: list[Sets] = []
    for file in query.paths:
        found = sets_in(file, sample_objects(query, file), query)
        if found is None:
            return None
        sources.append(found)
    lines = counted(sum(row_count(file) for file in query.paths), "line")
    said = f"{lines} of sets of vectors of {counted(sources[0].width, 'number')} and a label"
    return RecognisedData(DataKind.SETS, tuple(sources), f"{listed(map(str, query.paths), 3)}: {said}")


def sets_in(file: Path, objects: Sequence[dict[str, Any]], query: DataQuery) -> Sets | None:
    keys = [str(key) for key in query.columns]
    keys = keys or list(dict.fromkeys(key for one in objects for key in one if key != query.group))
    vectors = {key: [found for one in objects if (found := vectors_in(one.get(key))) is not None] for key in keys}
    chosen = [key for key in keys if len(vectors[key]) >= MIN_VECTOR_SHARE * len(objects)]
    if query.kind is not DataKind.SETS:  # a flat list of numbers may be tags
        chosen = [key for key in chosen if any(is_nested(one.get(key)) for one in objects)]
    others = [key for key in keys if any(isinstance(one.get(key), str | int) for one in objects)]
    labels = [key for key in others if key.casefold() in LABELS] or [k for k in others if k.casefold() not in BESIDES]
    if not chosen or (query.kind is None and not labels):
        return None
    if len(chosen) > 1 or len(labels) != 1:
        said = f"{file}: nothing says which of {listed(keys)} are the vectors and which the label"
        raise UserError(said, do=f"choose two, as in data.columns {chosen[0]},{(labels or ['label'])[0]}")
    widths = Counter(len(row) for rows in vectors[chosen[0]] for row in rows)
    return Sets(file, (chosen[0], labels[0]), widths.most_common(1)[0][0] if widths else 1)


def is_nested(value: Any) -> bool:
    """Whether a value of JSON is a list in which others stand."""
    return isinstance(value, list) and any(isinstance(row, list) for row in value)


def numbers_of(given: str, columns: Sequence[str | int] | None, width: int) -> str:
    """Vectors of `width` numbers as a text; a model that knows its columns by name reads these of a table."""
    if columns is not None and is_number_table(given):
        return "; ".join(table_rows(Path(given), columns))
    rows = [row.replace(",", " ").split() for row in given.split(";")]
    if width == 1:  # a row of numbers is a series of them
        rows = [[number] for row in rows for number in row] or [[]]
    for row in rows:
        if len(row) != width or None in map(as_number, row):
            allowed = TYPED if columns is None else f"{TYPED}; or a table, as .csv or .tsv"
            wrong = next((cell for cell in row if as_number(cell) is None), None)
            count = f"{' '.join(row)[:60]!r} has {counted(len(row), 'number')} where {width} belong"
            raise UserError(count if wrong is None else f"{wrong[:60]!r} is not a number", allowed=allowed)
    return "; ".join(map(" ".join, rows))


def is_number_table(given: str) -> bool:
    """Whether a text names a table in a file."""
    return suffix_of(Path(given)) in (".csv", ".tsv")


def table_rows(file: Path, columns: Sequence[str | int]) -> list[str]:
    """The numbers of each row of a table, in columns by name; or in all columns, where there are no names."""
    check_file(file)
    query = DataQuery((file,), DataKind.ROWS)
    preview = preview_rows(query, file, table_suffix(file))
    bare = preview.width == len(columns) and None not in map(as_number, preview.names or preview.rows[0])
    query = replace(query, columns=tuple(range(1, len(columns) + 1) if bare else columns))
    found = recognise_numbers(query)
    assert found is not None
    rows = list[str]()
    for record in records(found):
        if isinstance(record, Problem):  # none may be bad: what comes next depends on each
            raise record.error(f"see headway check {file}")
        rows.append(record.fields[0])
    return rows


def table_row_names(file: Path, columns: Sequence[str | int]) -> tuple[str, ...]:
    """What the rows of a table are called: the cells of its first column besides these, as of times; () without one."""
    preview = preview_rows(DataQuery((file,), DataKind.ROWS), file, table_suffix(file))
    others = [at for at, name in enumerate(preview.names or ()) if name not in columns]
    if not others:
        return ()
    found = preview.source((others[0],)).read()
    return tuple(record.fields[0] for record in found if isinstance(record, Record))
