"""Tables whose lines name images or sounds and say something about them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from headway.data.archives import on_disk
from headway.data.lines import Line, Problem, What, read_lines
from headway.data.looks import Medium
from headway.data.media import Entry, Spoiled
from headway.data.pools import Pool, named_like
from headway.data.sources import Record, Rewritten, Source

BETWEEN = re.compile(r"[,;\t\r\n\"]")  # what stands around a name in a table or in JSON


@dataclass(frozen=True)
class Beside:
    """A table whose first field names a file in the pool; the others are said about it.

    `strays` says whether a file that no line names is a problem, as it is where this table is the only one.
    """

    table: Source
    pool: Pool
    medium: Medium
    strays: bool = True

    @property
    def files(self) -> tuple[Path, ...]:
        read = [on_disk(file) for file in self.table.files]
        return tuple(dict.fromkeys((*read, *self.pool.files(self.medium))))

    @property
    def columns(self) -> tuple[str | int, ...]:
        return self.table.columns

    def read(self) -> Iterator[Entry | Spoiled]:
        named, nameless = set[str](), 0
        lines = Reread(self.table.files[0])
        for row in self.table.read():
            if isinstance(row, Record):
                name, found = row.fields[0], self.entry(row)
            else:
                name = next(filter(self.pool.place, BETWEEN.split(lines.text(row.line))), "")
                nameless += not name and row.what is not What.EMPTY
                found = Spoiled(row, name)
            named.add(self.pool.identity(name))
            yield found
        if self.strays:
            yield from self.unnamed(named, nameless)

    def entry(self, row: Record) -> Entry | Spoiled:
        name, *texts = row.fields
        place = self.pool.place(name)
        if place is not None:
            return Entry(place, tuple(texts), row.file, row.line)
        return Spoiled(Problem(row.file, row.line, What.MISSING, f"{name!r} is not in {self.pool.path}"), name)

    def unnamed(self, named: set[str], nameless: int) -> Iterator[Spoiled]:
        """Files that no line names, but for one of each line that was told already, and whose name cannot be read."""
        told = f"is named by no line of {self.table.files[0]}"
        strays = (n for n in named_like(self.pool, self.medium) if self.pool.identity(n) not in named)
        for name in islice(strays, nameless, None):
            place = self.pool.place(name)
            problem = Problem(place.path, 0, What.UNNAMED, told) if place else self.pool.lost(name)
            yield Spoiled(problem, name)


class Reread:
    """Lines of a file as they stand there, asked for from its first to its last."""

    def __init__(self, file: Path):
        self.lines, self.last = read_lines(file), Line(0, "")

    def text(self, number: int) -> str:
        while self.last.number < number:
            self.last = next(self.lines, Line(number, ""))
        return self.last.text


@dataclass(frozen=True)
class Grouped(Rewritten[Source]):
    """A table in which all lines that name the same file are one record with several texts, where the first stands.

    A text that cannot be learned from is a record of its own, so that it alone is left out, and its line is told.
    """

    def read(self) -> Iterator[Record | Problem]:
        found: list[tuple[Record | Problem, list[str]]] = []
        texts: dict[str, list[str]] = {}  # of each file
        for row in self.table.read():
            if isinstance(row, Problem):
                found.append((row, []))
                continue
            name, *said = row.fields
            file = posixpath.normpath(name)
            found += [(replace(row, fields=(name, text)), []) for text in said if not learnable(text)]
            if good := [text for text in said if learnable(text)]:
                if file not in texts:
                    found.append((replace(row, fields=(name,)), texts.setdefault(file, [])))
                texts[file] += good
        for row, more in found:
            yield row if isinstance(row, Problem) else replace(row, fields=(*row.fields, *more))

    def side(self, field: int) -> tuple[Path, str]:
        return self.table.side(min(field, 1))


def learnable(text: str) -> bool:
    """Whether a text can stand among others; what is wrong with one is told where records are checked."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # half a surrogate pair
        return False
    return bool(text.strip()) and "\0" not in text
