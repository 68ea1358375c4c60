"""The files of a checkpoint: how they are written and flushed, and how they are verified when read.

A checkpoint has a safetensors file for each part, state.json, and manifest.json, written last, which holds the size and
SHA-256 of each file and of itself.  Nothing in a manifest is trusted before it is checked: it names plain files of its
own folder or is refused.

All changes to the disk are methods of `Disk`, so that tests can pass one that fails, or that forgets what was not
flushed: between any two of them the machine may stop.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from reprlib import repr as brief
from typing import Any

from headway.errors import UserError
from headway.system import flush, read_json

MANIFEST, STATE = "manifest.json", "state.json"
LAYOUT = 1  # version of the checkpoint format; newer ones are refused
MAX_MANIFEST_BYTES = 2**20
PART = re.compile(r"[a-z][a-z0-9_]{0,63}")
SUFFIX = ".safetensors"


class Disk:
    """The operating system's own."""

    def make(self, folder: Path) -> None:
        os.mkdir(folder)

    def create(self, file: Path) -> int:
        return os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)

    def write(self, handle: int, data: memoryview) -> int:
        """The number of bytes written, at least one."""
        return os.write(handle, data)

    def flush(self, handle: int) -> None:
        """Waits until a file's bytes are on the disk."""
        os.fsync(handle)

    def flush_folder(self, folder: Path) -> None:
        """Waits until the directory entries of a folder are on the disk."""
        try:
            flush(folder)
        except OSError as error:
            if error.errno != errno.EINVAL:  # from file systems that cannot flush folders at all
                raise

    def rename(self, old: Path, new: Path) -> None:
        os.rename(old, new)

    def remove(self, file: Path) -> None:
        os.unlink(file)

    def remove_folder(self, folder: Path) -> None:
        os.rmdir(folder)


DISK = Disk()


@dataclass(frozen=True)
class FileDigest:
    """The size and SHA-256 that a file must have."""

    size: int
    sha256: str


def write_file(disk: Disk, path: Path, chunks: Iterable[memoryview]) -> FileDigest:
    """Writes a new file, reads each chunk back, and returns once its bytes are on the disk.

    Hashing takes as long as all the rest, so it runs in a thread of its own, which is joined at the end.
    """
    size, digest, handle = 0, hashlib.sha256(), disk.create(path)
    try:
        with ThreadPoolExecutor(1) as hashing:
            for chunk in chunks:
                hashing.submit(digest.update, chunk)
                write_chunk(disk, handle, chunk, size)
                size += len(chunk)
            disk.flush(handle)
    except OSError as error:
        error.filename = error.filename or str(path)  # a file descriptor has no name to report
        raise
    finally:
        os.close(handle)
    return FileDigest(size, digest.hexdigest())


def write_chunk(disk: Disk, handle: int, chunk: memoryview, start: int) -> None:
    rest, back = chunk, bytearray(len(chunk))
    while len(rest):
        rest = rest[disk.write(handle, rest) :]
    os.preadv(handle, [back], start)
    if not back.startswith(chunk):
        raise OSError(errno.EIO, "what was written is not what is read back")


def make_folders(disk: Disk, folder: Path) -> None:
    """Makes a folder and its missing parents, each flushed before the next."""
    if not folder.is_dir():
        make_folders(disk, folder.parent)
        disk.make(folder)
    with suppress(PermissionError):  # the parent may not be readable
        disk.flush_folder(folder.parent)


def remove_tree(disk: Disk, path: Path) -> None:
    """Deletes a folder and its contents; a symbolic link is deleted, its target stays."""
    if path.is_symlink() or not path.is_dir():
        disk.remove(path)
    else:
        for name in sorted(os.listdir(path)):
            remove_tree(disk, path / name)
        disk.remove_folder(path)


# The manifest


@dataclass(frozen=True)
class Manifest:
    step: int
    files: Mapping[str, FileDigest]

    def text(self) -> str:
        """The only valid text of this manifest: a single changed bit is detected."""
        files = {name: asdict(digest) for name, digest in self.files.items()}
        body = {"layout": LAYOUT, "step": self.step, "files": files}
        return to_json({**body, "sha256": hashlib.sha256(to_json(body).encode()).hexdigest()})


def problems(folder: Path, step: int) -> list[str]:
    """What is wrong with the checkpoint in a folder, a clause each; empty if every bit is as it was written."""
    try:
        manifest = read_manifest(folder / MANIFEST)
    except UserError as error:
        return [str(error)]
    except OSError as error:
        return [f"{MANIFEST} cannot be read: {error.strerror}"]
    if manifest.step != step:
        return [f"{MANIFEST} is of step {manifest.step}"]
    found = (file_problem(folder / name, digest) for name, digest in manifest.files.items())
    return [problem for problem in found if problem]


def read_manifest(path: Path) -> Manifest:
    """The manifest in a file, complete and of a known layout."""
    kind = os.lstat(path)
    if not stat.S_ISREG(kind.st_mode) or kind.st_size > MAX_MANIFEST_BYTES:
        raise UserError(f"{MANIFEST} is no plain file of at most {MAX_MANIFEST_BYTES} bytes")
    values = read_json(path)
    if type(values.get("layout")) is not int or values["layout"] != LAYOUT:
        do = "use the headway that wrote it"
        raise UserError(f"{MANIFEST} is of layout {brief(values.get('layout'))}", allowed=f"{LAYOUT}", do=do)
    step, files = values.get("step"), values.get("files")
    if type(step) is not int or step < 0:
        raise UserError(f"{MANIFEST} is of step {brief(step)}", allowed="a whole number, 0 or more")
    if not isinstance(files, dict) or STATE not in files:
        raise UserError(f"{MANIFEST} does not list the files of a checkpoint")
    manifest = Manifest(step, {name: checked_entry(name, entry) for name, entry in files.items()})
    if path.read_bytes() != manifest.text().encode():
        raise UserError(f"{MANIFEST} is not as it was written")
    return manifest


def checked_entry(name: str, entry: Any) -> FileDigest:
    """The entry of a file of this folder and of no other: `state.json`, or `part.safetensors`."""
    if name != STATE and not (name.endswith(SUFFIX) and PART.fullmatch(name.removesuffix(SUFFIX))):
        raise UserError(f"{MANIFEST} names {brief(name)}", allowed=f"{STATE}, and parts such as model{SUFFIX}")
    match entry:
        case {"size": int(size), "sha256": str(sha256)} if len(entry) == 2 and type(size) is int and size >= 0:
            return FileDigest(size, sha256)
        case _:
            raise UserError(f"{MANIFEST} does not tell the size and SHA-256 of {name}")


def file_problem(path: Path, expected: FileDigest) -> str | None:
    """How a file differs from what was written, if it does."""
    try:
        kind = os.lstat(path)
        if not stat.S_ISREG(kind.st_mode):  # a link could lead anywhere, and a pipe would never end
            return f"{path.name} is no plain file"
        if kind.st_size != expected.size:
            return f"{path.name} has {kind.st_size} bytes, not {expected.size}"
        with path.open("rb") as file:
            differs = hashlib.file_digest(file, "sha256").hexdigest() != expected.sha256
    except FileNotFoundError:
        return f"{path.name} is missing"
    except OSError as error:
        return f"{path.name} cannot be read: {error.strerror}"
    return f"{path.name} is not what was written" if differs else None


def to_json(values: object) -> str:
    return json.dumps(values, indent=2, allow_nan=False) + "\n"
