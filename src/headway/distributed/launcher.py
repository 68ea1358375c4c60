"""The parent of the processes of a run: it starts them as torchrun does, passes signals on, and ends them together.

It imports nothing heavy.  A process that fails tells the others, and process 0 says why (`world.py`); what is left
after that, such as a process that is stopped, is killed.  With `supervise` a run that has lost a process is started
again from its last checkpoint, as often as there is a new checkpoint in between; a mistake (code 2) is not tried again.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from time import monotonic, sleep
from types import FrameType

from headway.distributed.world import (
    ADDRESS,
    JOIN_SECONDS,
    LOCAL_RANK,
    LOCAL_SIZE,
    PORT,
    RANK,
    WORLD_SIZE,
    read_number,
)
from headway.errors import UserError
from headway.system import CHECKPOINTS, die_with_parent, handled, share_threads

MAX_PROCESSES = 256
LOOPBACK = "127.0.0.1"
GRACE_SECONDS = 45.0  # after one was killed: more than another one needs to miss it, and to say so
LEAVE_SECONDS = 10.0  # after one has ended by itself and told the others: more than they need to follow
POLL_SECONDS = 0.05
MEET = """
from headway.distributed.world import joined
with joined() as world:
    assert world.totals(1.0) == [2.0]
"""
LATEST = f"**/{CHECKPOINTS}/step-*"
MAX_RESTARTS = 3  # in a row, without a new checkpoint
ASKED = (0, 2, 128 + signal.SIGINT, 128 + signal.SIGTERM)  # exit codes after which nothing is started again


def launch(words: Sequence[str], processes: int, folder: Path | None = None, *, supervise: bool = False) -> int:
    """Runs the words of a command in so many processes; the exit code."""
    if not 1 <= processes <= MAX_PROCESSES:
        raise UserError(f"processes={processes}", allowed=f"1 to {MAX_PROCESSES}")
    if WORLD_SIZE in os.environ:
        said = f"{WORLD_SIZE} is set, as torchrun does, which starts and watches processes itself"
        raise UserError(said, do="leave out processes= and supervise=")
    if supervise and folder is None:
        raise UserError("supervise= needs the folder of the run", do="give out= DIR")
    words, restarts, before = plain(words), 0, newest(folder)
    while True:
        attempt = Processes(words, processes)
        codes = attempt.run()
        killed = 1 if attempt.asked is None else 128 + attempt.asked  # before it could end by itself
        code = next((code for code in codes if code > 0), killed if any(codes) else 0)
        if not supervise or attempt.asked is not None or code in ASKED:
            return code
        restarts, before = (restarts + 1 if newest(folder) == before else 1), newest(folder)
        if restarts > MAX_RESTARTS:
            said = f"the run ended {MAX_RESTARTS + 1} times without a new checkpoint"
            raise UserError(said, do="see what is said above")
        print(f"{how_ended(codes)}; the run is started again from its last checkpoint", file=sys.stderr, flush=True)
        words = words if "--resume" in words else [*words[:1], "--resume", *words[1:]]


def plain(words: Sequence[str]) -> list[str]:
    """The words of a command without what is for the parent alone."""
    found, left = list[str](), iter(words)
    for word in left:
        if word == "--processes":
            next(left, None)
        elif word != "--supervise" and not word.startswith(("--processes=", "--supervise=")):
            found.append(word)
    return found


def newest(folder: Path | None) -> str:
    """The latest checkpoint in the folder of a run, or of the runs of a cross-validation."""
    found = [] if folder is None else [(place.stat().st_mtime_ns, str(place)) for place in folder.glob(LATEST)]
    return max(found, default=(0, ""))[1]


def how_ended(codes: Sequence[int]) -> str:
    """What is known of the processes that have not ended well."""
    killed = [
        f"process {rank} was killed by {signal.Signals(-code).name}" for rank, code in enumerate(codes) if code < 0
    ]
    ended = [f"process {rank} ended with code {code}" for rank, code in enumerate(codes) if code > 0]
    return (killed or ended)[0]


class Processes:
    """The processes of one attempt.  `asked` is the signal that ends them, if any."""

    def __init__(self, words: Sequence[str], count: int):
        self.words, self.count, self.port = words, count, free_port() if count > 1 else None
        if count > 1:
            share_threads(count)
        self.running = list[subprocess.Popen[bytes]]()
        self.asked: int | None = None

    def run(self) -> list[int]:
        """Starts them and waits until all have ended; their exit codes."""
        with ExitStack() as handlers:
            for number in (signal.SIGTERM, signal.SIGINT):
                handlers.enter_context(handled(number, self.pass_on))
            try:
                for rank in range(self.count):
                    self.running.append(self.start(rank))
                    if self.asked is not None:  # while it was no process of Python's yet, a signal passed it by
                        self.send(self.asked)
                        break
                return self.wait()
            finally:
                self.kill()

    def start(self, rank: int) -> subprocess.Popen[bytes]:
        variables = {**os.environ, **({} if self.port is None else variables_of(rank, self.count, self.port))}
        command = [sys.executable, "-m", "headway", *self.words]
        return subprocess.Popen(command, env=variables, preexec_fn=die_with_parent)

    def wait(self) -> list[int]:
        ended: float | None = None  # when the first of them did
        while None in (codes := [one.poll() for one in self.running]):
            ended = monotonic() if ended is None and any(codes) else ended
            told = any(code is not None and code > 0 for code in codes)
            if ended is not None and monotonic() - ended > (LEAVE_SECONDS if told else GRACE_SECONDS):
                break
            sleep(POLL_SECONDS)
        self.kill()
        return [one.wait() for one in self.running]

    def pass_on(self, number: int, _: FrameType | None) -> None:
        self.asked = number
        if number != signal.SIGINT or not in_foreground():  # to which a terminal sends Ctrl-C itself
            self.send(number)

    def send(self, number: int) -> None:
        for one in self.running:
            if one.poll() is None:
                one.send_signal(number)

    def kill(self) -> None:
        for one in self.running:
            if one.poll() is None:
                one.kill()


def in_foreground() -> bool:
    """Whether this process and those that it starts are what a terminal's Ctrl-C is for."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:  # no terminal, or no longer
        return False


