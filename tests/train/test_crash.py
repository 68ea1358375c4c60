"""What was saved stays saved, wherever the machine stops and whenever the process is killed.

Each flush that is left out and each order that is changed is a deliberate defect, and must be noticed.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headway.errors import UserError
from headway.system import Disk, remove_tree
from headway.training.manifest import MANIFEST, FileDigest
from headway.training.parallel import owners
from headway.training.store import Contents, Parts, Snapshot, Store, index_files, shard_files, state_file
from tests.train.disks import HURRIED, PLAN, File, Make, Save, Stop, Torn, fates, leftovers, same, snapshot, store


@dataclass
class Crashes:
    """Stops a machine before each operation of a plan, and looks at what it finds when it starts again."""

    place: Path
    make: Make
    every: int = 1
    since: int = 0  # how many saves it does not look at
    disk_of: Callable[[Path, Stop], Torn] = Torn
    done: list[Save] = field(default_factory=list)
    going: Save = PLAN[0]
    points: int = 0
    looked: int = 0

    def run(self) -> int:
        """How many points there were."""
        self.disk = self.disk_of(self.place / "disk", self.crash)
        self.disk.root.mkdir()
        folder = self.disk.root / "run" / "checkpoints"
        for self.going in PLAN:
            saved = self.make(folder, self.disk).save(self.going.snapshot(), self.going.protect)
            self.done.append(self.going)
            assert saved == folder / f"step-{self.going.step:07}"
            self.crash("nothing", saved)
        return self.points

    def crash(self, operation: str, path: Path) -> None:
        self.points += 1
        if self.points % self.every or len(self.done) < self.since:
            return
        for fate in fates(self.points):
            target = self.place / "found"
            self.disk.leave(target, fate)
            try:
                self.look(self.make(target / "run" / "checkpoints", HURRIED))
            except Exception as error:
                before = f"crash before {operation} {path.name} of {self.going}, {fate.name}"
                raise AssertionError(f"{before}: {error}") from error
            shutil.rmtree(target)
            self.looked += 1

    def look(self, after: Store) -> None:
        latest = after.latest()
        assert all(after.verify(step) == [] for step in after.steps()), "a checkpoint's name stands for half of one"
        if self.done:
            assert latest is not None, "nothing is left"
            assert latest[0].step >= max(save.step for save in self.done), "the newest is lost"
            new = self.going.step in after.steps()
            assert new or after.steps() == list(self.done[-1].left), "something was deleted before the new one is there"
            for step in set(self.done[-1].left) & set(self.going.left):
                assert any(same(after.load(step), one) for one in self.either(step)), f"step {step} is another"
        self.go_on(after)

    def either(self, step: int) -> list[Snapshot]:
        """What a step may be: as it was promised, or as it is being saved again."""
        promised = [save for save in self.done if save.step == step][-1:]
        return [save.snapshot() for save in [*promised, self.going] if save.step == step]

    def go_on(self, after: Store) -> None:
        """The next save works, keeps what it should, and cleans up."""
        before = after.steps()
        after.save(snapshot(70))
        assert leftovers(after) == [], "leftovers stay"
        assert after.steps() == [*before, 70][-2:], "it keeps others than the last two"


PROCESSES = 2


class SharedStore(Store):
    """Saves as several processes do, one of them after the other."""

    def save(self, snapshot: Snapshot, protect: Collection[int] = ()) -> Path:
        own = shares(snapshot)
        with self.writing(snapshot.step) as part:
            files = {
                **self.written_by_all(part, own),
                **self.write_files(part, {**indexes(own), **state_file(snapshot)}),
            }
            return self.complete(part, snapshot.step, files, protect)

    def written_by_all(self, part: Path, own: Sequence[Parts]) -> dict[str, FileDigest]:
        found: dict[str, FileDigest] = {}
        for rank, tensors in enumerate(own):
            found |= self.write_files(part, shard_files(tensors, rank, PROCESSES))
        return found


def shares(snapshot: Snapshot) -> list[Parts]:
    """What each process writes of a checkpoint."""
    owner = {part: owners(named, PROCESSES) for part, named in snapshot.tensors.items()}
    return [
        {
            part: {name: x for name, x in named.items() if owner[part][name] == rank}
            for part, named in snapshot.tensors.items()
        }
        for rank in range(PROCESSES)
    ]


def indexes(own: Sequence[Parts]) -> Contents:
    return index_files(
        [{part: {name: x.nbytes for name, x in named.items()} for part, named in one.items()} for one in own]
    )


def shared_store(folder: Path, disk: Disk = HURRIED) -> Store:
    return SharedStore(folder, keep=2, disk=disk)


class Forgetful(Torn):
    """Says that it has flushed, and has not, where it `forgets`."""

    def __init__(self, root: Path, stop: Stop, forgets: Callable[[Path], bool]):
        super().__init__(root, stop)
        self.forgets = forgets

    def flush(self, handle: int) -> None:
        if not self.forgets(self.files[handle][0]):
            super().flush(handle)

    def flush_folder(self, folder: Path) -> None:
        if not self.forgets(folder):
            super().flush_folder(folder)


class Late(Torn):
    """Flushes bytes only after their folder has its name."""

    def __init__(self, root: Path, stop: Stop):
        super().__init__(root, stop)
        self.owed: list[File] = []

    def flush(self, handle: int) -> None:
        self.owed.append(self.files[handle][1])

    def flush_folder(self, folder: Path) -> None:
        super().flush_folder(folder)
        while folder.name == "checkpoints" and self.owed:
            self.stop("flush", folder)
            file = self.owed.pop()
            file.safe = bytes(file.live)


STORES = {"one process": store, "several": shared_store}


@pytest.mark.slow
@pytest.mark.parametrize("make", STORES.values(), ids=STORES)
def test_no_crash_loses_what_was_saved(memory: Path, make: Make) -> None:
    crashes = Crashes(memory, make, every=3)
    assert crashes.run() >= 200
    assert crashes.looked >= 4 * 60


@pytest.mark.proof
@pytest.mark.parametrize("make", STORES.values(), ids=STORES)
def test_no_crash_at_any_operation_loses_what_was_saved(memory: Path, make: Make) -> None:
    crashes = Crashes(memory, make)
    assert crashes.run() * 4 == crashes.looked


class Crash(BaseException):
    """The machine stops: nothing is done after it, not even cleaning up."""


def crash_again_and_again(place: Path, times: int, disk_of: Callable[[Path, Stop], Torn] = Torn) -> None:
    """Each life begins with what the one before left, and may end while that is being tidied up."""
    draw, promised, version = random.Random(times), Save(0, 0, (), ()), 0
    for life in range(times):
        left = draw.randint(1, 90)  # operations

        def stop(operation: str, path: Path) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Crash

        disk = disk_of(place / f"{life}", stop)
        going = promised
        with suppress(Crash):
            while True:
                version += 1
                going = Save(promised.step + draw.randint(0, 1), version, (), ())
                store(disk.root / "checkpoints", disk).save(going.snapshot())
                promised = going
        disk.leave(place / f"{life + 1}", draw.choice(list(fates(life))))
        shutil.rmtree(disk.root)
        latest = store(place / f"{life + 1}" / "checkpoints").latest()
        if promised.version:
            assert latest is not None, "nothing is left"
            assert latest[1] == [], "a checkpoint's name stands for half of one"
            assert any(same(latest[0], one.snapshot()) for one in (promised, going)), "the newest is lost"
            promised = next(one for one in (promised, going) if same(latest[0], one.snapshot()))


@pytest.mark.slow
def test_no_crash_after_a_crash_loses_what_was_saved(memory: Path) -> None:
    (memory / "0").mkdir()
    crash_again_and_again(memory, 60)


@pytest.mark.proof
def test_a_thousand_crashes_in_a_row_lose_nothing(memory: Path) -> None:
    (memory / "0").mkdir()
    crash_again_and_again(memory, 1000)


FORGOTTEN: dict[str, Callable[[Path], bool]] = {
    "tensors": lambda path: path.name == "optimiser.safetensors",
    "state": lambda path: path.name == "state.json",
    "manifest": lambda path: path.name == MANIFEST,
    "names in the new folder": lambda path: path.name.startswith(".part-"),
    "names of checkpoints": lambda path: path.name == "checkpoints",
    "the run's folder": lambda path: path.name == "run",
}


@pytest.mark.slow
@pytest.mark.parametrize("what", list(FORGOTTEN)[:-1])
def test_a_flush_forgotten_again_and_again_is_noticed(memory: Path, what: str) -> None:
    (memory / "0").mkdir()
    with pytest.raises((AssertionError, UserError)):
        crash_again_and_again(memory, 60, lambda root, stop: Forgetful(root, stop, FORGOTTEN[what]))


@pytest.mark.slow
@pytest.mark.parametrize("what", FORGOTTEN)
def test_a_forgotten_flush_is_noticed(memory: Path, what: str) -> None:
    with pytest.raises(AssertionError, match="crash before"):
        Crashes(memory, store, 2, 0, lambda root, stop: Forgetful(root, stop, FORGOTTEN[what])).run()


FORGOTTEN_BY_SEVERAL: dict[str, Callable[[Path], bool]] = {
    "tensors of the second": lambda path: path.name == "optimiser-00002-of-00002.safetensors",
    "index": lambda path: path.name == "model.safetensors.index.json",
    "manifest": FORGOTTEN["manifest"],
}


@pytest.mark.slow
@pytest.mark.parametrize("what", FORGOTTEN_BY_SEVERAL)
def test_a_forgotten_flush_of_one_of_several_is_noticed(memory: Path, what: str) -> None:
    with pytest.raises(AssertionError, match="crash before"):
        Crashes(memory, shared_store, 2, 0, lambda root, stop: Forgetful(root, stop, FORGOTTEN_BY_SEVERAL[what])).run()


class WaitsForNobody(SharedStore):
    """Completes a checkpoint before the last process has written."""

    def save(self, snapshot: Snapshot, protect: Collection[int] = ()) -> Path:
        own = shares(snapshot)
        late = shard_files(own[-1], PROCESSES - 1, PROCESSES)
        with self.writing(snapshot.step) as part:
            files = self.write_files(part, shard_files(own[0], 0, PROCESSES))
            files |= {name: digest_of(data) for name, data in shard_files(own[-1], PROCESSES - 1, PROCESSES).items()}
            files |= self.write_files(part, {**indexes(own), **state_file(snapshot)})
            place = self.complete(part, snapshot.step, files, protect)
            self.write_files(place, late)
            return place


def digest_of(data: Iterable[memoryview]) -> FileDigest:
    whole = b"".join(data)
    return FileDigest(len(whole), hashlib.sha256(whole).hexdigest())


@pytest.mark.slow
def test_a_process_that_nobody_waits_for_is_noticed(memory: Path) -> None:
    with pytest.raises(AssertionError, match="crash before"):
        Crashes(memory, lambda folder, disk: WaitsForNobody(folder, 2, disk), 1, 0).run()


@pytest.mark.slow
def test_a_name_that_comes_before_the_bytes_is_noticed(memory: Path) -> None:
    with pytest.raises(AssertionError, match="crash before"):
        Crashes(memory, store, 1, 0, Late).run()


class DeletesFirst(Store):
    """Makes room before the new checkpoint is there."""

    def save(self, snapshot: Snapshot, protect: Collection[int] = ()) -> Path:
        old = [step for step in self.steps() if step < snapshot.step]
        self.remove([self.folder_of(step) for step in old[: 1 - self.keep] if step not in protect])
        return super().save(snapshot, protect)


class DeletesInPlace(Store):
    """Deletes file by file under the checkpoint's own name."""

    def remove(self, places: Any) -> None:
        for place in places:
            remove_tree(self.disk, place)


