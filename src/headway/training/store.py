"""Checkpoints of a run: one folder per step, and at every instant at least one of them is complete.

`step-0000100` holds a safetensors file for each part (model, optimiser, average), state.json, and manifest.json with
the size and SHA-256 of each.  A part that several processes have written (`sharded.py`) is a file of each of them and
an index, as Hugging Face has them.  A save takes these steps, each on the disk before the next begins:

    write `.part-…`, each file read back and flushed, the manifest last → flush the folder → rename it to `step-…`
    → flush the parent → rename checkpoints that are no longer kept to `.old-…` → flush the parent → delete them

So every `step-…` was complete once, and a saved checkpoint survives every crash; what a crash leaves behind begins with
a dot and is deleted by the next save.  A step that is saved again exists for a moment as `step-….again` beside its
older version, and takes precedence.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import secrets
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from headway.errors import UserError
from headway.interop.weights import StoredTensors, read_safetensors, safetensors_chunks
from headway.system import DISK, Disk, make_folders, read_json, remove_tree
from headway.training.manifest import (
    INDEX,
    MANIFEST,
    PART,
    SHARD,
    STATE,
    SUFFIX,
    FileDigest,
    Manifest,
    problems,
    read_manifest,
    to_json,
    write_file,
)

AGAIN, LOCK, NEW, OLD = ".again", ".lock", ".part-", ".old-"
NAME = re.compile(r"step-([0-9]{7}|[1-9][0-9]{7,})(\.again)?")
UNLOCKABLE = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)  # errors of file systems without locks


Parts = Mapping[str, Mapping[str, Tensor]]  # tensors by part and name
Contents = Mapping[str, Iterable[memoryview]]  # of a checkpoint's files, by name


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The state of a run after a step: tensors by part and name, and values that JSON can hold."""

    step: int
    tensors: Parts
    state: Mapping[str, Any]


@dataclass(frozen=True)
class Store:
    """The checkpoints in a folder; the latest `keep` of them are kept, and those that a save protects."""

    folder: Path
    keep: int = 3
    disk: Disk = DISK

    def __post_init__(self) -> None:
        if self.keep < 1:
            raise UserError(f"keep={self.keep} would leave no checkpoint", allowed="1 or more")

    def save(self, snapshot: Snapshot, protect: Collection[int] = ()) -> Path:
        """Writes a checkpoint and returns once only the loss of the disk can undo it.

        After an OSError (a full disk, no permission) there is no new checkpoint, and the earlier ones are intact.
        """
        contents = contents_of(snapshot)
        with self.writing(snapshot.step) as part:
            return self.complete(part, snapshot.step, self.write_files(part, contents), protect)

    @contextmanager
    def writing(self, step: int) -> Generator[Path]:
        """A new hidden folder for the files of a checkpoint; on an error, nothing of it is left."""
        make_folders(self.disk, self.folder)
        with self.lock() as alone:
            self.finish_replacements()
            if alone:
                self.remove_remains()
            part = self.folder / f"{NEW}{step}-{secrets.token_hex(4)}"
            try:
                self.disk.make(part)
                yield part
            except BaseException:
                with suppress(OSError):  # a disk that cannot be written to may refuse this too; the next save tries
                    remove_tree(self.disk, part)
                raise

    def write_files(self, part: Path, contents: Contents) -> dict[str, FileDigest]:
        """Writes and flushes some files of a checkpoint; what its manifest says of them."""
        return {name: write_file(self.disk, part / name, data) for name, data in contents.items()}

    def complete(self, part: Path, step: int, files: Mapping[str, FileDigest], protect: Collection[int] = ()) -> Path:
        """Makes a checkpoint of a hidden folder with all its files: manifest, name, and outdated ones go."""
        write_file(self.disk, part / MANIFEST, [memoryview(Manifest(step, files).text().encode())])
        self.disk.flush_folder(part)
        place = self.publish(part, step)
        self.remove_outdated(step, protect)
        return place

    def steps(self) -> list[int]:
        """The steps that have a checkpoint, complete or not."""
        return sorted({int(found[1]) for name in self.names() if (found := NAME.fullmatch(name))})

    def latest(self) -> tuple[Snapshot, list[str]] | None:
        """The latest complete checkpoint, and a sentence about each later one that is damaged; None without any."""
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
        place, wrong = self.verified(step)
        if place is None:
            raise UserError(f"the checkpoint of step {step} in {self.folder} is not whole: {', '.join(wrong)}")
        files = read_manifest(place / MANIFEST).files
        whole = [name.removesuffix(SUFFIX) for name in files if name.endswith(SUFFIX) and not SHARD.fullmatch(name)]
        tensors: dict[str, Mapping[str, Tensor]] = {part: read_safetensors(place / f"{part}{SUFFIX}") for part in whole}
        for part in (name.removesuffix(INDEX) for name in files if name.endswith(INDEX)):
            tensors[part] = StoredTensors.of(place / f"{part}{INDEX}")
        return Snapshot(step, tensors, read_json(place / STATE))

    def verify(self, step: int) -> list[str]:
        """What is wrong with a checkpoint, a clause each; empty if every bit is as it was written."""
        return self.verified(step)[1]

    def verified(self, step: int) -> tuple[Path | None, list[str]]:
        """The folder of a complete checkpoint of a step; or None, and what is wrong."""
        wrong = ["it is not there"]
        for place in self.folders_of(step):
            wrong = problems(place, step)
            if not wrong:
                return place, []
        return None, wrong

    def folders_of(self, step: int) -> list[Path]:
        """The folders of a step, the one that takes precedence first."""
        place = self.folder_of(step)
        return [path for path in (again(place), place) if path.is_dir()]

    def folder_of(self, step: int) -> Path:
        return self.folder / f"step-{step:07}"

    def names(self) -> list[str]:
        return sorted(os.listdir(self.folder)) if self.folder.is_dir() else []

    def publish(self, part: Path, step: int) -> Path:
        """Gives a complete checkpoint its name."""
        place = self.folder_of(step)
        if not place.exists():
            self.rename(part, place)
        else:
            self.rename(part, again(place))
            self.finish_replacements()
        return place

    def finish_replacements(self) -> None:
        """Lets steps that were saved again replace their older versions, also after a crash."""
        for name in self.names():
            found = NAME.fullmatch(name)
            if found and found[2]:
                self.replace(self.folder / name, int(found[1]))

    def replace(self, new: Path, step: int) -> None:
        place = self.folder_of(step)
        whole = not problems(new, step)
        loser = place if whole else new
        if loser.exists():
            self.remove([loser])
        if whole:
            self.rename(new, place)

    def remove_outdated(self, newest: int, protect: Collection[int]) -> None:
        """Deletes checkpoints older than the last `keep` that are not protected.

        Later steps than this one stay: a complete one is worth more, a damaged one is reported or saved again.
        """
        older = [step for step in self.steps() if step <= newest]
        self.remove([self.folder_of(step) for step in older[: -self.keep] if step not in protect])

    def remove(self, places: Collection[Path]) -> None:
        """Deletes folders, renamed first, so that nothing half deleted is ever taken for a checkpoint."""
        gone = [self.folder / f"{OLD}{place.name}-{secrets.token_hex(4)}" for place in places]
        for place, target in zip(places, gone, strict=True):
            self.disk.rename(place, target)
        if gone:
            self.disk.flush_folder(self.folder)
        for target in gone:
            remove_tree(self.disk, target)

    def rename(self, old: Path, new: Path) -> None:
        self.disk.rename(old, new)
        self.disk.flush_folder(self.folder)

    def remove_remains(self) -> None:
        """Deletes the remains of crashes."""
        for name in self.names():
            if name.startswith((NEW, OLD)):
                with suppress(OSError):  # if the disk cannot be written to, the save itself will report it
                    remove_tree(self.disk, self.folder / name)

    @contextmanager
    def lock(self) -> Generator[bool, None, None]:
        """Keeps other processes from saving here; False if the file system has no locks.

        The kernel releases the lock with its process, so whoever holds it knows that remains have no owner.
        """
        handle = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            yield locked(handle, self.folder)
        finally:
            with suppress(OSError):  # closing is not enough if a forked process has the handle too
                fcntl.flock(handle, fcntl.LOCK_UN)
            os.close(handle)


