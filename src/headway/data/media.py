"""Records of images and sounds: files in folders or archives, and what is said about them.

A `Media` source joins two things: entries (where a file is, and its class, captions or transcript) and a medium, which
looks at its bytes.  A record holds the place of a file, never its pixels or samples.  Everything that is given, a file
or a line, is a record or a problem, once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from headway.data.archives import Place
from headway.data.lines import Problem, What
from headway.data.looks import Flaw, Medium, looked
from headway.data.pools import Pool, named_like
from headway.data.sources import Record


@dataclass(frozen=True, slots=True)
class Entry:
    """A file and what is said about it: in a line of another file, or (line 0) by its own name."""

    place: Place
    texts: tuple[str, ...]
    file: Path
    line: int = 0

    @property
    def stem(self) -> str:
        return self.place.path.stem


@dataclass(frozen=True, slots=True)
class Spoiled:
    """A problem and the file that it is about, as far as its name is known."""

    problem: Problem
    name: str = ""

    @property
    def stem(self) -> str:
        return PurePosixPath(self.name).stem


class Entries(Protocol):
    """Where files are named."""

    @property
    def files(self) -> tuple[Path, ...]: ...

    @property
    def columns(self) -> tuple[str | int, ...]: ...

    def read(self) -> Iterator[Entry | Spoiled]: ...


@dataclass(frozen=True)
class Names:
    """Files whose names (without what is behind the last dot) have the pattern in them, or `wanted` no: have it not.

    A problem is with the file that it is about, so that it is on one side only; where no name is known, it is empty.
    """

    pattern: str
    wanted: bool = True

    def hold(self, stem: str) -> bool:
        return bool(re.search(self.pattern, stem)) == self.wanted


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
        for found in self.entries.read():
            if self.wants(found):
                yield found.problem if isinstance(found, Spoiled) else self.record(found)

    def wants(self, found: Entry | Spoiled) -> bool:
        return all(names.hold(found.stem) for names in self.names)

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

    def read(self) -> Iterator[Entry | Spoiled]:
        for name in named_like(self.pool, self.medium):
            place = self.pool.place(name)
            found = self.pool.lost(name) if place is None else self.entry(place, PurePosixPath(name))
            yield Spoiled(found, name) if isinstance(found, Problem) else found

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
