"""Checkpoints that are written beside the training: the same bytes, the same promise, and no error is lost."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
import torch

from headway.training import saving
from headway.training.interruption import Interruption
from headway.training.saving import BackgroundSaver
from headway.training.store import Snapshot, Store
from tests.train.disks import HURRIED, Hurried, same, snapshot
from tests.train.test_run import Bench


class Held(Hurried):
    """Writes nothing before it is let go, and fails where it is told to."""

    def __init__(self) -> None:
        self.free, self.begun, self.full = Event(), Event(), False

    def create(self, file: Path) -> int:
        self.begun.set()
        assert self.free.wait(60)
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().create(file)


@pytest.fixture
def disk() -> Iterator[Held]:
    held = Held()
    yield held
    held.free.set()


def files(folder: Path) -> dict[str, bytes]:
    return {str(one.relative_to(folder)): one.read_bytes() for one in sorted(folder.rglob("*.*")) if one.is_file()}


def test_the_bytes_are_those_of_a_save_that_is_waited_for(tmp_path: Path) -> None:
    there, here = Store(tmp_path / "there", keep=2, disk=HURRIED), Store(tmp_path / "here", keep=2, disk=HURRIED)
    with BackgroundSaver(here) as saver:
        for step in (10, 20, 30):
            there.save(snapshot(step), protect=(10,))
            saver.save(snapshot(step), (10,))
            assert saver.written(wait=True) == [step]
    assert files(tmp_path / "there") == files(tmp_path / "here")
    assert here.steps() == [10, 20, 30]


def test_further_steps_change_nothing_of_what_is_being_written(tmp_path: Path, disk: Held) -> None:
    taken, kept = snapshot(10), snapshot(10)
    with BackgroundSaver(Store(tmp_path, disk=disk)) as saver:
        saver.save(taken, ())
        assert disk.begun.wait(60)
        assert saver.written(wait=False) == []
        assert Store(tmp_path).steps() == []  # it has no name before it is whole
        for part in taken.tensors.values():
            for tensor in part.values():
                tensor.zero_()
        disk.free.set()
    assert saver.written(wait=False) == [10]
    assert same(Store(tmp_path).load(10), kept)


def test_without_memory_for_a_copy_the_training_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "memory_limit", lambda: 1)
    monkeypatch.setattr(saving, "copied", None)
    with BackgroundSaver(Store(tmp_path, disk=HURRIED)) as saver:
        saver.save(snapshot(10), ())
        assert Store(tmp_path).steps() == [10]
        assert saver.written(wait=False) == [10]


def test_an_error_of_the_writer_is_raised_and_what_was_saved_stays(tmp_path: Path, disk: Held) -> None:
    Store(tmp_path, disk=HURRIED).save(snapshot(10))
    disk.full = True
    disk.free.set()
    with BackgroundSaver(Store(tmp_path, disk=disk)) as saver:
        saver.save(snapshot(20), ())
        with pytest.raises(OSError, match="No space left"):
            saver.written(wait=True)
        assert saver.written(wait=True) == []  # once
    assert Store(tmp_path).steps() == [10]


def test_a_run_ends_with_the_error_of_its_writer(tmp_path: Path, disk: Held) -> None:
    run = Bench(tmp_path).made()
    disk.full = True
    disk.free.set()
    run.saver = BackgroundSaver(Store(tmp_path / "checkpoints", disk=disk))
    with pytest.raises(OSError, match="No space left"):
        run.run(Interruption())
    assert run.state.step < run.limits.steps


def test_whoever_interrupts_waits_for_the_checkpoint(tmp_path: Path, disk: Held) -> None:
    made, asked = Bench(tmp_path), Interruption()
    run = made.made()
    run.saver = BackgroundSaver(Store(tmp_path / "checkpoints", keep=2, disk=disk))
    learn = run.learner.learn

    def noted(step: int, batches: object) -> object:
        if step == run.limits.checkpoint_every + 1:  # the save of the step before is under way
            assert disk.begun.wait(60)
            assert run.store.steps() == []
            asked.asked = 15
            disk.free.set()
        return learn(step, batches)  # type: ignore[arg-type]

    run.learner.learn = noted  # type: ignore[assignment, method-assign]
    assert run.run(asked).signal == 15
    every = run.limits.checkpoint_every
    assert run.store.steps() == made.told.saves == [every, every + 1]
    assert run.store.verify(every) == run.store.verify(every + 1) == []


def test_tensors_that_share_memory_are_copied_as_they_are(tmp_path: Path) -> None:
    whole = torch.arange(12.0).view(3, 4)
    with BackgroundSaver(Store(tmp_path, disk=HURRIED)) as saver:
        saver.save(Snapshot(1, {"model": {"turned": whole.T, "row": whole[1]}}, {}), ())
    found = Store(tmp_path).load(1).tensors["model"]
    assert torch.equal(found["turned"], whole.T)
    assert torch.equal(found["row"], whole[1])
