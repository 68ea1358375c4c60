"""A small driver of a headless Chromium, over the pipe that it offers to its parent: no port, no other program.

Messages are JSON with a zero byte behind each; the browser reads them from descriptor 3 and answers on 4.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import tempfile
import time
from collections import deque
from contextlib import suppress
from fcntl import F_DUPFD_CLOEXEC, fcntl
from typing import Any

BROWSER = "/usr/bin/chromium"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--mute-audio",
    "--hide-scrollbars",
    "--autoplay-policy=no-user-gesture-required",
    "--remote-debugging-pipe",
]
PATIENCE = 60.0  # seconds for any one answer; machines that run tests are slow at times

Message = dict[str, Any]


class Chrome:
    """A running browser with one tab."""

    def __init__(self, browser: str = BROWSER):
        self.folder = tempfile.mkdtemp(prefix="headway-chrome-")
        theirs_in, self.writing = pipe()
        self.reading, theirs_out = pipe()
        away = os.open(os.devnull, os.O_RDWR)
        given = [(theirs_in, 3), (theirs_out, 4), (away, 1), (away, 2)]
        actions = [(os.POSIX_SPAWN_DUP2, fd, place) for fd, place in given]
        command = [browser, *FLAGS, f"--user-data-dir={self.folder}", "about:blank"]
        self.pid = os.posix_spawn(browser, command, dict(os.environ), file_actions=actions, setpgroup=0)
        for fd in (theirs_in, theirs_out, away):
            os.close(fd)
        self.rest, self.number, self.came = b"", 0, deque[Message]()

    def tell(self, method: str, session: str | None = None, **values: Any) -> Message:
        """Sends a command and gives its answer; what came before it is kept in `came`."""
        self.number += 1
        asked: Message = {"id": self.number, "method": method, "params": values}
        if session is not None:
            asked["sessionId"] = session
        data = json.dumps(asked).encode() + b"\0"
        while data:
            data = data[os.write(self.writing, data) :]
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = self.next(deadline, method)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.came.append(answer)

    def next(self, deadline: float, method: str) -> Message:
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.reading], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError(f"{method} was not answered within {PATIENCE:.0f} s")
            more = os.read(self.reading, 2**20)
            if not more:
                raise RuntimeError(f"the browser ended during {method}")
            self.rest += more
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)

    def close(self) -> None:
        with suppress(Exception):
            self.tell("Browser.close")
        for fd in (self.reading, self.writing):
            os.close(fd)
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)  # its children, which it may leave behind
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        shutil.rmtree(self.folder, ignore_errors=True)


def pipe() -> tuple[int, int]:
    """Both ends of a pipe, on descriptors that are out of the way of 3 and 4."""
    ends = os.pipe()
    read, write = (fcntl(end, F_DUPFD_CLOEXEC, 20) for end in ends)
    for end in ends:
        os.close(end)
    return read, write