class ReplacesByDeleting(Store):
    """Deletes the old folder of a step before the new one takes its name."""

    def publish(self, part: Path, step: int) -> Path:
        if self.folder_of(step).exists():
            self.remove([self.folder_of(step)])
        return super().publish(part, step)


class FillsInPlace(Store):
    """Writes into the folder that already has the checkpoint's name."""

    @contextmanager
    def writing(self, step: int) -> Generator[Path]:
        with super().writing(step) as part:
            if self.folder_of(step).exists():
                yield part
            else:
                remove_tree(self.disk, part)
                self.disk.make(self.folder_of(step))
                yield self.folder_of(step)

    def publish(self, part: Path, step: int) -> Path:
        return part if part == self.folder_of(step) else super().publish(part, step)


class LeavesLeftovers(Store):
    def remove_remains(self) -> None:
        pass


class CountsBadly(Store):
    """Keeps the oldest."""

    def remove_outdated(self, newest: int, protect: Any) -> None:
        self.remove([self.folder_of(step) for step in self.steps()[self.keep :] if step not in protect])


DEFECTS: list[tuple[type[Store], int]] = [  # and how many saves they do not spoil
    (DeletesFirst, 4),
    (DeletesInPlace, 4),
    (ReplacesByDeleting, 3),
    (FillsInPlace, 0),
    (LeavesLeftovers, 0),
    (CountsBadly, 1),
]


