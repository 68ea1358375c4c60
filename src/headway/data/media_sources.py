"""Image and sound files: the folders and archives they are in, probing one, and their records.

A `MediaSource` joins entries (where a file is, and its class, captions or transcript) and a medium, which probes its
bytes.  What is said about a file is the name of its folder, part of its own name, or a line of a table.  A record holds
the location of a file, never its pixels or samples.  Every file and every line is a record or a problem, once.
"""

from __future__ import annotations

import os
import posixpath
import re
from abc import ABC, abstractmethod
from collections.abc import Container, Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import ClassVar, TypeAlias

from headway.data.name_patterns import find, found_text
from headway.data.records import Record, RecordSource
from headway.data.table import grouped_by_file, written_lines
from headway.data.text_lines import (
    MAX_FILE_BYTES,
    REMEDIES,
    Flaw,
    MediaLocation,
    Problem,
    leads_outside,
    members,
    on_disk,
    shown,
)
from headway.errors import UserError

BETWEEN = re.compile(r"[,;\t\r\n\"]")  # what stands around a name in a table or in JSON
MAX_PROBES = 2**16  # that are cached: data is read several times before a training
MAX_FOLDERS, MAX_FILES = 20_000, 5_000_000  # below a folder that is given; more are a disk, not a data set


@dataclass(frozen=True, slots=True)
class MediaProbe:
    """A hash of the contents, and how large these are."""

    content: str
    extent: tuple[int, ...]


@dataclass
class MediaError(Exception):
    """What is wrong, said behind the name of a file: `is truncated`."""

    what: Flaw
    said: str

    def error(self, place: MediaLocation) -> UserError:
        """What is said to somebody who opens a file that has a flaw."""
        allowed, do = REMEDIES[self.what]
        return UserError(f"{shown(place.path)} {self.said}", allowed=allowed, do=do)


class Medium(ABC):
    """Images or sounds, and what one of them may be; a frozen value."""

    noun: str
    suffixes: tuple[str, ...]
    unreadable: ClassVar[Flaw]

    @abstractmethod
    def extent(self, data: bytes) -> tuple[int, ...]:
        """How large an image or a sound is; a MediaError where it cannot be learned from."""

    def probe(self, place: MediaLocation) -> MediaProbe | MediaError:
        """The hash of a file and its extent; or why it cannot be learned from."""
        try:
            if (size := place.bytes) > MAX_FILE_BYTES:
                return MediaError(Flaw.LARGE, f"has {size:,} bytes where {MAX_FILE_BYTES:,} are allowed")
            data = place.read()
            return MediaProbe(blake2b(data, digest_size=16).hexdigest(), self.extent(data))
        except UserError as error:
            return MediaError(self.unreadable, error.said.removeprefix(f"{place.path} "))
        except MediaError as flaw:
            return flaw


def probe(medium: Medium, place: MediaLocation) -> MediaProbe | MediaError:
    """`medium.probe(place)`, done once for a file that has not changed since."""
    try:
        stamp = place.file.stat()
    except OSError:
        return MediaError(Flaw.MISSING, "is gone")
    return cached_probe(medium, place, stamp.st_size, stamp.st_mtime_ns)


@lru_cache(MAX_PROBES)
def cached_probe(medium: Medium, place: MediaLocation, size: int, changed: int) -> MediaProbe | MediaError:
    """The probe of a file of this size that was last changed then."""
    return medium.probe(place)


@dataclass(frozen=True)
class FolderFiles:
    """A folder and all below it; names of files have / between folders."""

    path: Path

    def names(self) -> list[str]:
        return sorted(walked(self.path), key=lambda name: name.split("/"))

    def folders(self) -> list[str]:
        """The folders at its top, also empty ones."""
        return sorted(entry.name for entry in os.scandir(self.path) if entry.is_dir())

    def place(self, name: str) -> MediaLocation | None:
        # os.path says no where Path raises an error: of names that are too long, or have a NUL
        return MediaLocation(self.path / name) if name and os.path.isfile(self.path / name) else None

    def lost(self, name: str) -> Problem:
        """Why one of the names has no location."""
        file = self.path / name
        return Problem(file, 0, Flaw.MISSING, "is a pipe or a device, not a file" if file.exists() else "is gone")

    def identity(self, name: str) -> str:
        """The same text for all ways to write the name of a file; links to one file are several files."""
        above, file = os.path.split(self.path / name)
        try:
            return os.path.join(os.path.realpath(above), file)
        except ValueError:  # a NUL, or half a surrogate pair: no file has such a name
            return name

    def folder(self, name: str) -> FolderFiles:
        return FolderFiles(self.path / name)

    def files(self, medium: Medium) -> tuple[Path, ...]:
        """What is read from the disk."""
        paths = (self.path / name for name in named_like(self, medium.suffixes))
        return tuple(path for path in paths if os.path.isfile(path) and os.access(path, os.R_OK))