def contents_of(snapshot: Snapshot) -> Contents:
    """The files of a checkpoint."""
    files = {f"{part}{SUFFIX}": safetensors_chunks(tensors) for part, tensors in snapshot.tensors.items()}
    assert all(PART.fullmatch(part) for part in snapshot.tensors)
    return {**files, **state_file(snapshot)}


def state_file(snapshot: Snapshot) -> Contents:
    """The file of all that is no tensor."""
    assert snapshot.step >= 0
    try:
        state = json.dumps(snapshot.state, indent=2, allow_nan=False).encode()
    except ValueError:
        said = f"the state of step {snapshot.step} holds a number that is not finite, which JSON cannot tell"
        raise UserError(said) from None
    return {STATE: [memoryview(state)]}


def shard_files(tensors: Parts, rank: int, processes: int) -> Contents:
    """The files of one of several processes: of each part, the tensors that it has."""
    assert all(PART.fullmatch(part) for part in tensors)
    return {shard_name(part, rank, processes): safetensors_chunks(named) for part, named in tensors.items()}


def index_files(sizes: Sequence[Mapping[str, Mapping[str, int]]]) -> Contents:
    """The index of each part, by the names and bytes of the tensors that each process has of it."""
    found: dict[str, Iterable[memoryview]] = {}
    for part in sizes[0]:
        own = [(rank, name, size) for rank, named in enumerate(sizes) for name, size in named[part].items()]
        files = {name: shard_name(part, rank, len(sizes)) for rank, name, _ in own}
        total = {"total_size": sum(size for *_, size in own)}
        text = to_json({"metadata": total, "weight_map": dict(sorted(files.items()))})
        found[f"{part}{INDEX}"] = [memoryview(text.encode())]
    return found


def shard_name(part: str, rank: int, processes: int) -> str:
    return f"{part}-{rank + 1:05}-of-{processes:05}{SUFFIX}"


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
