"""Tables: rows of cells in lines of text, and objects in lines of JSON, as records.

A .tsv file has no quotes: a sentence in it may begin with one.  In a .csv file (RFC 4180) a quoted cell may hold the
separator, line ends and doubled quotes; a quote inside an unquoted cell is a character like any other.  After broken
quotes reading resumes at the line after the one where the row began.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from headway.data.records import FileSource, Record, RecordSource
from headway.data.text_lines import Flaw, Problem, TextLine, read_lines, without_last_blanks
from headway.errors import counted

MAX_QUOTED_LINES = 1000  # lines of a quoted cell: an unclosed quote takes no more with it
SEPARATORS = (",", ";", "\t")
LONE_CR, STAND_IN = re.compile(r"\r(?!\n)"), "\ufdd0"  # a noncharacter of Unicode: no text has it

csv.field_size_limit(2**31 - 1)  # lines are bounded where they are read


@dataclass(frozen=True, slots=True)
class TableRow:
    """The cells of a row that begins at `line`."""

    line: int
    cells: tuple[str, ...]


class Dialect(Protocol):
    """How a line is split into cells."""

    def rows(self, file: Path) -> Iterator[TableRow | Problem]: ...


@dataclass(frozen=True)
class TabSeparated:
    """Cells between separators, without quotes."""

    separator: str = "\t"

    def rows(self, file: Path) -> Iterator[TableRow | Problem]:
        for line in without_last_blanks(read_lines(file)):
            yield line.problem or TableRow(line.number, tuple(line.bare.split(self.separator)))


@dataclass(frozen=True)
class Quoted:
    """RFC 4180 with any separator."""

    separator: str = ","

    def rows(self, file: Path) -> Iterator[TableRow | Problem]:
        lines = PushBack(without_last_blanks(read_lines(file)))
        for line in lines:
            taken = [line]
            cells = self.cells(taken, lines) if '"' in line.text else line.bare.split(self.separator)
            if cells is None:
                lines.push_back(taken[1:])
                said = "a cell begins with a quote that nothing closes before a separator or the end of a line"
                yield line.problem or Problem(file, line.number, Flaw.QUOTES, said)
            else:
                yield next((part.problem for part in taken if part.problem), TableRow(line.number, tuple(cells)))

    def cells(self, taken: list[TextLine], lines: Iterator[TextLine]) -> list[str] | None:
        """The cells of a row; None where its quotes are broken.  Lines that it needs are added to `taken`."""

        def texts() -> Iterator[str]:
            # csv ends a row at \r; here that is a character, unless \n follows
            yield LONE_CR.sub(STAND_IN, taken[0].text)
            for line in islice(lines, MAX_QUOTED_LINES):
                taken.append(line)
                yield LONE_CR.sub(STAND_IN, line.text)

        try:
            cells = next(csv.reader(texts(), delimiter=self.separator, strict=True))
        except csv.Error:
            return None
        return [cell.replace(STAND_IN, "\r") for cell in cells]


class PushBack:
    """Lines of which some may be put back."""

    def __init__(self, lines: Iterator[TextLine]):
        self.lines, self.waiting = lines, deque[TextLine]()

    def __iter__(self) -> Iterator[TextLine]:
        return self

    def __next__(self) -> TextLine:
        return self.waiting.popleft() if self.waiting else next(self.lines)

    def push_back(self, lines: list[TextLine]) -> None:
        self.waiting.extendleft(reversed(lines))


def sniff(file: Path, rows: int = 200) -> Quoted:
    """The separator by which most of the first rows have the same number of columns, more than one."""

    def agreement(separator: str) -> float:
        found = [len(row.cells) for row in islice(Quoted(separator).rows(file), rows) if isinstance(row, TableRow)]
        (width, share), *_ = Counter(found).most_common(1) or [(1, 0)]
        return share / max(len(found), 1) if width > 1 else 0.0

    return Quoted(max(SEPARATORS, key=agreement))


@dataclass(frozen=True)
class Table(FileSource):
    """Columns `chosen` (from 0) of a table that is `width` columns wide; `names` are those of its header."""

    dialect: Dialect
    width: int
    chosen: tuple[int, ...]
    names: tuple[str, ...] | None = None

    @property
    def columns(self) -> tuple[str | int, ...]:
        return tuple(self.names[at] if self.names else at + 1 for at in self.chosen)

    def read(self) -> Iterator[Record | Problem]:
        for row in self.dialect.rows(self.file):
            if isinstance(row, Problem):
                yield row
            elif self.names and row.line == 1:
                continue
            elif len(row.cells) == self.width:
                yield Record(tuple(row.cells[at] for at in self.chosen), self.file, row.line)
            elif row.cells == ("",):
                yield Problem(self.file, row.line, Flaw.EMPTY, "a blank line")
            else:
                said = f"{counted(len(row.cells), 'column')} where the file has {self.width}"
                yield Problem(self.file, row.line, Flaw.COLUMNS, said)

    def side(self, field: int) -> tuple[Path, str]:
        at = self.chosen[field]
        return self.file, f"column {at + 1} ({self.names[at]})" if self.names else f"column {at + 1}"


T = TypeVar("T", bound=RecordSource)


@dataclass(frozen=True)
class Rewritten(RecordSource, Generic[T]):
    """The rows of a table, read as something else."""

    table: T

    @property
    def files(self) -> tuple[Path, ...]:
        return self.table.files

    @property
    def columns(self) -> tuple[str | int, ...]:
        return self.table.columns


@dataclass(frozen=True)
class JsonLines(FileSource):
    """Values of the chosen keys of an object on each line: texts, or what a subclass reads."""

    keys: tuple[str, ...]

    @property
    def columns(self) -> tuple[str | int, ...]:
        return self.keys

    def read(self) -> Iterator[Record | Problem]:
        for found in read_objects(self.file):
            yield found if isinstance(found, Problem) else self.record(*found)

    def record(self, line: int, value: dict[str, Any]) -> Record | Problem:
        for key in self.keys:
            if value.get(key) is None:
                said = f"{key!r} is null" if key in value else f"no {key!r} among its keys"
                return Problem(self.file, line, Flaw.KEY, said)
        fields = self.fields(line, value)
        return fields if isinstance(fields, Problem) else Record(fields, self.file, line)

    def fields(self, line: int, value: dict[str, Any]) -> tuple[str, ...] | Problem:
        texts = {key: as_text(value[key]) for key in self.keys}
        for key, text in texts.items():
            if text is None:
                said = f"{key!r} is {shortened(value[key])}, not a text, a whole number or a list of words"
                return Problem(self.file, line, Flaw.VALUE, said)
        return tuple(text for text in texts.values() if text is not None)

    def side(self, field: int) -> tuple[Path, str]:
        return self.file, repr(self.keys[min(field, len(self.keys) - 1)])


def read_objects(file: Path) -> Iterator[tuple[int, dict[str, Any]] | Problem]:
    """The objects of a file of JSON lines, with their line numbers."""
    for line in without_last_blanks(read_lines(file)):
        yield line.problem or read_object(line, file)


def read_object(line: TextLine, file: Path) -> tuple[int, dict[str, Any]] | Problem:
    if not line.bare:
        return Problem(file, line.number, Flaw.EMPTY, "a blank line")
    try:
        value = json.loads(line.text, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        said = str(error).partition(": line ")[0]
        at = f" at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else ""
        return Problem(file, line.number, Flaw.JSON, f"not JSON: {said or 'nested too deeply'}{at}")
    if not isinstance(value, dict):
        return Problem(file, line.number, Flaw.JSON, f"{shortened(value)} is no JSON object")
    return line.number, value


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice")
    return found


def as_text(value: object) -> str | None:
    """A text as it is, a whole number or a boolean as JSON writes them, words of a list joined by spaces."""
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return json.dumps(value)
    if isinstance(value, list) and all(is_word(word) for word in value):
        return " ".join(str(word) for word in value)
    return None


def is_word(value: object) -> bool:
    return isinstance(value, int) or (isinstance(value, str) and value.split() == [value])


def shortened(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else f"{text[:39]}…"
