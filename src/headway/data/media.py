"""Records of images and sounds: files in folders or archives, and what is said about them.

A `Media` source joins two things: entries (where a file is, and its class, captions or transcript) and a medium, which
looks at its bytes.  A record holds the place of a file, never its pixels or samples.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Protocol

from headway.data.archives import Place
from headway.data.lines import Problem, What
from headway.data.looks import Flaw, Medium, looked
from headway.data.pools import Pool, named_like
from headway.data.sources import Record, Rewritten, Source


@dataclass(frozen=True, slots=True)
class Entry:
    """A file and what is said about it: in a line of another file, or (line 0) by its own name."""

    place: Place
    texts: tuple[str, ...]
    file: Path
    line: int = 0


class Entries(Protocol):
    """Where files are named."""

    @property
    def files(self) -> tuple[Path, ...]: ...

    @property
    def columns(self) -> tuple[str | int, ...]: ...

    def read(self) -> Iterator[Entry | Problem]: ...


@dataclass(frozen=True)
class Names:
    """Files whose names (without what is behind the last dot) have the pattern in them, or `wanted` no: have it not."""

    pattern: str
    wanted: bool = True

    def hold(self, place: Place) -> bool:
        return bool(re.search(self.pattern, place.path.stem)) == self.wanted


@dataclass(frozen=True)
class Media:
    """Entries that were looked at; each of `names` leaves out others."""

    medium: Medium
    entries: Entries
    names: tuple[Names, ...] = ()
    told: str = "class"  # what the texts are

    @property
    def files(self) -> tuple[Path, ...]:
        return self.entries.files

    @property
    def columns(self) -> tuple[str | int, ...]:
        return self.entries.columns

    def read(self) -> Iterator[Record | Problem]:
        for entry in self.entries.read():
            if isinstance(entry, Problem):
                yield entry
            elif self.wants(entry):
                yield self.record(entry)

    def wants(self, entry: Entry) -> bool:
        return all(names.hold(entry.place) for names in self.names)

    def record(self, entry: Entry) -> Record | Problem:
        seen = looked(self.medium, entry.place)
        if isinstance(seen, Flaw):
            said = f"{entry.place.path} {seen.said}" if entry.line else seen.said
            return Problem(entry.file, entry.line, seen.what, said)
        fields = (seen.content, *entry.texts)
        return Record(fields, entry.file, entry.line, place=entry.place, extent=seen.extent)

    def side(self, field: int) -> tuple[Path, str]:
        return self.files[0], f"the {self.told if field else self.medium.noun}"


@dataclass(frozen=True)
class Nameless:
    """All files of a medium in a pool, of which nothing is said; others say something by the name of each."""

    pool: Pool
    medium: Medium

    @property
    def files(self) -> tuple[Path, ...]:
        return self.pool.files(self.medium)

    @property
    def columns(self) -> tuple[str | int, ...]:
        return ()

    def read(self) -> Iterator[Entry | Problem]:
        for name in named_like(self.pool, self.medium):
            place = self.pool.place(name)
            if place is None:
                yield Problem(self.pool.path / name, 0, What.MISSING, "is gone")
            else:
                yield self.entry(place, PurePosixPath(name))

    def entry(self, place: Place, name: PurePosixPath) -> Entry | Problem:
        return Entry(place, (), place.path)


@dataclass(frozen=True)
class ClassFolders(Nameless):
    """The folder that a file is in, within the pool, is its class."""

    def entry(self, place: Place, name: PurePosixPath) -> Entry | Problem:
        if folder := name.parts[:-1]:
            return Entry(place, folder[:1], place.path)
        return Problem(place.path, 0, What.UNNAMED, f"is in no class folder of {self.pool.path}")


@dataclass(frozen=True)
class ByName(Nameless):
    """What is found in a file's name is its class, or its transcript, in which _ stands for a space.

    The name is read without what is behind its last dot; groups of the pattern are joined by spaces.
    """

    pattern: str
    spaced: bool = False

    def entry(self, place: Place, name: PurePosixPath) -> Entry | Problem:
        text = self.text(name.stem)
        if text is not None:
            return Entry(place, (text,), place.path)
        return Problem(place.path, 0, What.UNNAMED, f"has a name in which {self.pattern!r} finds nothing")

    def text(self, stem: str) -> str | None:
        found = re.match(self.pattern, stem)
        if not found:
            return None
        text = " ".join(part for part in found.groups() if part) if found.re.groups else found[0]
        return " ".join(text.replace("_", " ").split()) if self.spaced else text


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
        return (*self.table.files, *self.pool.files(self.medium))

    @property
    def columns(self) -> tuple[str | int, ...]:
        return self.table.columns

    def read(self) -> Iterator[Entry | Problem]:
        named = set[str]()
        for row in self.table.read():
            if isinstance(row, Problem):
                yield row
                continue
            name, *texts = row.fields
            named.add(str(PurePosixPath(name)))
            place = self.pool.place(name)
            if place is None:
                yield Problem(row.file, row.line, What.MISSING, f"{name!r} is not in {self.pool.path}")
            else:
                yield Entry(place, tuple(texts), row.file, row.line)
        if self.strays:
            told = f"is named by no line of {self.table.files[0]}"
            for name in named_like(self.pool, self.medium):
                if name not in named:
                    yield Problem(self.pool.path / name, 0, What.UNNAMED, told)


@dataclass(frozen=True)
class Grouped(Rewritten[Source]):
    """A table in which lines that follow one another and name the same file are one record with several texts."""

    def read(self) -> Iterator[Record | Problem]:
        def named(found: Record | Problem) -> str | int:
            return found.fields[0] if isinstance(found, Record) else found.line

        for _, group in groupby(self.table.read(), named):
            first, *others = group
            if isinstance(first, Problem):
                yield first
            else:
                texts = (text for one in others if isinstance(one, Record) for text in one.fields[1:])
                yield replace(first, fields=(*first.fields, *texts))

    def side(self, field: int) -> tuple[Path, str]:
        return self.table.side(min(field, 1))
