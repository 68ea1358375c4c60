"""Several processes behind one port: a parent starts workers, replaces those that die, and ends them together.

Workers inherit the parent's listening socket, so that all connections wait in one queue for whichever worker is free.
With SO_REUSEPORT each worker would have a queue of its own: connections would wait for a busy one while another is
idle, and be lost with one that dies.  The parent loads no model and has no threads, so it can fork at any time.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
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
SIGNALS = (signal.SIGTERM, signal.SIGINT)
Start = Callable[[ServerProcess], None]


class Worker:
    """One of the processes, and whatever takes its place."""

    def __init__(self, number: int, folder: Path):
        self.name, self.folder = f"worker {number}", folder / f"worker-{number}"
        self.counters = folder / f"worker-{number}.json"
        self.process: ForkProcess | None = None
        self.due = -inf  # not started again before

    def start(self, work: Callable[[Worker], None]) -> None:
        rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        self.due = monotonic() + RESTART_SECONDS
        self.process = get_context("fork").Process(target=work, args=(self,), daemon=True)
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until the worker has let go of the parent's handlers
        self.process.start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def reap(self) -> str:
        """How its process has ended."""
        assert self.process is not None
        self.process.join()
        code, self.process = self.process.exitcode or 0, None
        forget_gauges(self.counters)
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


class Supervisor:
    """The parent.  `start` is what a worker does; `ready` is called when the first of them can answer."""

    def __init__(self, count: int, listening: socket, folder: Path, start: Start, ready: Callable[[], object]):
        self.workers = [Worker(number + 1, folder) for number in range(count)]
        self.listening, self.start, self.ready = listening, start, ready
        self.reports, self.report = get_context("fork").Pipe(duplex=False)  # None: ready, or what stands against it
        self.alive, self.life = os.pipe()  # `life` is open as long as the parent lives
        self.ending, self.announced = False, False
        self.error: UserError | None = None

    @property
    def running(self) -> list[ForkProcess]:
        return [worker.process for worker in self.workers if worker.process is not None]

    def run(self) -> None:
        """Serves until a signal: the first lets requests end, a second leaves at once."""
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

    def turn(self, woken: socket) -> None:
        """Starts who is due, and waits for whatever comes next."""
        stopped = [worker for worker in self.workers if worker.process is None and not self.ending]
        for worker in stopped:
            if worker.due <= monotonic():
                worker.start(self.work)
        pause = min((worker.due - monotonic() for worker in stopped if worker.process is None), default=None)
        found = wait([woken, self.reports, *(one.sentinel for one in self.running)], pause)
        for number in woken.recv(64) if woken in found else b"":
            self.end(number)
        while self.reports.poll():
            self.read_report(self.reports.recv())
        for worker in self.workers:
            if worker.process is not None and worker.process.sentinel in found:
                how = worker.reap()
                if not self.ending:
                    print(f"{worker.name} {how} and is started again", file=sys.stderr, flush=True)

    def read_report(self, error: UserError | None) -> None:
        if error is not None and not self.ending:
            self.error = error
            self.drain()
        elif error is None and not self.announced:
            self.announced = True
            self.ready()

    def end(self, number: int) -> None:
        if self.ending:
            self.kill()
            raise SystemExit(128 + number)
        self.drain()

    def drain(self) -> None:
        self.ending = True
        self.listening.close()  # or connections would wait for nobody
        for process in self.running:
            process.terminate()

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
        process = ServerProcess(self.listening, worker.folder, lambda: self.report.send(None), worker.counters)
        try:
            self.start(process)
        except UserError as error:
            self.report.send(error)


def ignore(number: int, frame: object) -> None:
    """Signals are read from a socket."""


def end_with_parent(alive: int) -> None:
    """Answers what was asked and ends, where the parent was killed."""
    os.read(alive, 1)
    os.kill(os.getpid(), signal.SIGTERM)
