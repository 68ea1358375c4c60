"""Where bytes are: a file, or a part of one, such as a member of a .tar archive.

An archive is read in place: its index says where each member begins, and nothing is unpacked.  A path that continues
behind an archive, `set.tar/cat/1.jpg`, names a member.
"""

from __future__ import annotations

import json
import posixpath
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from headway.errors import UserError, nearest

MAX_FILE_BYTES = 2**29  # bytes that are ever read at once
BLOCK = 512  # bytes of a block of an archive


@dataclass(frozen=True, slots=True)
class MediaLocation:
    """`size` bytes of a file from `start` on, or all of it.  `name` is that of a member of an archive.

    A `shape` says that these are the numbers themselves, one byte each, and no coded image.
    """

    file: Path
    name: str = ""
    start: int = 0
    size: int | None = None
    shape: tuple[int, ...] = ()

    @property
    def path(self) -> Path:
        """What a person would call it."""
        return self.file / self.name if self.name else self.file

    @property
    def bytes(self) -> int:
        return self.file.stat().st_size if self.size is None else self.size

    def read(self, most: int = MAX_FILE_BYTES) -> bytes:
        """The bytes; a UserError where they are gone, or more than `most`."""
        try:
            if (size := self.bytes) > most:
                raise UserError(f"{self.path} has {size:,} bytes where {most:,} are allowed")
            with self.file.open("rb") as file:
                file.seek(self.start)
                return file.read(size)
        except FileNotFoundError:
            raise UserError(f"{self.path} does not exist") from None
        except OSError as error:
            raise UserError(f"{self.path} cannot be read: {error.strerror}") from None

    def spelled(self) -> str:
        """A text that `parsed` reads, for stores of places on disk."""
        return json.dumps([str(self.file), self.name, self.start, self.size, self.shape])

    @staticmethod
    def parsed(text: str) -> MediaLocation:
        file, name, start, size, shape = json.loads(text)
        return MediaLocation(Path(file), name, start, size, tuple(shape))


def members(archive: Path) -> Mapping[str, MediaLocation]:
    """The files in a .tar archive by name, in its order; also those whose names lead outside it."""
    try:
        stamp = archive.stat()
    except FileNotFoundError:
        raise UserError(f"{archive} does not exist") from None
    return indexed(archive, stamp.st_size, stamp.st_mtime_ns)


def leads_outside(name: str) -> bool:
    """Whether a member's name is that of no file in its archive: /etc/x.png, ../x.png."""
    return name.startswith(("/", "../"))


def on_disk(path: Path) -> Path:
    """The file that is read for a path: the archive, where the path goes on behind one."""
    return next((up for up in path.parents if up.suffix.lower() == ".tar" and up.is_file()), path)


def inside(path: Path) -> MediaLocation | None:
    """The member that a path names, where it goes on behind an archive; None for other paths."""
    archive = on_disk(path)
    if archive == path:
        return None
    name, found = path.relative_to(archive).as_posix(), members(archive)
    if name not in found:
        raise UserError(f"{archive} has no {name}", meant=nearest(name, found))
    return found[name]


@lru_cache(16)
def indexed(archive: Path, size: int, changed: int) -> Mapping[str, MediaLocation]:
    """The index of an archive of this size that was last changed then."""
    found: dict[str, MediaLocation] = {}
    try:
        with tarfile.open(archive, "r:") as tar:  # r: takes no compressed ones, in which no place can be looked up
            for member in tar:
                if member.islnk() or member.issym() or member.issparse():
                    raise UserError(
                        f"{archive}: {member.name} is a link or has gaps, and cannot be read in place",
                        do="pack it again with tar --dereference --hard-dereference",
                    )
                if member.isfile():
                    name = posixpath.normpath(member.name)
                    found[name] = MediaLocation(archive, name, member.offset_data, member.size)
            end = tar.offset
    except (tarfile.TarError, EOFError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{archive} cannot be read as a .tar archive: {error}", do=advice(archive)) from None
    if MediaLocation(archive, start=end, size=BLOCK).read() != bytes(BLOCK):  # where reading stopped, zeros must end it
        raise UserError(
            f"{archive} is cut off or damaged after {len(found):,} of its files", do="get the archive again"
        )
    return found


def advice(archive: Path) -> str:
    with archive.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return "unpack it with gunzip: a packed archive has no places to look up" if packed else "get the archive again"
