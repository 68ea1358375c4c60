"""The few operations by which a store of checkpoints changes a disk: between any two of them the machine may stop.

They are methods of one object, so that a test can pass a disk that fails, or that forgets what was not flushed.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from headway.files import flush


class Disk:
    """The operating system's own."""

    def make(self, folder: Path) -> None:
        os.mkdir(folder)

    def create(self, file: Path) -> int:
        return os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)

    def write(self, handle: int, data: memoryview) -> int:
        """How many of the bytes were written, at least one."""
        return os.write(handle, data)

    def flush(self, handle: int) -> None:
        """Waits until a file's bytes are on the disk."""
        os.fsync(handle)

    def flush_folder(self, folder: Path) -> None:
        """Waits until the names in a folder are on the disk."""
        try:
            flush(folder)
        except OSError as error:
            if error.errno != errno.EINVAL:  # what a file system says that cannot flush folders at all
                raise

    def rename(self, old: Path, new: Path) -> None:
        os.rename(old, new)

    def remove(self, file: Path) -> None:
        os.unlink(file)

    def remove_folder(self, folder: Path) -> None:
        os.rmdir(folder)


DISK = Disk()


@dataclass(frozen=True)
class Written:
    """What is known of a file without opening it, and what it is then held to."""

    size: int
    sha256: str


def write_file(disk: Disk, path: Path, pieces: Iterable[memoryview]) -> Written:
    """Writes a new file, reads each piece back, and returns when its bytes are on the disk.

    The hash takes as long as all the rest, so it has a thread of its own, which nobody waits for until the end.
    """
    size, digest, handle = 0, hashlib.sha256(), disk.create(path)
    try:
        with ThreadPoolExecutor(1) as beside:
            for piece in pieces:
                beside.submit(digest.update, piece)
                write_piece(disk, handle, piece, size)
                size += len(piece)
            disk.flush(handle)
    except OSError as error:
        error.filename = error.filename or str(path)  # a handle has no name, and a person wants one
        raise
    finally:
        os.close(handle)
    return Written(size, digest.hexdigest())


def write_piece(disk: Disk, handle: int, piece: memoryview, start: int) -> None:
    rest, back = piece, bytearray(len(piece))
    while len(rest):
        rest = rest[disk.write(handle, rest) :]
    os.preadv(handle, [back], start)
    if not back.startswith(piece):
        raise OSError(errno.EIO, "what was written is not what is read back")


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def make_folders(disk: Disk, folder: Path) -> None:
    """Makes a folder, and those above it that are missing, each safely in the one above."""
    if not folder.is_dir():
        make_folders(disk, folder.parent)
        disk.make(folder)
    with suppress(PermissionError):  # some may not look into the folder above theirs
        disk.flush_folder(folder.parent)


def remove_tree(disk: Disk, path: Path) -> None:
    """Deletes a folder and all in it; a link is deleted, and what it leads to stays."""
    if path.is_symlink() or not path.is_dir():
        disk.remove(path)
    else:
        for name in sorted(os.listdir(path)):
            remove_tree(disk, path / name)
        disk.remove_folder(path)
