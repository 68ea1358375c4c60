"""Checkpoints that several processes write: there when all have written, and refused where a file is another."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from threading import BrokenBarrierError
from typing import Any

import pytest
import torch
from torch import Tensor

from headway.distributed.world import World
from headway.errors import UserError
from headway.interop.weights import described
from headway.system import Disk, read_json
from headway.training.parallel import owners
from headway.training.sharded import ShardedSaver
from headway.training.store import Snapshot, Store
from tests.train.disks import HURRIED, leftovers, same, snapshot
from tests.train.test_crash import PROCESSES, shared_store, shares
from tests.train.test_saving import Held
from tests.train.test_sharing import in_worlds


def saved(folder: Path, step: int, disk_of: Callable[[int], Disk], *, wait: bool = True) -> list[Any]:
    """What each process is told of a checkpoint that all of them write."""

    def save(world: World) -> list[int]:
        found = snapshot(step)
        with ShardedSaver(Store(folder, keep=2, disk=disk_of(world.rank)), world) as saver:
            saver.save(Snapshot(step, shares(found)[world.rank], found.state), ())
            return saver.written(wait=wait)

    return in_worlds(PROCESSES, save)


def test_what_all_have_written_is_the_whole(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        assert saved(tmp_path, step, lambda _: HURRIED) == [[step]] * PROCESSES
    one = Store(tmp_path, keep=2)
    assert one.steps() == [20, 30]
    assert leftovers(one) == []
    latest = one.latest()
    assert latest is not None
    assert latest[1] == []
    assert same(latest[0], snapshot(30))
    files = {file.name: file.read_bytes() for file in one.folder_of(30).iterdir()}
    serial = shared_store(tmp_path / "serial")
    serial.save(snapshot(30))
    assert files == {file.name: file.read_bytes() for file in serial.folder_of(30).iterdir()}
    index = read_json(one.folder_of(30) / "model.safetensors.index.json")
    assert index == {
        "metadata": {"total_size": 4 * (27 + 3)},
        "weight_map": {"bias": "model-00002-of-00002.safetensors", "weight": "model-00001-of-00002.safetensors"},
    }


def test_it_has_no_name_before_the_last_has_written(tmp_path: Path) -> None:
    """The others go on meanwhile."""
    slow = Held()

    def save(world: World) -> tuple[list[int], list[int], list[int]]:
        one = Store(tmp_path, keep=2, disk=slow if world.rank == 1 else HURRIED)
        with ShardedSaver(one, world) as saver:
            saver.save(Snapshot(10, shares(snapshot(10))[world.rank], snapshot(10).state), ())
            assert slow.begun.wait(60)
            before = saver.written(wait=False)
            steps = one.steps()
            world.totals()
            slow.free.set()
            return before, steps, saver.written(wait=True)

    assert in_worlds(PROCESSES, save) == [([], [], [10])] * PROCESSES


def test_a_full_disk_of_one_ends_all_and_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    full = Held()
    full.free.set()
    full.full = True
    saved(tmp_path, 10, lambda _: HURRIED)
    first, second = saved(tmp_path, 20, lambda rank: full if rank == 1 else HURRIED)
    assert isinstance(first, BrokenBarrierError)  # in a thread; a process is ended by the error of the other
    assert isinstance(second, OSError)
    assert second.errno == errno.ENOSPC
    latest = Store(tmp_path).latest()
    assert latest is not None
    assert same(latest[0], snapshot(10))
    assert leftovers(Store(tmp_path)) == []


def test_a_process_that_does_not_see_the_folder_is_refused(tmp_path: Path) -> None:
    def save(world: World) -> None:
        with ShardedSaver(Store(tmp_path / ("here" if world.first else "there")), world) as saver:
            saver.save(Snapshot(10, shares(snapshot(10))[world.rank], {}), ())

    first, second = in_worlds(PROCESSES, save)
    assert isinstance(first, BrokenBarrierError)
    assert isinstance(second, UserError)
    assert str(second).startswith(f"process 1 does not see {tmp_path / 'there'}, where all processes write; give out=")
    assert Store(tmp_path / "here").steps() == []


SPOILT: dict[str, Callable[[Path], object]] = {
    "a shard that is gone": lambda place: (place / "model-00002-of-00002.safetensors").unlink(),
    "a shard of one bit less": lambda place: flip(place / "optimiser-00001-of-00002.safetensors"),
    "an index of one bit less": lambda place: flip(place / "optimiser.safetensors.index.json"),
}


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize("what", SPOILT)
def test_a_damaged_one_is_not_taken(tmp_path: Path, what: str) -> None:
    one = shared_store(tmp_path)
    for step in (10, 20):
        one.save(snapshot(step))
    SPOILT[what](one.folder_of(20))
    latest = one.latest()
    assert latest is not None
    assert same(latest[0], snapshot(10))
    assert latest[1][0].startswith(f"the checkpoint of step 20 in {tmp_path} is not whole: ")


def test_shapes_are_known_before_a_tensor_is_read(tmp_path: Path) -> None:
    one = shared_store(tmp_path)
    one.save(snapshot(10))
    for part, named in one.load(10).tensors.items():
        expected = {name: (list(x.shape), x.dtype) for name, x in snapshot(10).tensors[part].items()}
        assert {name: (list(shape), dtype) for name, (shape, dtype) in described(named).items()} == expected


def test_what_is_written_is_shared_out_by_bytes() -> None:
    tensors: dict[str, Tensor] = {f"{size}": torch.empty(size) for size in (1, 2, 3, 4, 5, 6, 0)}
    assert owners(tensors, 1) == dict.fromkeys(tensors, 0)
    owner = owners(tensors, 3)
    load = [sum(tensors[name].nbytes for name in owner if owner[name] == rank) for rank in range(3)]
    assert load == [28, 28, 28]
    assert owners(dict(reversed(tensors.items())), 3) == owner
