"""The files of a checkpoint and its manifest: the size and SHA-256 of each file.

Nothing in a manifest is trusted before it is checked: it names plain files of its own folder or is refused.
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
from dataclasses import asdict, dataclass
from pathlib import Path
from reprlib import repr as brief
from typing import Any

from headway.errors import UserError
from headway.system import Disk, read_json

MANIFEST, STATE = "manifest.json", "state.json"
WHOLE, SHARDED = 1, 2  # versions of the checkpoint format, the second with indexes; newer ones are refused
MAX_MANIFEST_BYTES = 2**20
PART = re.compile(r"[a-z][a-z0-9_]{0,63}")
SUFFIX, INDEX = ".safetensors", ".safetensors.index.json"
SHARD = re.compile(r"([a-z][a-z0-9_]{0,63})-[0-9]{5}-of-[0-9]{5}\.safetensors")


@dataclass(frozen=True)
class Manifest:
    step: int
    files: Mapping[str, FileDigest]

    @property
    def layout(self) -> int:
        """The version of the format that the files are of."""
        return SHARDED if any(name.endswith(INDEX) for name in self.files) else WHOLE

    def text(self) -> str:
        """The only valid text of this manifest: a single changed bit is detected."""
        files = {name: asdict(digest) for name, digest in self.files.items()}
        body = {"layout": self.layout, "step": self.step, "files": files}
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
    if type(values.get("layout")) is not int or values["layout"] not in (WHOLE, SHARDED):
        do = "use the headway that wrote it"
        said = f"{MANIFEST} is of layout {brief(values.get('layout'))}"
        raise UserError(said, allowed=f"{WHOLE} and {SHARDED}", do=do)
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
    """The entry of a file of this folder and of no other: `state.json`, `part.safetensors`, or a shard or an index."""
    part = next((name.removesuffix(end) for end in (SUFFIX, INDEX) if name.endswith(end)), "")
    if name != STATE and not PART.fullmatch(part) and not SHARD.fullmatch(name):
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
