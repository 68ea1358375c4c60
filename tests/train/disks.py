"""Disks that fail and forget, and the checkpoints that are saved to them.

A `Torn` disk does what it is asked in a real folder, and keeps beside it a model of what is safe: a file's bytes since
its last flush, a folder's names since its last flush.  `leave` writes down what a machine that stopped now would find
when it starts again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headway.system import Disk
from headway.training.store import Snapshot, Store

DTYPES = [torch.float32, torch.int64, torch.bfloat16, torch.bool, torch.float64]


def snapshot(step: int, version: int = 0) -> Snapshot:
    """A small run's state, of all the kinds of tensors that an optimiser has; each step and version has its own."""
    make = torch.Generator().manual_seed(1000 * step + version)

    def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.randn(shape, generator=make).mul(7).to(dtype)

    optimiser = {f"state.{i}": drawn(2, i, dtype=dtype) for i, dtype in enumerate(DTYPES)}  # the first has no elements
    tensors = {"model": {"weight": drawn(9, 3), "bias": drawn(3)}, "optimiser": {**optimiser, "step": drawn()}}
    return Snapshot(step, tensors, {"step": step, "version": version, "best": 0.1 + step, "ranking": [[step, None]]})


def same(one: Snapshot, other: Snapshot) -> bool:
    """Bit for bit."""
    if one.step != other.step or dict(one.state) != dict(other.state) or one.tensors.keys() != other.tensors.keys():
        return False
    return all(same_tensors(one.tensors[part], other.tensors[part]) for part in one.tensors)


def same_tensors(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(same_bits(one[name], other[name]) for name in one)


def same_bits(one: Tensor, other: Tensor) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    bits = [x.detach().contiguous().reshape(-1).view(torch.uint8) for x in (one, other)]
    return torch.equal(*bits)


@dataclass(frozen=True)
class Save:
    """A save, and the steps that are there after it with keep=2."""

    step: int
    version: int
    protect: tuple[int, ...]
    left: tuple[int, ...]

    def snapshot(self) -> Snapshot:
        return snapshot(self.step, self.version)


# A first one, some to delete, one protected, one saved again as the newest and one as an older.
PLAN = [
    Save(10, 0, (), (10,)),
    Save(20, 0, (), (10, 20)),
    Save(30, 0, (10,), (10, 20, 30)),
    Save(30, 1, (10,), (10, 20, 30)),
    Save(40, 0, (10,), (10, 30, 40)),
    Save(50, 0, (), (40, 50)),
    Save(40, 1, (), (40, 50)),
    Save(60, 0, (), (50, 60)),
]


@dataclass(eq=False)
class File:
    live: bytearray = field(default_factory=bytearray)
    safe: bytes = b""


@dataclass(eq=False)
class Folder:
    live: dict[str, File | Folder] = field(default_factory=dict)
    safe: dict[str, File | Folder] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)  # since the last flush

    def change(self, change: Change) -> None:
        change.apply(self.live)
        self.changes.append(change)

    def flush(self) -> None:
        self.safe, self.changes = dict(self.live), []


@dataclass(frozen=True)
class Change:
    """One change of a folder's names: `old` becomes `new`, or goes, or a node comes as `new`.  It happens or not."""

    old: str | None
    new: str | None
    node: File | Folder | None = None

    def apply(self, names: dict[str, File | Folder]) -> None:
        node = self.node if self.old is None else names.pop(self.old, None)
        if self.new is not None and node is not None:
            names[self.new] = node


Stop = Callable[[str, Path], object]


