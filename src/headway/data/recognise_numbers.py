"""Numbers that a person hands over: tables with columns of numbers, and lines of JSON with lists of vectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headway.data.given import Asked, Given, goal
from headway.data.heads import BESIDES, LABEL, Head, read_head, sample, words
from headway.data.kinds import NUMERIC, Kind
from headway.data.lines import line_count, suffix_of
from headway.data.numbers import Forecast, Series, Sets, number_in, vectors_in
from headway.data.sources import Table, counted, read_objects
from headway.errors import UserError, listed

MOST = 0.9  # of the values under a key of JSON that are to be lists of numbers
HALF = 0.5  # of the values in a column that are to be numbers: a column of texts has hardly any
FEW = 3  # columns of numbers that are taken for such without being asked or a time: two may be a pair of texts
LABELS = LABEL | {"target", "y"}
TIME = words("date time timestamp datetime day month year hour")


def recognise_numbers(asked: Asked) -> Given | None:
    """Series, sets or rows over time; None where something else was handed over."""
    if asked.kind not in {None, *NUMERIC} or not all(path.is_file() for path in asked.paths):
        return None
    suffixes = {suffix_of(path) for path in asked.paths}
    if suffixes == {".jsonl"} and asked.kind in (None, Kind.SETS):
        return sets(asked)
    if suffixes <= {".csv", ".tsv"} and asked.kind is not Kind.SETS:
        return rows(asked)
    return None


def rows(asked: Asked) -> Given | None:
    """Tables of numbers; a label makes each row a record, without one they are moments."""
    sources: list[Series | Forecast] = []
    lines, kind = 0, asked.kind
    for file in asked.paths:
        head = headed(read_head(file, suffix_of(file), asked.columns))
        chosen = columns_of(head, asked, kind)
        if chosen is None:
            return None
        kind, columns = chosen
        assert head.dialect is not None
        table = Table(file, head.dialect, head.width, columns, head.names)
        sources.append(Series(table) if kind is Kind.SERIES else Forecast(table))
        lines += line_count(file) - (head.names is not None)
    assert kind is not None
    wide = len(sources[0].table.chosen) - (kind is Kind.SERIES)
    label = " and a label" if kind is Kind.SERIES else ""
    said = f"{counted(lines, 'line')} of {counted(wide, 'number')}{label}, {goal(kind)}"
    return Given(kind, tuple(sources), f"{listed(map(str, asked.paths), 3)}: {said}")


def columns_of(head: Head, asked: Asked, kind: Kind | None) -> tuple[Kind, tuple[int, ...]] | None:
    """Series or rows over time, and the columns: those of numbers, then that of the label."""
    columns = tuple(head.find(column) for column in asked.columns) or tuple(
        at for at in range(head.width) if head.name(at) not in BESIDES | TIME
    )
    if kind is Kind.FORECAST and asked.columns:
        return kind, columns
    timed = any(head.name(at) in TIME for at in range(head.width))
    label = [] if kind is Kind.FORECAST else labels_in(head, columns, kind, timed)
    numbers = tuple(at for at in columns if at not in label[:1] and numeric(head, at))
    enough = len(numbers) >= (FEW if kind is None and not timed else 1)
    if enough and len(label) < 2 and len(numbers) + len(label) == len(columns):
        return (Kind.SERIES, (*numbers, *label)) if label else (Kind.FORECAST, numbers)
    if kind is None:
        return None
    raise UserError(f"{head.file} has other columns than of numbers and one label", do="choose some with --columns")


def labels_in(head: Head, columns: Sequence[int], kind: Kind | None, timed: bool) -> list[int]:
    """Columns that look like a label: by their names, by having no numbers, or by being the last of a series."""
    named = [at for at in columns if head.name(at) in LABELS]
    if timed and kind is None:
        named = [at for at in named if not numeric(head, at)]  # beside a time, y is a number like the others
    found = named or [at for at in columns if not numeric(head, at)]
    return found or ([columns[-1]] if kind is Kind.SERIES else [])


def headed(head: Head) -> Head:
    """A table whose first row has no number where all others have some has a header."""
    if head.names is not None or len(head.rows) < 2:
        return head
    rest = Head(head.file, head.rows[0], head.rows[1:], head.dialect)
    numbers = [at for at in range(head.width) if numeric(rest, at)]
    is_header = numbers and all(number_in(head.rows[0][at]) is None for at in numbers)
    return rest if is_header else head


def numeric(head: Head, column: int) -> bool:
    values = head.values(column)
    return sum(number_in(value) is not None for value in values) > HALF * len(values)


def sets(asked: Asked) -> Given | None:
    """Lines of JSON, of which one key has lists of vectors and another the label."""
    sources: list[Sets] = []
    for file in asked.paths:
        objects = [value for _, value in sample(read_objects(file), file)]
        found = keys_of(objects, asked.columns, file, asked.kind)
        if found is None:
            return None
        sources.append(found)
    lines = counted(sum(line_count(file) for file in asked.paths), "line")
    said = f"{lines} of sets of vectors of {counted(sources[0].width, 'number')} and a label, {goal(Kind.SETS)}"
    return Given(Kind.SETS, tuple(sources), f"{listed(map(str, asked.paths), 3)}: {said}")


def keys_of(
    objects: Sequence[dict[str, Any]], columns: Sequence[str | int], file: Path, kind: Kind | None
) -> Sets | None:
    keys = [str(key) for key in columns] or list(dict.fromkeys(key for value in objects for key in value))
    lists = [key for key in keys if sum(vectors_in(one.get(key)) is not None for one in objects) >= MOST * len(objects)]
    nested = [key for key in lists if any(is_nested(one.get(key)) for one in objects)]
    chosen = lists if kind is Kind.SETS else nested  # a flat list of numbers may be tags
    others = [key for key in keys if any(isinstance(one.get(key), str | int) for one in objects)]
    labels = [key for key in others if key.casefold() in LABELS] or [k for k in others if k.casefold() not in BESIDES]
    if not chosen or (kind is None and not labels):
        return None
    if len(chosen) > 1 or len(labels) != 1:
        said = f"{file}: nothing says which of {listed(keys)} are the vectors and which the label"
        raise UserError(said, do=f"choose two, as in --columns {chosen[0]},{(labels or ['label'])[0]}")
    widths = Counter(len(row) for one in objects for row in vectors_in(one.get(chosen[0])) or ())
    return Sets(file, chosen[0], labels[0], widths.most_common(1)[0][0] if widths else 1)


def is_nested(value: Any) -> bool:
    """Whether a value of JSON is a list in which others stand."""
    return isinstance(value, list) and any(isinstance(row, list) for row in value)
