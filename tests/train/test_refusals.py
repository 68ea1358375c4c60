"""Disks that are full, broken or read-only: a save says so, claims nothing, and what was saved before is untouched."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from errno import EDQUOT, EIO, ENOSPC, EROFS
from itertools import count, takewhile
from pathlib import Path

import pytest

from headway.training.manifest import FileDigest, write_file
from headway.training.store import Contents, Store
from tests.train.disks import HURRIED, Hurried, Make, Torn, leftovers, same, snapshot, store

Way = tuple[int, bool]  # the error, and whether the disk is lost for good
WAYS: list[Way] = [(number, final) for number in (ENOSPC, EIO, EROFS, EDQUOT) for final in (False, True)]


@dataclass
class Refusal:
    """Refuses the n-th operation, and all after it where it is final."""

    at: int
    number: int
    final: bool
    count: int = 0

    def __call__(self, operation: str, path: Path) -> None:
        self.count += 1
        if self.count == self.at or (self.final and self.count > self.at):
            raise OSError(self.number, os.strerror(self.number))


def refused(place: Path, make: Make, at: int, number: int, final: bool) -> bool:
    """Saves step 30 on a disk that refuses; False where it has fewer than `at` operations to refuse."""
    folder = place / f"{at}-{number}-{final}"
    healthy = store(folder / "run")
    for step in (10, 20):
        healthy.save(snapshot(step))
    refusal = Refusal(at, number, final)
    torn = Torn(folder, refusal)
    if not raised(number, make(folder / "run", torn)):
        assert refusal.count < at, "it was refused and claims to be saved"
        return False
    kept = 30 if 30 in healthy.steps() else 20
    latest = healthy.latest()
    assert latest is not None
    assert latest[1] == []
    assert same(latest[0], snapshot(kept))
    assert kept == 30 or healthy.steps() == [10, 20]
    assert final or not any(name.startswith(".part-") for name in healthy.names())
    healthy.save(snapshot(40))
    assert leftovers(healthy) == []
    assert healthy.steps() == [kept, 40]
    return True


def raised(number: int, at: Store) -> bool:
    try:
        at.save(snapshot(30))
    except OSError as error:
        return error.errno == number
    return False


def refusals(place: Path, make: Make, ways: Callable[[int], list[Way]]) -> int:
    """How many operations were refused."""
    tried = ([refused(place, make, at, *way) for way in ways(at)] for at in count(1))
    return sum(1 for _ in takewhile(all, tried))


@pytest.mark.slow
def test_a_disk_that_refuses_is_loud_and_harms_nothing(memory: Path) -> None:
    assert refusals(memory, store, lambda at: [WAYS[at % len(WAYS)], WAYS[(at + 3) % len(WAYS)]]) >= 15


@pytest.mark.proof
def test_a_disk_that_refuses_in_any_way_is_loud_and_harms_nothing(memory: Path) -> None:
    assert refusals(memory, store, lambda at: WAYS) >= 15


class Swallows(Store):
    """Goes on as if a file had been written."""

    def write_files(self, part: Path, contents: Contents) -> dict[str, FileDigest]:
        written = dict[str, FileDigest]()
        for name, data in contents.items():
            with suppress(OSError):
                written[name] = write_file(self.disk, part / name, data)
        return written


class LeavesItsPart(Store):
    """Does not clean up."""

    @contextmanager
    def writing(self, step: int) -> Generator[Path]:
        part = self.folder / f".part-{step}"
        self.disk.make(part)
        yield part


class MakesRoom(Store):
    """Deletes an old one before the new one is there."""

    def write_files(self, part: Path, contents: Contents) -> dict[str, FileDigest]:
        self.remove([self.folder_of(self.steps()[0])])
        return super().write_files(part, contents)


@pytest.mark.parametrize("defect", [Swallows, LeavesItsPart, MakesRoom])
def test_a_store_that_hides_refusals_is_noticed(memory: Path, defect: type[Store]) -> None:
    with pytest.raises(AssertionError):
        refusals(memory, lambda folder, disk: defect(folder, 2, disk), lambda at: WAYS[:2])


def test_a_disk_that_writes_something_else_is_noticed_before_anything_is_deleted(tmp_path: Path) -> None:
    class Lying(Hurried):
        def write(self, handle: int, data: memoryview) -> int:
            return super().write(handle, memoryview(bytes([data[0] ^ 1]) + bytes(data[1:])))

    healthy = Store(tmp_path, keep=1, disk=HURRIED)
    healthy.save(snapshot(1))
    with pytest.raises(OSError, match=r"what was written is not what is read back: .*model.safetensors"):
        Store(tmp_path, keep=1, disk=Lying()).save(snapshot(2))
    assert healthy.steps() == [1]
    assert healthy.verify(1) == []
    assert leftovers(healthy) == []
