"""What a checkpoint's files must be: manifest.json, written last, holds their sizes and SHA-256, and its own.

Nothing that a manifest says is believed before it is checked: it names plain files of its own folder or is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from reprlib import repr as brief
from typing import Any

from headway.errors import UserError
from headway.files import read_json
from headway.train.disk import Written, sha256_of

MANIFEST, STATE = "manifest.json", "state.json"
LAYOUT = 1  # of checkpoints; what is newer is refused
MOST = 2**20  # bytes of a manifest: it names a handful of files
PART = re.compile(r"[a-z][a-z0-9_]{0,63}")
SUFFIX = ".safetensors"


@dataclass(frozen=True)
class Manifest:
    step: int
    files: Mapping[str, Written]

    def text(self) -> str:
        """The only text of this manifest: one that differs in a single bit is not it."""
        files = {name: asdict(written) for name, written in self.files.items()}
        body = {"layout": LAYOUT, "step": self.step, "files": files}
        return told({**body, "sha256": hashlib.sha256(told(body).encode()).hexdigest()})


def problems(folder: Path, step: int) -> list[str]:
    """What is wrong with the checkpoint in a folder, a clause each; nothing where every bit is as it was written."""
    try:
        manifest = read_manifest(folder / MANIFEST)
    except UserError as error:
        return [str(error)]
    except OSError as error:
        return [f"{MANIFEST} cannot be read: {error.strerror}"]
    if manifest.step != step:
        return [f"{MANIFEST} is of step {manifest.step}"]
    found = (fault(folder / name, written) for name, written in manifest.files.items())
    return [said for said in found if said]


def read_manifest(path: Path) -> Manifest:
    """The manifest in a file, whole and in a layout that is known."""
    kind = os.lstat(path)
    if not stat.S_ISREG(kind.st_mode) or kind.st_size > MOST:
        raise UserError(f"{MANIFEST} is no plain file of at most {MOST} bytes")
    values = read_json(path)
    if type(values.get("layout")) is not int or values["layout"] != LAYOUT:
        do = "use the headway that wrote it"
        raise UserError(f"{MANIFEST} is of layout {brief(values.get('layout'))}", allowed=f"{LAYOUT}", do=do)
    manifest = Manifest(checked_step(values.get("step")), checked_files(values.get("files")))
    if path.read_bytes() != manifest.text().encode():
        raise UserError(f"{MANIFEST} is not as it was written")
    return manifest


def checked_step(step: object) -> int:
    if type(step) is not int or step < 0:
        raise UserError(f"{MANIFEST} is of step {brief(step)}", allowed="a whole number, 0 or more")
    return step


def checked_files(files: object) -> dict[str, Written]:
    if not isinstance(files, dict) or STATE not in files:
        raise UserError(f"{MANIFEST} does not list the files of a checkpoint")
    return {checked_name(name): checked_entry(name, entry) for name, entry in files.items()}


def checked_name(name: str) -> str:
    """A file of this folder and of no other: `state.json`, or `part.safetensors`."""
    if name != STATE and not (name.endswith(SUFFIX) and PART.fullmatch(name.removesuffix(SUFFIX))):
        raise UserError(f"{MANIFEST} names {brief(name)}", allowed=f"{STATE}, and parts such as model{SUFFIX}")
    return name


def checked_entry(name: str, entry: Any) -> Written:
    match entry:
        case {"size": int(size), "sha256": str(sha256)} if len(entry) == 2 and type(size) is int and size >= 0:
            return Written(size, sha256)
        case _:
            raise UserError(f"{MANIFEST} does not tell the size and SHA-256 of {name}")


def fault(path: Path, written: Written) -> str | None:
    """How a file differs from what was written, if it does."""
    try:
        kind = os.lstat(path)
        if not stat.S_ISREG(kind.st_mode):  # a link could lead anywhere, and a pipe would never end
            return f"{path.name} is no plain file"
        if kind.st_size != written.size:
            return f"{path.name} has {kind.st_size} bytes, not {written.size}"
        differs = sha256_of(path) != written.sha256
    except FileNotFoundError:
        return f"{path.name} is missing"
    except OSError as error:
        return f"{path.name} cannot be read: {error.strerror}"
    return f"{path.name} is not what was written" if differs else None


def told(values: object) -> str:
    return json.dumps(values, indent=2, allow_nan=False) + "\n"