@dataclass(frozen=True)
class TarFiles:
    """An archive or a folder in one (set.tar/photos), or its members whose names begin with `within`.

    What their names begin with is then no part of a name.  Members whose names lead outside are always among them.
    """

    path: Path
    within: str = ""

    @property
    def archive(self) -> Path:
        return on_disk(self.path)

    @property
    def start(self) -> str:
        """What names in the archive begin with."""
        above = self.path.relative_to(self.archive).as_posix()
        return self.within if above == "." else f"{above}/{self.within}"

    def names(self) -> list[str]:
        start = self.start
        found = (n for n in members(self.archive) if n.startswith(start) or leads_outside(n))
        return sorted((name.removeprefix(start) for name in found), key=lambda name: PurePosixPath(name).parts)

    def folders(self) -> list[str]:
        """Those that files are in: the index of an archive has no others."""
        return sorted({name.split("/")[0] for name in self.names() if "/" in name and not leads_outside(name)})

    def place(self, name: str) -> MediaLocation | None:
        known = self.identity(name)
        return None if leads_outside(known) else members(self.archive).get(known)

    def lost(self, name: str) -> Problem:
        return Problem(self.archive, 0, Flaw.MISSING, f"{name!r} is a name that leads outside the archive")

    def identity(self, name: str) -> str:
        return name if leads_outside(name) else posixpath.normpath(posixpath.join(self.start, name))

    def folder(self, name: str) -> TarFiles:
        return TarFiles(self.path / self.within / name)

    def files(self, medium: Medium) -> tuple[Path, ...]:
        return (self.archive,)


FileSet: TypeAlias = FolderFiles | TarFiles


def named_like(pool: FileSet, suffixes: Container[str]) -> Iterator[str]:
    """Names of a pool's files with these suffixes; what begins with a dot is the system's own."""
    return (name for name in pool.names() if PurePosixPath(name).suffix.lower() in suffixes and not hidden(name))


def hidden(name: str) -> bool:
    return any(part.startswith(".") and part != ".." for part in PurePosixPath(name).parts)


def walked(top: Path) -> Iterator[str]:
    """Names of all files below a folder; a UserError where that is half a disk.

    Links are followed after all else, and each folder is read once: where it stands itself, not where a link has it.
    """
    do = "give the folder of the data set, or pack its files in a .tar archive"
    if os.path.samefile(top, os.sep):
        raise UserError(f"{top} is the root of the file system", do=do)
    seen, links, count = set[tuple[int, int]](), [top], 0
    while links:
        for above, folders, files in os.walk(links.pop(0)):
            stamp = os.stat(above)
            if (stamp.st_dev, stamp.st_ino) in seen:
                folders.clear()
                continue
            seen.add((stamp.st_dev, stamp.st_ino))
            count += len(files)
            if len(seen) > MAX_FOLDERS or count > MAX_FILES:
                raise UserError(f"{top} holds more than {MAX_FOLDERS:,} folders or {MAX_FILES:,} files", do=do)
            folders.sort()  # so that of several links to a folder the same is always the first
            links += [Path(above, folder) for folder in folders if is_link_elsewhere(above, folder)]
            within = Path(above).relative_to(top).as_posix()
            yield from (files if within == "." else [f"{within}/{file}" for file in files])


def is_link_elsewhere(above: str, folder: str) -> bool:
    """Whether a folder is a link, and not to one that it is in."""
    path = Path(above, folder)
    return path.is_symlink() and not Path(os.path.realpath(above)).is_relative_to(os.path.realpath(path))


@dataclass(frozen=True, slots=True)
class MediaEntry:
    """A file and what is said about it: in a line of another file, or (line 0) by its own name."""

    place: MediaLocation
    texts: tuple[str, ...]
    file: Path
    line: int = 0

    @property
    def stem(self) -> str:
        return self.place.path.stem


@dataclass(frozen=True, slots=True)
class BadEntry:
    """A problem and the file that it is about, as far as its name is known."""

    problem: Problem
    name: str = ""

    @property
    def stem(self) -> str:
        return PurePosixPath(self.name).stem