@pytest.mark.long
@pytest.mark.parametrize(("defect", "since"), DEFECTS)
def test_a_store_that_orders_things_otherwise_is_noticed(memory: Path, defect: type[Store], since: int) -> None:
    with pytest.raises(AssertionError, match="crash before"):
        Crashes(memory, lambda folder, disk: defect(folder, 2, disk), 1, since).run()


def test_the_order_of_a_save(tmp_path: Path) -> None:
    """Bytes, the manifest last; the names; the checkpoint's name; only then what is deleted."""
    asked: list[str] = []
    disk = Torn(tmp_path, lambda operation, path: asked.append(f"{operation} {told(path)}"))
    one = Store(tmp_path / "checkpoints", keep=1, disk=disk)
    one.save(snapshot(1))
    asked.clear()
    one.save(snapshot(2))
    shortened = [asked[i] for i in range(len(asked)) if asked[i : i + 1] != asked[i - 1 : i]]
    assert shortened == [
        "flush " + told(tmp_path),
        "make .part",
        *(f"{do} {name}" for name in ("model.safetensors", "optimiser.safetensors", "state.json", MANIFEST)
          for do in ("create", "write", "flush")),
        "flush .part",
        "rename step-0000002",
        "flush checkpoints",
        "rename .old",
        "flush checkpoints",
        *(f"remove {name}" for name in (MANIFEST, "model.safetensors", "optimiser.safetensors", "state.json")),
        "remove .old",
    ]  # fmt: skip


