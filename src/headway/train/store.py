"""Checkpoints of a run: one folder for each step, and at every instant at least one of them is whole.

`step-0000100` holds a safetensors file for each part (model, optimiser, average), state.json, and manifest.json with
the size and SHA-256 of each.  A save goes by these steps, each on the disk before the next begins:

    fill `.part-…`, its files read back and flushed, the manifest last → flush its names → rename it to `step-…`
    → flush the folder → rename to `.old-…` what is no longer kept → flush the folder → delete that

So what is called `step-…` was once whole, and what was promised outlives every crash; what a crash leaves begins with
a dot and is deleted by the next save.  A step that is saved again stands for a moment as `step-….again` beside its
older self, and is the one that counts.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import secrets
from collections.abc import Collection, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from headway.errors import UserError
from headway.files import read_json
from headway.interop.weights import read_safetensors
from headway.train.disk import DISK, Disk, make_folders, remove_tree, write_file
from headway.train.manifest import MANIFEST, PART, STATE, SUFFIX, Manifest, problems, read_manifest
from headway.train.tensor_file import pieces

AGAIN, LOCK, NEW, OLD = ".again", ".lock", ".part-", ".old-"
NAME = re.compile(r"step-([0-9]{7}|[1-9][0-9]{7,})(\.again)?")
UNLOCKABLE = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)  # what file systems without locks say


Contents = Mapping[str, Iterable[memoryview]]  # of a checkpoint's files, by their names


@dataclass(frozen=True, eq=False)
class Snapshot:
    """All that a run needs to go on from a step: tensors by part and name, and numbers that JSON can hold."""

    step: int
    tensors: Mapping[str, Mapping[str, Tensor]]
    state: Mapping[str, Any]


@dataclass(frozen=True)
class Store:
    """The checkpoints in a folder; the newest `keep` of them stay, and those that a save protects."""

    folder: Path
    keep: int = 3
    disk: Disk = DISK

    def __post_init__(self) -> None:
        if self.keep < 1:
            raise UserError(f"keep={self.keep} would leave no checkpoint", allowed="1 or more")

    def save(self, snapshot: Snapshot, protect: Collection[int] = ()) -> Path:
        """Writes a checkpoint and returns when nothing but the loss of the disk can undo it.

        After an OSError (a full disk, a missing right) nothing new is promised, and what was promised before is there.
        """
        contents = told(snapshot)
        make_folders(self.disk, self.folder)
        with self.alone() as alone:
            self.settle()
            if alone:
                self.sweep()
            place = self.entered(snapshot.step, contents)
            self.retire(snapshot.step, protect)
        return place

    def steps(self) -> list[int]:
        """The steps that have a checkpoint, whole or not."""
        return sorted({int(found[1]) for name in self.names() if (found := NAME.fullmatch(name))})

    def latest(self) -> tuple[Snapshot, list[str]] | None:
        """The newest checkpoint that is whole, and a sentence about each newer one that is not; None without any."""
        said: list[str] = []
        for step in reversed(self.steps()):
            try:
                return self.load(step), [f"{sentence}; step {step} is used instead" for sentence in said]
            except UserError as error:
                said.append(str(error))
        if said:
            raise UserError(f"no checkpoint is whole: {'; '.join(said)}", do="start the run anew")
        return None

    def load(self, step: int) -> Snapshot:
        place, wrong = self.examined(step)
        if place is None:
            raise UserError(f"the checkpoint of step {step} in {self.folder} is not whole: {', '.join(wrong)}")
        parts = [name for name in read_manifest(place / MANIFEST).files if name != STATE]
        tensors = {name.removesuffix(SUFFIX): read_safetensors(place / name) for name in parts}
        return Snapshot(step, tensors, read_json(place / STATE))

    def verify(self, step: int) -> list[str]:
        """What is wrong with a checkpoint, a clause each; nothing where every bit is as it was written."""
        return self.examined(step)[1]

    def examined(self, step: int) -> tuple[Path | None, list[str]]:
        """Where a step stands whole; or None, and what is wrong."""
        wrong = ["it is not there"]
        for place in self.places(step):
            wrong = problems(place, step)
            if not wrong:
                return place, []
        return None, wrong

    def places(self, step: int) -> list[Path]:
        """Where a step stands: the one that counts first."""
        place = self.place(step)
        return [path for path in (again(place), place) if path.is_dir()]

    def place(self, step: int) -> Path:
        return self.folder / f"step-{step:07}"

    def names(self) -> list[str]:
        return sorted(os.listdir(self.folder)) if self.folder.is_dir() else []

    def entered(self, step: int, contents: Contents) -> Path:
        """A new checkpoint under its name; until it has that, whatever goes wrong leaves nothing of it."""
        part = self.folder / f"{NEW}{step}-{secrets.token_hex(4)}"
        try:
            self.fill(part, step, contents)
            return self.enter(part, step)
        except BaseException:
            with suppress(OSError):  # a disk that refuses to write may refuse this too; the next save tries again
                remove_tree(self.disk, part)
            raise

    def fill(self, part: Path, step: int, contents: Contents) -> None:
        """Makes a folder with the whole checkpoint in it, safely on the disk."""
        self.disk.make(part)
        files = {name: write_file(self.disk, part / name, data) for name, data in contents.items()}
        write_file(self.disk, part / MANIFEST, [memoryview(Manifest(step, files).text().encode())])
        self.disk.flush_folder(part)

    def enter(self, part: Path, step: int) -> Path:
        """Gives a whole checkpoint its name."""
        place = self.place(step)
        if not place.exists():
            self.move(part, place)
        else:
            self.move(part, again(place))
            self.settle()
        return place

    def settle(self) -> None:
        """Lets steps that were saved again take their places, now or as a crash left them."""
        for name in self.names():
            found = NAME.fullmatch(name)
            if found and found[2]:
                self.replace(self.folder / name, int(found[1]))

    def replace(self, new: Path, step: int) -> None:
        place = self.place(step)
        whole = not problems(new, step)
        loser = place if whole else new
        if loser.exists():
            self.drop([loser])
        if whole:
            self.move(new, place)

    def retire(self, newest: int, protect: Collection[int]) -> None:
        """Deletes what is older than the last `keep` and not protected.  What is newer than this step stays: if it is
        whole, it is worth more; if not, it will be told, or be saved again."""
        older = [step for step in self.steps() if step <= newest]
        self.drop([self.place(step) for step in older[: -self.keep] if step not in protect])

    def drop(self, places: Collection[Path]) -> None:
        """Deletes folders: first their names, so that nothing half deleted is ever taken for a checkpoint."""
        gone = [self.folder / f"{OLD}{place.name}-{secrets.token_hex(4)}" for place in places]
        for place, target in zip(places, gone, strict=True):
            self.disk.rename(place, target)
        if gone:
            self.disk.flush_folder(self.folder)
        for target in gone:
            remove_tree(self.disk, target)

    def move(self, old: Path, new: Path) -> None:
        self.disk.rename(old, new)
        self.disk.flush_folder(self.folder)

    def sweep(self) -> None:
        """Deletes what crashes left."""
        for name in self.names():
            if name.startswith((NEW, OLD)):
                with suppress(OSError):  # whether this disk can be written to, the save itself will see
                    remove_tree(self.disk, self.folder / name)

    @contextmanager
    def alone(self) -> Generator[bool, None, None]:
        """Keeps other processes from saving here; False where the file system has no locks to do it with.

        The lock is the kernel's and ends with its process, so whoever holds it knows that leftovers have no owner.
        """
        handle = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            yield locked(handle, self.folder)
        finally:
            with suppress(OSError):  # closing alone would not do where a forked process has the handle too
                fcntl.flock(handle, fcntl.LOCK_UN)
            os.close(handle)


def told(snapshot: Snapshot) -> Contents:
    """The files of a checkpoint."""
    assert snapshot.step >= 0
    assert all(PART.fullmatch(part) for part in snapshot.tensors)
    try:
        state = json.dumps(snapshot.state, indent=2, allow_nan=False).encode()
    except ValueError:
        said = f"the state of step {snapshot.step} holds a number that is not finite, which JSON cannot tell"
        raise UserError(said) from None
    files = {f"{part}{SUFFIX}": pieces(tensors) for part, tensors in snapshot.tensors.items()}
    return {**files, STATE: [memoryview(state)]}


def locked(handle: int, folder: Path) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        said = f"another process is saving a checkpoint in {folder}"
        raise UserError(said, do="let one run at a time use this folder") from None
    except OSError as error:
        if error.errno not in UNLOCKABLE:
            raise
        return False
    return True


def again(place: Path) -> Path:
    return place.with_name(place.name + AGAIN)