def variables_of(rank: int, count: int, port: int) -> dict[str, str]:
    """What torchrun would set for one of the processes of this machine."""
    loopback = {ADDRESS: LOOPBACK, "GLOO_SOCKET_IFNAME": "lo" if sys.platform == "linux" else "lo0"}
    numbers = {RANK: rank, LOCAL_RANK: rank, WORLD_SIZE: count, LOCAL_SIZE: count, PORT: port}
    return loopback | {name: str(number) for name, number in numbers.items()}


def rendezvous_problem() -> str | None:
    """Why two processes of this machine cannot train together; None where they have met and added two numbers."""
    command, port = [sys.executable, "-c", MEET], free_port()
    both = [
        subprocess.Popen(command, env={**os.environ, **variables_of(rank, 2, port)}, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    try:
        said = [one.communicate(timeout=2 * JOIN_SECONDS)[1].strip() for one in both]
    except subprocess.TimeoutExpired:
        return f"they have not met in {2 * JOIN_SECONDS:.0f} seconds"
    finally:
        for one in both:
            one.kill()
    failed = [text.splitlines()[-1:] for one, text in zip(both, said, strict=True) if one.wait() != 0]
    return None if not failed else next(iter(failed[0]), "one of them ended without a word")


def free_port() -> int:
    """The port where the processes meet: as the environment says, or any that is free."""
    wanted = read_number(PORT) or 0
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, wanted))
        except (OverflowError, OSError) as error:
            why = "is no port" if isinstance(error, OverflowError) else f"cannot be used: {error.strerror}"
            raise UserError(f"{PORT}={wanted} {why}", do=f"give another, or unset {PORT}") from None
        return probe.getsockname()[1]
