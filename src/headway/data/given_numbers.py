"""Numbers that a person hands to a model: as they are typed, or the rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headway.data.given import Asked
from headway.data.kinds import Kind
from headway.data.lines import Problem, check_file, suffix_of
from headway.data.numbers import number_in
from headway.data.recognise_numbers import recognise_numbers
from headway.data.records import records
from headway.errors import UserError

TYPED = "numbers apart by spaces, vectors by semicolons, as in 0.5 1; 2 3"
TABLES = (".csv", ".tsv")


def numbers_of(given: str, columns: Sequence[str | int] | None, width: int) -> str:
    """Vectors of `width` numbers as a text; a model that knows its columns by name reads these of a table."""
    path = Path(given)
    if columns is not None and suffix_of(path) in TABLES:
        return "; ".join(rows_of(path, columns))
    for row in given.split(";"):
        if len(row.split()) != width or None in map(number_in, row.split()):
            allowed = TYPED if columns is None else f"{TYPED}; or a table, as .csv or .tsv"
            raise UserError(f"{row.strip()[:60]!r} is no vector of {width} numbers", allowed=allowed)
    return given


def rows_of(path: Path, columns: Sequence[str | int]) -> list[str]:
    """All rows of a table, of which none may be amiss: what comes next depends on each."""
    check_file(path)
    found = recognise_numbers(Asked((path,), Kind.FORECAST, tuple(columns)))
    assert found is not None
    rows = list[str]()
    for record in records(found):
        if isinstance(record, Problem):
            raise UserError(str(record), do=f"see headway check {path} --task forecast")
        rows.append(record.fields[0])
    return rows