def told(path: Path) -> str:
    return path.name.partition("-")[0] if path.name.startswith(".") else path.name


def save_for_ever(folder: Path, told: int) -> None:
    """What a run does, as fast as it can; each step is told after it was saved."""
    one = Store(folder, keep=2)
    latest = one.latest()
    step = latest[0].step if latest else 0
    while True:
        step += 1
        one.save(snapshot(step))
        os.write(told, step.to_bytes(4, "little"))


def killed(folder: Path, seconds: float, first: bool) -> int:
    """The last step that a process promised before it was killed, some time after its `first` save or its start."""
    reading, writing = os.pipe()
    process = multiprocessing.get_context("fork").Process(target=save_for_ever, args=(folder, writing))
    process.start()
    os.close(writing)
    told = os.read(reading, 4) if first else b""
    time.sleep(seconds)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    with open(reading, "rb") as pipe:
        return int.from_bytes((told + pipe.read())[-4:], "little")


def survive_kills(folder: Path, times: int) -> None:
    draw, promised = random.Random(times), 0
    one = Store(folder, keep=2)
    for life in range(times):
        promised = max(promised, killed(folder, draw.uniform(0, 0.1), life % 3 == 0))
        latest = one.latest()
        if promised:
            assert latest is not None
            assert latest[0].step >= promised
            assert latest[1] == []
            assert same(latest[0], snapshot(latest[0].step))
    assert promised >= times / 3
    one.save(snapshot(promised + 2))
    assert leftovers(one) == []


@pytest.mark.slow
def test_killed_processes_lose_nothing(tmp_path: Path) -> None:
    survive_kills(tmp_path, 3)


@pytest.mark.proof
def test_forty_killed_processes_lose_nothing(tmp_path: Path) -> None:
    survive_kills(tmp_path, 40)
