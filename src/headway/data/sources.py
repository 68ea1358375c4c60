"""Where records come from: tables, lines of JSON, two parallel files, files of text.  All are read as a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from headway.data.archives import Place
from headway.data.documents import read_document
from headway.data.lines import Line, Problem, What, read_lines, without_last_blanks
from headway.data.tables import Dialect


@dataclass(frozen=True, slots=True)
class Record:
    """What one line says, or one row, or a piece of a document that goes on from the piece before it.

    Of an image or a sound the first field is a hash of its contents, `place` is where these are, and `extent` how large
    it is: height and width, or samples and their rate.
    """

    fields: tuple[str, ...]
    file: Path
    line: int
    goes_on: bool = False
    place: Place | None = None
    extent: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """What a person knows it by: its text, or the name of its file."""
        return self.fields[0] if self.place is None else str(self.place.path)

    @property
    def handed(self) -> tuple[str, ...]:
        """What a task is handed: the fields, and of an image or a sound its place and extent instead of the hash."""
        if self.place is None:
            return self.fields
        return (self.place.spelled(), " ".join(map(str, self.extent)), *self.fields[1:])


class Source(Protocol):
    """Records in one place."""

    @property
    def files(self) -> tuple[Path, ...]: ...

    @property
    def columns(self) -> tuple[str | int, ...]:
        """Names of columns, or their numbers from 1; none where a file has no columns."""
        ...

    def read(self) -> Iterator[Record | Problem]: ...

    def side(self, field: int) -> tuple[Path, str]:
        """The file of a field and what a person calls it."""
        ...


@dataclass(frozen=True)
class Table:
    """Columns `chosen` (from 0) of a table that is `width` columns wide; `names` are those of its header."""

    file: Path
    dialect: Dialect
    width: int
    chosen: tuple[int, ...]
    names: tuple[str, ...] | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.file,)

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
                yield Problem(self.file, row.line, What.EMPTY, "a blank line")
            else:
                said = f"{counted(len(row.cells), 'column')} where the file has {self.width}"
                yield Problem(self.file, row.line, What.COLUMNS, said)

    def side(self, field: int) -> tuple[Path, str]:
        at = self.chosen[field]
        return self.file, f"column {at + 1} ({self.names[at]})" if self.names else f"column {at + 1}"


T = TypeVar("T", bound=Source)


@dataclass(frozen=True)
class Rewritten(Generic[T]):
    """The rows of a table, read as something else."""

    table: T

    @property
    def files(self) -> tuple[Path, ...]:
        return self.table.files

    @property
    def columns(self) -> tuple[str | int, ...]:
        return self.table.columns


@dataclass(frozen=True)
class JsonLines:
    """Values of the chosen keys of an object on each line."""

    file: Path
    keys: tuple[str, ...]

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.file,)

    @property
    def columns(self) -> tuple[str | int, ...]:
        return self.keys

    def read(self) -> Iterator[Record | Problem]:
        for found in read_objects(self.file):
            yield found if isinstance(found, Problem) else self.record(*found)

    def record(self, line: int, value: dict[str, Any]) -> Record | Problem:
        missing = [key for key in self.keys if value.get(key) is None]
        if missing:
            said = f"{missing[0]!r} is null" if missing[0] in value else f"no {missing[0]!r} among its keys"
            return Problem(self.file, line, What.KEY, said)
        texts = [as_text(value[key]) for key in self.keys]
        for key, text in zip(self.keys, texts, strict=True):
            if text is None:
                said = f"{key!r} is {shortened(value[key])}, not a text, a whole number or a list of words"
                return Problem(self.file, line, What.VALUE, said)
        return Record(tuple(text for text in texts if text is not None), self.file, line)

    def side(self, field: int) -> tuple[Path, str]:
        return self.file, repr(self.keys[field])


@dataclass(frozen=True)
class Parallel:
    """Two files whose lines belong together."""

    source: Path
    target: Path

    @property
    def files(self) -> tuple[Path, ...]:
        return self.source, self.target

    @property
    def columns(self) -> tuple[str | int, ...]:
        return ()

    def read(self) -> Iterator[Record | Problem]:
        pairs = zip_longest(read_lines(self.source), read_lines(self.target))
        for left, right in pairs:
            problem = (left and left.problem) or (right and right.problem)
            if problem:
                yield problem
                if problem.what is What.BROKEN:
                    return
            elif left and right:
                yield Record((left.bare, right.bare), self.source, left.number)
            else:
                yield self.unequal(left, right, rest=sum(1 for _ in pairs))

    def unequal(self, left: Line | None, right: Line | None, rest: int) -> Problem:
        longer, other, line = (self.source, self.target, left) if left else (self.target, self.source, right)
        assert line is not None
        said = f"{counted(rest + 1, 'line')} more than {other} has ({line.number - 1:,})"
        return Problem(longer, line.number, What.UNPAIRED, said, lines=rest + 1)

    def side(self, field: int) -> tuple[Path, str]:
        return self.files[field], ("the source", "the target")[field]


@dataclass(frozen=True)
class Document:
    """A file that is one text; it begins with the first piece that is not blank."""

    file: Path

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.file,)

    @property
    def columns(self) -> tuple[str | int, ...]:
        return ()

    def read(self) -> Iterator[Record | Problem]:
        begun = False
        for piece in read_document(self.file):
            if isinstance(piece, Problem):
                yield piece
            elif begun or not piece[1].isspace():
                yield Record((piece[1],), self.file, piece[0], goes_on=begun)
                begun = True
        if not begun:
            yield Problem(self.file, 1, What.EMPTY, "no text in this file")

    def side(self, field: int) -> tuple[Path, str]:
        return self.file, "the text"


def read_objects(file: Path) -> Iterator[tuple[int, dict[str, Any]] | Problem]:
    """The objects of a file of JSON lines, with their line numbers."""
    for line in without_last_blanks(read_lines(file)):
        yield line.problem or read_object(line, file)


def read_object(line: Line, file: Path) -> tuple[int, dict[str, Any]] | Problem:
    if not line.bare:
        return Problem(file, line.number, What.EMPTY, "a blank line")
    try:
        value = json.loads(line.text, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        said = str(error).partition(": line ")[0]
        at = f" at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else ""
        return Problem(file, line.number, What.JSON, f"not JSON: {said or 'nested too deeply'}{at}")
    if not isinstance(value, dict):
        return Problem(file, line.number, What.JSON, f"{shortened(value)} is no JSON object")
    return line.number, value


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands there twice")
    return found


def as_text(value: object) -> str | None:
    """A text as it is, a whole number or yes and no as JSON writes them, words of a list joined by spaces."""
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


def counted(number: int, noun: str) -> str:
    """1 line, 2 lines"""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