@dataclass(frozen=True)
class MediaSource(RecordSource):
    """The files of a medium in a folder or archive, with what is said about each.

    `names` are patterns that the name of a file, without its last suffix, must have in it, or (False) must not.  A
    problem is with the file that it is about, so that it is on one side only; where no name is known, it is empty.
    """

    pool: FileSet
    medium: Medium
    said: str = "class"  # what the texts are
    names: tuple[tuple[str, bool], ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        return self.pool.files(self.medium)

    def read(self) -> Iterator[Record | Problem]:
        for found in self.wanted():
            yield found.problem if isinstance(found, BadEntry) else self.record(found)

    def wanted(self) -> Iterator[MediaEntry | BadEntry]:
        """The entries that no pattern leaves out; no file is opened."""
        for found in self.entries():
            if all(bool(find(re.search, pattern, found.stem)) == wanted for pattern, wanted in self.names):
                yield found

    def good_entries(self) -> Iterator[MediaEntry]:
        return (found for found in self.wanted() if isinstance(found, MediaEntry))

    @abstractmethod
    def entries(self) -> Iterator[MediaEntry | BadEntry]: ...

    def record(self, entry: MediaEntry) -> Record | Problem:
        seen = probe(self.medium, entry.place)
        if isinstance(seen, MediaError):
            said = f"{entry.place.path} {seen.said}" if entry.line else seen.said
            return Problem(entry.file, entry.line, seen.what, said)
        fields = (seen.content, *entry.texts)
        return Record(fields, entry.file, entry.line, place=entry.place, extent=seen.extent)

    def field_name(self, field: int) -> str:
        return f"the {self.said if field else self.medium.noun}"


@dataclass(frozen=True)
class UnlabelledFiles(MediaSource):
    """All files, of which nothing is said; subclasses say something by the name of each."""

    def entries(self) -> Iterator[MediaEntry | BadEntry]:
        for name in named_like(self.pool, self.medium.suffixes):
            place, texts = self.pool.place(name), self.texts(PurePosixPath(name))
            if place is None:
                yield BadEntry(self.pool.lost(name), name)
            elif isinstance(texts, str):
                yield BadEntry(Problem(place.path, 0, Flaw.UNNAMED, texts), name)
            else:
                yield MediaEntry(place, texts, place.path)

    def texts(self, name: PurePosixPath) -> tuple[str, ...] | str:
        """What a name says about its file; or a sentence, why it says nothing."""
        return ()


@dataclass(frozen=True)
class ClassFolders(UnlabelledFiles):
    """The folder that a file is in, within the pool, is its class."""

    def texts(self, name: PurePosixPath) -> tuple[str, ...] | str:
        return name.parts[:1] if len(name.parts) > 1 else f"is in no class folder of {self.pool.path}"


@dataclass(frozen=True, kw_only=True)
class LabelFromName(UnlabelledFiles):
    """What is found in a file's name is its class, or its transcript, in which _ stands for a space.

    The name is read without what is behind its last dot; groups of the pattern are joined by spaces.
    """

    pattern: str
    spaced: bool = False

    def texts(self, name: PurePosixPath) -> tuple[str, ...] | str:
        found = find(re.match, self.pattern, name.stem)
        if not found:
            return f"has a name in which {self.pattern!r} finds nothing"
        text = found_text(found)
        return (" ".join(text.replace("_", " ").split()) if self.spaced else text,)


@dataclass(frozen=True, kw_only=True)
class MediaTable(MediaSource):
    """A table whose first field names a file in the pool; the others are said about it.

    `strays` says whether a file that no line names is a problem, as it is where this table is the only one.  Where
    `grouped`, all lines that name the same file are one record.
    """

    table: RecordSource
    strays: bool = True
    grouped: bool = False

    @property
    def files(self) -> tuple[Path, ...]:
        read = [on_disk(file) for file in self.table.files]
        return tuple(dict.fromkeys((*read, *self.pool.files(self.medium))))

    @property
    def columns(self) -> tuple[str | int, ...]:
        return self.table.columns

    def column(self, name: str) -> RecordSource | None:
        return self.table.column(name)

    def entries(self) -> Iterator[MediaEntry | BadEntry]:
        named, nameless = set[str](), 0
        file = self.table.files[0]
        lines = written_lines(file)
        for row in grouped_by_file(self.table.read()) if self.grouped else self.table.read():
            if isinstance(row, Record):
                name, *texts = row.fields
                if place := self.pool.place(name):
                    yield MediaEntry(place, tuple(texts), row.file, row.line)
                else:
                    said = f"{name!r} is not in {self.pool.path}"
                    yield BadEntry(Problem(row.file, row.line, Flaw.MISSING, said), name)
            else:
                text = next((line.text for line in lines if line.number == row.line), "")
                name = next(filter(self.pool.place, BETWEEN.split(text)), "")
                nameless += not name and row.what is not Flaw.EMPTY
                yield BadEntry(row, name)
            named.add(self.pool.identity(name))
        if self.strays:  # less one for each bad line whose name cannot be read
            strays = (n for n in named_like(self.pool, self.medium.suffixes) if self.pool.identity(n) not in named)
            for name in islice(strays, nameless, None):
                place, said = self.pool.place(name), f"is named by no line of {file}"
                yield BadEntry(Problem(place.path, 0, Flaw.UNNAMED, said) if place else self.pool.lost(name), name)
