"""How signals end a run: after its step, which is saved; a second one at once."""

from __future__ import annotations

import os
import signal
import threading
from time import monotonic
from types import FrameType
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)
TOGETHER = 0.1  # seconds: a wrapper that forwards the terminal's signal does not count as a second one
SHOW_CURSOR = b"\x1b[?25h\n"  # a progress bar hides it


class Interruption:
    """Around a loop: `asked` is the signal that arrived, if any.  Outside the main thread none can."""

    def __init__(self) -> None:
        self.asked: int | None = None
        self.since = 0.0
        self.before: dict[signal.Signals, Any] = {}

    @property
    def code(self) -> int:
        """The exit code for the signal: 130, 143, or 0 without one."""
        return 0 if self.asked is None else 128 + self.asked

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self.before = {number: signal.signal(number, self.ask) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: it was not Python's

    def ask(self, number: int, _: FrameType | None) -> None:
        if self.asked is None:
            self.asked, self.since = number, monotonic()
        elif monotonic() - self.since > TOGETHER:
            leave(128 + number)


def leave(code: int) -> None:
    """Exits now.  An unfinished checkpoint has no name yet, so nothing is left half written."""
    if os.isatty(2):
        os.write(2, SHOW_CURSOR)
    os._exit(code)


def deaf(_: int) -> None:
    """`worker_init_fn` of a DataLoader: its workers ignore signals that are meant for the run.

    Terminals and batch systems send them to all processes; a worker that died would break the last step.  SIGTERM from
    the run itself is obeyed, without which the run could not end while a loader is open.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "sigwaitinfo"):  # not on every system
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=obey, args=(os.getppid(),), daemon=True).start()


def obey(run: int) -> None:
    """Waits for a SIGTERM of the process `run`, and ends this one."""
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != run:
        pass
    os._exit(0)
