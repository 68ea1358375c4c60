"""Ctrl-C and SIGTERM end a run after its step, with everything saved; a second one ends it at once."""

from __future__ import annotations

import multiprocessing
import os
import random
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from headway.training.interruption import TOGETHER, Interruption, deaf
from headway.training.store import Store
from tests.train.disks import leftovers, same, snapshot

FORK = multiprocessing.get_context("fork")
PATIENCE = 120  # seconds; only a test that fails waits so long
BOTH = [signal.SIGINT, signal.SIGTERM]


@pytest.mark.parametrize("number", BOTH)
def test_a_signal_is_a_wish(monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    monkeypatch.setattr("headway.training.interruption.monotonic", lambda: 0.0)
    before = signal.getsignal(number)
    with Interruption() as interruption:
        assert (interruption.asked, interruption.code) == (None, 0)
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)  # passed on by a wrapper: no second wish
        assert (interruption.asked, interruption.code) == (number, 128 + number)
    assert signal.getsignal(number) is before


def test_handlers_come_back_after_an_error() -> None:
    before = [signal.getsignal(number) for number in BOTH]
    with pytest.raises(ZeroDivisionError), Interruption():
        print(1 / 0)
    assert [signal.getsignal(number) for number in BOTH] == before


def test_in_another_thread_nothing_is_touched() -> None:
    seen: list[object] = []

    def enter() -> None:
        with Interruption() as interruption:
            seen.append((interruption.asked, signal.getsignal(signal.SIGINT)))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [(None, signal.getsignal(signal.SIGINT))]


# Processes.  Each tells through a pipe when it has begun and what it has done.


class Child:
    """A process of its own group, as a shell would start it."""

    def __init__(self, work: Callable[[int], int]):
        self.reading, writing = os.pipe()

        def run() -> None:
            os.setsid()
            sys.exit(work(writing))

        self.process = FORK.Process(target=run)
        self.process.start()
        os.close(writing)
        assert self.process.pid is not None
        self.pid = self.process.pid

    def next(self) -> int | None:
        """The next number that it tells; None when it and its workers have ended, if need be by force."""
        ready, _, _ = select.select([self.reading], [], [], PATIENCE)
        if not ready:
            os.killpg(self.pid, signal.SIGKILL)
        data = os.read(self.reading, 4)
        return int.from_bytes(data, "little") if data else None

    def ended(self) -> tuple[int | None, int | None]:
        """The last number that it told, and its exit code."""
        last = None
        while (told := self.next()) is not None:
            last = told
        self.process.join()
        os.close(self.reading)
        return last, self.process.exitcode


def tell(pipe: int, number: int) -> None:
    os.write(pipe, number.to_bytes(4, "little"))


def train(folder: Path, pipe: int) -> int:
    """A run that saves every third step, and whose steps take time."""
    store = Store(folder, keep=2)
    latest = store.latest()
    step = latest[0].step if latest else 0
    with Interruption() as interruption:
        tell(pipe, step)
        while interruption.asked is None:
            step += 1
            time.sleep(0.001)
            if step % 3 == 0:
                store.save(snapshot(step))
        store.save(snapshot(step))
        tell(pipe, step)
    return interruption.code


def preempted(folder: Path, times: int) -> None:
    draw, store, last = random.Random(times), Store(folder, keep=2), 0
    for _ in range(times):
        child, number = Child(lambda pipe: train(folder, pipe)), draw.choice(BOTH)
        assert child.next() == last
        time.sleep(draw.uniform(0, 0.1))
        os.kill(child.pid, number)
        last, code = child.ended()
        assert code == 128 + number
        latest = store.latest()
        assert latest is not None
        assert last is not None
        assert latest[1] == []
        assert same(latest[0], snapshot(last))
        assert leftovers(store) == []


@pytest.mark.slow
def test_whenever_a_run_is_asked_to_end_it_saves_and_says_so(tmp_path: Path) -> None:
    preempted(tmp_path, 10)


@pytest.mark.proof
def test_asked_a_hundred_times_to_end_it_saves(tmp_path: Path) -> None:
    preempted(tmp_path, 100)


@pytest.mark.slow
@pytest.mark.parametrize("number", BOTH)
def test_a_second_signal_leaves_at_once(number: signal.Signals) -> None:
    def work(pipe: int) -> int:
        with Interruption() as interruption:
            tell(pipe, 1)
            while interruption.asked is None:
                time.sleep(0.01)
            tell(pipe, 2)
            time.sleep(2 * PATIENCE)
        return 0

    child = Child(work)
    assert child.next() == 1
    os.kill(child.pid, number)
    assert child.next() == 2
    time.sleep(2 * TOGETHER)
    os.kill(child.pid, number)
    assert child.ended() == (None, 128 + number)


# Workers.


def load(pipe: int, prepare: Callable[[int], None]) -> int:
    """A loop over a loader with workers, which ends its step when it is asked to."""
    loader = DataLoader(range(10**6), num_workers=2, worker_init_fn=prepare)  # type: ignore[arg-type]
    with Interruption() as interruption:
        for number, _ in enumerate(loader):
            if number == 5:
                tell(pipe, 1)
            if interruption.asked is not None and number > 50:  # it goes on for a while, and the workers must too
                tell(pipe, 2)
                break
            time.sleep(0.005)
    return interruption.code


@pytest.mark.slow
@pytest.mark.parametrize("number", BOTH)
def test_workers_go_on_when_all_processes_are_asked_to_end(number: signal.Signals) -> None:
    child = Child(lambda pipe: load(pipe, deaf))
    assert child.next() == 1
    os.killpg(child.pid, number)
    assert child.ended() == (2, 128 + number)


@pytest.mark.slow
@pytest.mark.parametrize("lasting", [False, True])
def test_workers_end_with_a_run_that_leaves_its_loader_open(lasting: bool) -> None:
    def work(pipe: int) -> int:
        loader = DataLoader(range(100), num_workers=2, worker_init_fn=deaf, persistent_workers=lasting)  # type: ignore
        opened.append(iter(loader))
        next(opened[0])
        tell(pipe, 1)
        return 3

    opened: list[Any] = []  # nobody closes it before the process ends
    child = Child(work)
    assert child.next() == 1
    assert child.ended() == (None, 3)


@pytest.mark.slow
def test_workers_that_are_not_deaf_break_the_run() -> None:
    child = Child(lambda pipe: load(pipe, lambda worker: None))
    assert child.next() == 1
    os.killpg(child.pid, signal.SIGTERM)
    assert child.ended() == (None, 1)