class Torn(Disk):
    """Keeps account of what is safe, and calls `stop(operation, path)` before each operation.

    It writes a little at a time, so that there are many places to stop at, and does not wait for the real disk.
    """

    def __init__(self, root: Path, stop: Stop = lambda operation, path: None):
        self.root, self.stop = root, stop
        self.top = seen(root) if root.exists() else Folder()
        self.files: dict[int, tuple[Path, File]] = {}

    def make(self, folder: Path) -> None:
        self.stop("make", folder)
        super().make(folder)
        self.above(folder).change(Change(None, folder.name, Folder()))

    def create(self, file: Path) -> int:
        self.stop("create", file)
        handle, node = super().create(file), File()
        self.above(file).change(Change(None, file.name, node))
        self.files[handle] = file, node
        return handle

    def write(self, handle: int, data: memoryview) -> int:
        path, node = self.files[handle]
        self.stop("write", path)
        written = super().write(handle, data[: max(len(data) // 2, 200)])
        node.live += data[:written]
        return written

    def flush(self, handle: int) -> None:
        path, node = self.files[handle]
        self.stop("flush", path)
        node.safe = bytes(node.live)

    def flush_folder(self, folder: Path) -> None:
        self.stop("flush", folder)
        if folder.is_relative_to(self.root):
            self.folder(folder).flush()

    def rename(self, old: Path, new: Path) -> None:
        self.stop("rename", new)
        assert old.parent == new.parent, "a rename between folders would be two changes"
        super().rename(old, new)
        self.above(old).change(Change(old.name, new.name))

    def remove(self, file: Path) -> None:
        self.stop("remove", file)
        super().remove(file)
        self.above(file).change(Change(file.name, None))

    def remove_folder(self, folder: Path) -> None:
        self.stop("remove", folder)
        super().remove_folder(folder)
        self.above(folder).change(Change(folder.name, None))

    def above(self, path: Path) -> Folder:
        return self.folder(path.parent)

    def folder(self, path: Path) -> Folder:
        node: File | Folder = self.top
        for name in path.relative_to(self.root).parts:
            assert isinstance(node, Folder)
            node = node.live[name]
        assert isinstance(node, Folder)
        return node

    def leave(self, target: Path, fate: Fate) -> None:
        """Writes what is found after a crash."""
        found(self.top, target, fate)


def seen(path: Path) -> Any:
    """The model of what is safely on a disk."""
    if not path.is_dir():
        return File(bytearray(path.read_bytes()), path.read_bytes())
    names = {inner.name: seen(inner) for inner in path.iterdir()}
    return Folder(names, dict(names))


@dataclass(frozen=True)
class Fate:
    """What becomes of a change of names, and of bytes, that were not flushed."""

    name: str
    happened: Callable[[], bool]
    bytes_of: Callable[[File], bytes]


def fates(seed: int) -> Iterator[Fate]:
    draw = random.Random(seed)

    def some(file: File) -> bytes:
        kept = file.live[: draw.randint(len(file.safe), len(file.live))]
        lost = len(file.live) - len(kept)
        return bytes(kept) + draw.choice([b"", bytes(lost), draw.randbytes(lost)])  # short, zeros, or anything

    yield Fate("the process died", lambda: True, lambda file: bytes(file.live))
    yield Fate("nothing unflushed is there", lambda: False, lambda file: file.safe)
    yield Fate("names without bytes", lambda: True, lambda file: file.safe)
    yield Fate("some names and some bytes", lambda: draw.random() < 0.5, some)


def found(node: File | Folder, path: Path, fate: Fate) -> None:
    if isinstance(node, File):
        path.write_bytes(fate.bytes_of(node))
        return
    names = dict(node.safe)
    for change in node.changes:
        if fate.happened():
            change.apply(names)
    path.mkdir()
    for name, inner in names.items():
        found(inner, path / name, fate)


class Hurried(Disk):
    """Waits for nothing: for tests of other things."""

    def flush(self, handle: int) -> None:
        pass

    def flush_folder(self, folder: Path) -> None:
        pass


def leftovers(store: Store) -> list[str]:
    return [name for name in store.names() if name != ".lock" and (name.startswith(".") or name.endswith(".again"))]


HURRIED = Hurried()
Make = Callable[[Path, Disk], Store]


def store(folder: Path, disk: Disk = HURRIED) -> Store:
    return Store(folder, keep=2, disk=disk)
