"""Where many files are: a folder, or an archive that is read in place."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from headway.data.archives import Place, leads_outside, members, on_disk
from headway.data.lines import Problem, What
from headway.data.looks import Medium


class Pool(Protocol):
    """Where files are: their names with / between folders, in order."""

    @property
    def path(self) -> Path: ...

    def names(self) -> list[str]: ...

    def folders(self) -> list[str]:
        """The folders at its top, also those in which nothing is."""
        ...

    def place(self, name: str) -> Place | None: ...

    def lost(self, name: str) -> Problem:
        """Why one of the names has no place."""
        ...

    def identity(self, name: str) -> str:
        """The same text for all ways to write the name of a file."""
        ...

    def folder(self, name: str) -> Pool: ...

    def files(self, medium: Medium) -> tuple[Path, ...]:
        """What is read from the disk."""
        ...


@dataclass(frozen=True)
class Folder:
    path: Path

    def names(self) -> list[str]:
        return sorted(walked(self.path), key=lambda name: name.split("/"))

    def folders(self) -> list[str]:
        return sorted(entry.name for entry in os.scandir(self.path) if entry.is_dir())

    def place(self, name: str) -> Place | None:
        # os.path says no where Path raises an error: of names that are too long, or have a NUL
        return Place(self.path / name) if name and os.path.isfile(self.path / name) else None

    def lost(self, name: str) -> Problem:
        file = self.path / name
        return Problem(file, 0, What.MISSING, "is a pipe or a device, not a file" if file.exists() else "is gone")

    def identity(self, name: str) -> str:
        """Its folder is looked up, the file itself is not: links to one file are several."""
        above, file = os.path.split(self.path / name)
        try:
            return os.path.join(os.path.realpath(above), file)
        except ValueError:  # a NUL, or half a surrogate pair: no file has such a name
            return name

    def folder(self, name: str) -> Pool:
        return Folder(self.path / name)

    def files(self, medium: Medium) -> tuple[Path, ...]:
        paths = (self.path / name for name in named_like(self, medium))
        return tuple(path for path in paths if os.path.isfile(path) and os.access(path, os.R_OK))


@dataclass(frozen=True)
class Tar:
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

    def place(self, name: str) -> Place | None:
        known = self.identity(name)
        return None if leads_outside(known) else members(self.archive).get(known)

    def lost(self, name: str) -> Problem:
        return Problem(self.archive, 0, What.MISSING, f"{name!r} is a name that leads outside the archive")

    def identity(self, name: str) -> str:
        return name if leads_outside(name) else posixpath.normpath(posixpath.join(self.start, name))

    def folder(self, name: str) -> Pool:
        return Tar(self.path / self.within / name)

    def files(self, medium: Medium) -> tuple[Path, ...]:
        return (self.archive,)


def named_like(pool: Pool, medium: Medium) -> Iterator[str]:
    """Names of a pool's files of this medium; what begins with a dot is the system's own."""
    for name in pool.names():
        if PurePosixPath(name).suffix.lower() in medium.suffixes and not hidden(name):
            yield name


def hidden(name: str) -> bool:
    return any(part.startswith(".") and part != ".." for part in PurePosixPath(name).parts)


def walked(top: Path) -> Iterator[str]:
    """Names of all files below a folder.

    Links are followed after all else, and each folder is read once: where it stands itself, not where a link has it.
    """
    seen, links = set[str](), [top]
    while links:
        for above, folders, files in os.walk(links.pop(0)):
            if (real := os.path.realpath(above)) in seen:
                folders.clear()
                continue
            seen.add(real)
            folders.sort()  # so that of several links to a folder the same is always the first
            links += [Path(above, folder) for folder in folders if is_link_elsewhere(above, folder)]
            within = Path(above).relative_to(top).as_posix()
            yield from (files if within == "." else [f"{within}/{file}" for file in files])


def is_link_elsewhere(above: str, folder: str) -> bool:
    """Whether a folder is a link, and not to one that it is in."""
    path = Path(above, folder)
    return path.is_symlink() and not Path(os.path.realpath(above)).is_relative_to(os.path.realpath(path))
