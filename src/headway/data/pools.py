"""Where many files are: a folder, or an archive that is read in place."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from headway.data.archives import Place, members
from headway.data.looks import Medium


class Pool(Protocol):
    """Where files are: their names with / between folders, in order."""

    @property
    def path(self) -> Path: ...

    def names(self) -> list[str]: ...

    def place(self, name: str) -> Place | None: ...

    def files(self, medium: Medium) -> tuple[Path, ...]:
        """What is read from the disk."""
        ...


@dataclass(frozen=True)
class Folder:
    path: Path

    def names(self) -> list[str]:
        found: list[str] = []
        for top, folders, files in os.walk(self.path, followlinks=True):
            folders[:] = [folder for folder in folders if not leads_back(top, folder)]
            within = Path(top).relative_to(self.path).as_posix()
            found += files if within == "." else [f"{within}/{file}" for file in files]
        return sorted(found, key=lambda name: name.split("/"))

    def place(self, name: str) -> Place | None:
        file = self.path / name
        return Place(file) if name and file.is_file() else None

    def files(self, medium: Medium) -> tuple[Path, ...]:
        return tuple(self.path / name for name in named_like(self, medium))


@dataclass(frozen=True)
class Tar:
    """An archive, or the members of it whose names begin with `within`, which is then no part of a name."""

    path: Path
    within: str = ""

    def names(self) -> list[str]:
        inside = (name.removeprefix(self.within) for name in members(self.path) if name.startswith(self.within))
        return sorted(inside, key=lambda name: PurePosixPath(name).parts)

    def place(self, name: str) -> Place | None:
        return members(self.path).get(self.within + name.removeprefix("./"))

    def files(self, medium: Medium) -> tuple[Path, ...]:
        return (self.path,)


def named_like(pool: Pool, medium: Medium) -> Iterator[str]:
    """Names of a pool's files of this medium; what begins with a dot is the system's own."""
    for name in pool.names():
        path = PurePosixPath(name)
        if path.suffix.lower() in medium.suffixes and not any(part.startswith(".") for part in path.parts):
            yield name


def leads_back(top: str, folder: str) -> bool:
    """Whether a folder is a link to one that it is in."""
    path = os.path.join(top, folder)
    return os.path.islink(path) and f"{os.path.realpath(top)}/".startswith(f"{os.path.realpath(path)}/")
