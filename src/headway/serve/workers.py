"""Several processes behind one port: a parent starts workers, replaces those that die, and ends them together.

No worker can keep the parent from ending: one that has not ended in time after a signal is killed.

Workers inherit the parent's listening socket, so that all connections wait in one queue for whichever worker is free.
With SO_REUSEPORT each worker would have a queue of its own: connections would wait for a busy one while another is
idle, and be lost with one that dies.  The parent loads no model and has no threads, so it can fork at any time.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from functools import partial
from math import inf
from multiprocessing import get_context
from multiprocessing.connection import wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from shutil import rmtree
from socket import socket, socketpair
from threading import Thread
from time import monotonic

from headway.errors import UserError
from headway.serve.counters import forget_gauges
from headway.serve.run_server import ServerProcess
from headway.system import handled

RESTART_SECONDS = 5.0  # between two starts of a worker, at least
LEAVE_SECONDS = 20.0  # for a worker to end: after its last answer, and beyond the time that requests may take
SIGNALS = (signal.SIGTERM, signal.SIGINT)
Start = Callable[[ServerProcess], None]


class WorkerStage(Enum):
    """What a worker reports."""

    READY = "models can be asked for"
    ANSWERED = "all requests were answered, and it ends"


Report = tuple[int, WorkerStage | UserError]  # of the worker of a number; an error ends the server


class Worker:
    """One of the processes, and whatever takes its place."""

    def __init__(self, number: int, folder: Path):
        self.number, self.name = number, f"worker {number + 1}"
        self.folder, self.counters = folder / f"worker-{number + 1}", folder / f"worker-{number + 1}.json"
        self.process: ForkProcess | None = None
        self.due = -inf  # not started again before
        self.deadline, self.late = inf, ""  # when it is killed, and what is said of it then

    def start(self, work: Callable[[Worker], None]) -> None:
        rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        self.due, self.deadline = monotonic() + RESTART_SECONDS, inf
        self.process = get_context("fork").Process(target=work, args=(self,), daemon=True)
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until the worker has let go of the parent's handlers
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def must_end(self, seconds: float, after: str) -> None:
        """It is killed where it has not ended in so many seconds, or sooner if that was said before."""
        if (deadline := monotonic() + seconds) < self.deadline:
            self.deadline, self.late = deadline, f"has not ended {seconds:g} seconds after {after} and is killed"

    def reap(self) -> str:
        """How its process has ended."""
        assert self.process is not None
        self.process.join()
        code, self.process = self.process.exitcode or 0, None
        forget_gauges(self.counters)
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


class Supervisor:
    """The parent.  `start` is what a worker does; `ready` is called when the first of them can answer.

    A request takes at most `timeout` seconds.
    """

    def __init__(
        self, count: int, listening: socket, folder: Path, start: Start, ready: Callable[[], object], timeout: float
    ):
        self.workers = [Worker(number, folder) for number in range(count)]
        self.listening, self.start, self.ready, self.timeout = listening, start, ready, timeout
        self.reports, self.report = get_context("fork").Pipe(duplex=False)  # of `Report`
        self.alive, self.life = os.pipe()  # `life` is open as long as the parent lives
        self.ending, self.announced = False, False
        self.error: UserError | None = None
        self.code = 0

    @property
    def running(self) -> list[ForkProcess]:
        return [worker.process for worker in self.workers if worker.process is not None]

    def run(self) -> None:
        """Serves until a signal: the first lets requests end, a second leaves at once.

        The exit code is 1 where a worker had to be killed.
        """
        woken, wake = socketpair()
        wake.setblocking(False)
        signal.set_wakeup_fd(wake.fileno())
        with woken, wake, handled(signal.SIGTERM, ignore), handled(signal.SIGINT, ignore):
            try:
                while self.running or not self.ending:
                    self.turn(woken)
            finally:
                signal.set_wakeup_fd(-1)
                self.kill()
        if self.error is not None:
            raise self.error
        if self.code:
            raise SystemExit(self.code)

    def turn(self, woken: socket) -> None:
        """Starts who is due, and waits for whatever comes next."""
        stopped = [worker for worker in self.workers if worker.process is None and not self.ending]
        for worker in stopped:
            if worker.due <= monotonic():
                worker.start(self.work)
        times = [worker.due for worker in stopped if worker.process is None]
        times += [worker.deadline for worker in self.workers if worker.process is not None]
        pause = min(times, default=inf) - monotonic()
        found = wait([woken, self.reports, *(one.sentinel for one in self.running)], None if pause == inf else pause)
        for number in woken.recv(64) if woken in found else b"":
            self.end(number)
        while self.reports.poll():
            self.read_report(*self.reports.recv())
        for worker in self.workers:
            if worker.process is not None and worker.process.sentinel in found:
                how = worker.reap()
                if not self.ending:
                    say(f"{worker.name} {how} and is started again")
        self.kill_late()

    def read_report(self, number: int, told: WorkerStage | UserError) -> None:
        match told:
            case UserError() if not self.ending:
                self.error = told
                self.drain()
            case WorkerStage.READY if not self.announced:
                self.announced = True
                self.ready()
            case WorkerStage.ANSWERED:
                self.workers[number].must_end(LEAVE_SECONDS, "its last answer")
            case _:
                pass

    def end(self, number: int) -> None:
        if self.ending:
            self.kill()
            raise SystemExit(128 + number)
        self.drain()

    def drain(self) -> None:
        self.ending = True
        self.listening.close()  # or connections would wait for nobody
        for worker in self.workers:
            if worker.process is not None:
                worker.must_end(self.timeout + LEAVE_SECONDS, "it was asked to")
                worker.process.terminate()

    def kill_late(self) -> None:
        """Kills what has not ended in time; its sentinel tells the rest."""
        for worker in self.workers:
            if worker.process is not None and worker.deadline <= monotonic():
                say(f"{worker.name} {worker.late}")
                worker.process.kill()
                worker.deadline, self.code = inf, int(self.ending)

    def kill(self) -> None:
        for worker in self.workers:
            if worker.process is not None:
                worker.process.kill()
                worker.reap()

    def work(self, worker: Worker) -> None:
        """What a worker does, in a process of its own."""
        os.setpgrp()  # a terminal's Ctrl-C is for the parent
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        os.close(self.life)
        Thread(target=end_with_parent, args=(self.alive,), daemon=True).start()

        def report(told: WorkerStage | UserError) -> None:
            self.report.send((worker.number, told))

        ready, answered = (partial(report, stage) for stage in (WorkerStage.READY, WorkerStage.ANSWERED))
        process = ServerProcess(self.listening, worker.folder, ready, answered, worker.counters)
        try:
            self.start(process)
        except UserError as error:
            report(error)


def say(text: str) -> None:
    with suppress(OSError):  # a terminal that was closed is no reason to end the workers
        print(text, file=sys.stderr, flush=True)


def ignore(number: int, frame: object) -> None:
    """Signals are read from a socket."""


def end_with_parent(alive: int) -> None:
    """Answers what was asked and ends, where the parent was killed."""
    os.read(alive, 1)
    os.kill(os.getpid(), signal.SIGTERM)
