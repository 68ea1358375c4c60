"""The parent of several processes ends with a signal that comes before they can answer it."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
PATIENCE = 30  # seconds; only a test that fails waits so long
LAUNCH = """
import subprocess, sys, time
from itertools import count
from pathlib import Path
from headway.distributed import launcher

number = count()

def start(self, *rank):  # what takes long before it can answer a signal
    process = subprocess.Popen([sys.executable, "-c", STARTED, str(next(number))])
    while HOLD and not Path("goes on").exists():
        time.sleep(0.01)
    return process

launcher.Processes.start = start
sys.exit(launcher.launch(["train"], 2, Path("run"), supervise=SUPERVISE))
"""

STARTED = """
import signal, sys, time
from pathlib import Path
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback
Path(f"{sys.argv[1]} started").touch()
time.sleep(600)
"""
IGNORED = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"  # as a script starts what stands before &


def launched(folder: Path, *, before: str = "", hold: bool = False, supervise: bool = True) -> subprocess.Popen[str]:
    code = f"{before}HOLD, SUPERVISE, STARTED = {hold}, {supervise}, {STARTED!r}\n{LAUNCH}"
    kept = {name: value for name, value in os.environ.items() if name not in ("WORLD_SIZE", "MASTER_PORT")}
    pipe, none = subprocess.PIPE, subprocess.DEVNULL
    words = [sys.executable, "-c", code]
    return subprocess.Popen(words, cwd=folder, env=kept, stdin=none, stderr=pipe, text=True, start_new_session=True)


def wait_for(folder: Path, count: int) -> None:
    limit = time.monotonic() + PATIENCE
    while len(list(folder.glob("* started"))) < count:
        assert time.monotonic() < limit
        time.sleep(0.01)


def check_ended(run: subprocess.Popen[str], code: int) -> None:
    """Quietly, and with all processes: each has the pipe of the errors."""
    try:
        _, said = run.communicate(timeout=PATIENCE)
    finally:
        with suppress(ProcessLookupError):  # as it should be
            os.killpg(run.pid, signal.SIGKILL)
    assert (run.returncode, said) == (code, "")


@pytest.mark.parametrize(("before", "number"), [("", signal.SIGTERM), ("", signal.SIGINT), (IGNORED, signal.SIGINT)])
@pytest.mark.parametrize("supervise", [True, False])
def test_a_signal_to_processes_that_cannot_answer_yet_ends_the_run(
    tmp_path: Path, before: str, number: signal.Signals, supervise: bool
) -> None:
    """They are killed by it, which is no accident after which they are started again."""
    run = launched(tmp_path, before=before, supervise=supervise)
    wait_for(tmp_path, 2)
    run.send_signal(number)
    check_ended(run, 128 + number)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_between_two_starts_ends_the_run(tmp_path: Path, number: signal.Signals) -> None:
    """Held where a process has been started that the parent does not know of yet."""
    run = launched(tmp_path, hold=True)
    wait_for(tmp_path, 1)
    run.send_signal(number)
    time.sleep(0.2)  # the signal is there before the start goes on
    (tmp_path / "goes on").touch()
    check_ended(run, 128 + number)
    assert not (tmp_path / "1 started").exists()


GROUPS = """
import os
from headway.distributed.launcher import in_foreground
print(in_foreground(), flush=True)
if os.fork():
    os.wait()
else:
    os.setpgrp()  # as a shell does with what it starts in the background
    print(in_foreground(), flush=True)
"""


def test_only_in_the_foreground_a_terminal_interrupts_all_processes() -> None:
    words, pipe = [sys.executable, "-c", GROUPS], subprocess.PIPE
    leader, terminal = pty.openpty()
    try:
        done = subprocess.run(
            words,
            stdin=terminal,
            stdout=pipe,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
    finally:
        os.close(leader)
        os.close(terminal)
    without = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=pipe, text=True)
    assert (done.stdout.split(), without.stdout.split()) == (["True", "False"], ["False", "False"])
