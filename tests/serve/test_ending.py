"""How servers end that could wait for ever: each is held at a step where only the end of the waiting is left.

A program that is put in place of `python -m headway` holds it; the step is said by a file.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from asyncio import Transport
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from socket import socket
from threading import Event
from time import monotonic, sleep

import httpx2 as httpx
import pytest
import uvicorn

from headway.serve.connections import TimedConnection
from tests.serve.clients import HOST
from tests.serve.server import serving
from tests.serve.test_serve_command import LONG, answering, ask, running, wait_for_requests

pytestmark = pytest.mark.slow
MAIN = "import sys; from headway.cli.main import main; sys.exit(main())"
SHORT = "import headway.serve.workers as w; w.LEAVE_SECONDS = 1.0\n"
IGNORED = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"  # as a script starts what stands before &
HELD = """
import time
from pathlib import Path
from headway.serve.served_models import ModelPool
close = ModelPool.close
def held(self, *, drain):
    Path(HERE, "waits").touch()
    while not Path(HERE, "goes on").exists():
        time.sleep(0.01)
    close(self, drain=drain)
ModelPool.close = held
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_ends_a_server_that_was_started_with_it_ignored(
    folders: dict[str, Path], tmp_path: Path, workers: int
) -> None:
    launcher = ("-c", IGNORED + MAIN)
    with running(tmp_path, folders["labels"], "--workers", workers, launcher=launcher) as (process, url):
        assert httpx.get(f"{url}/health").status_code == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
@pytest.mark.parametrize("goes_on", [True, False])
def test_a_worker_that_has_answered_all_and_does_not_end_is_killed(
    folders: dict[str, Path], tmp_path: Path, goes_on: bool
) -> None:
    here, temporary = tmp_path / "here", tmp_path / "temporary"
    here.mkdir()
    temporary.mkdir()
    launcher = ("-c", ("" if goes_on else SHORT) + HELD.replace("HERE", repr(str(here))) + MAIN)
    with running(temporary, folders["labels"], "--workers", 2, launcher=launcher) as (process, url):
        answering(url)
        process.send_signal(signal.SIGINT)
        until((here / "waits").exists)
        if goes_on:
            (here / "goes on").touch()
        assert process.wait(60) == (0 if goes_on else 1)
        killed = [] if goes_on else [late(worker, 1, "its last answer") for worker in (1, 2)]
        assert sorted(said(process)) == killed
    assert list(temporary.iterdir()) == []


@pytest.mark.long
def test_a_worker_that_does_not_even_answer_is_killed(folders: dict[str, Path], tmp_path: Path) -> None:
    """A stopped process sees no signal but SIGKILL; the other one ends as ever."""
    words = (folders["labels"], "--workers", 2, "--timeout", 2)
    with running(tmp_path, *words, launcher=("-c", SHORT + MAIN)) as (process, url):
        first, second = answering(url)
        os.kill(first, signal.SIGSTOP)
        process.send_signal(signal.SIGTERM)
        until(lambda: not Path(f"/proc/{second}").exists())
        assert process.poll() is None
        assert process.wait(60) == 1
        assert said(process) in [[late(worker, 3, "it was asked to")] for worker in (1, 2)]
    assert list(tmp_path.iterdir()) == []


def said(process: subprocess.Popen[str]) -> list[str]:
    """Without the requests that are still being answered: the last one has its answer before it has ended."""
    assert process.stderr is not None
    return [line for line in process.stderr.read().splitlines() if not line.startswith("ending: ")]


def late(worker: int, seconds: float, after: str) -> str:
    return f"worker {worker} has not ended {seconds:g} seconds after {after} and is killed"


def until(condition: Callable[[], bool]) -> None:
    limit = monotonic() + 60
    while not condition():
        assert monotonic() < limit
        sleep(0.01)


@pytest.mark.long
@pytest.mark.parametrize("workers", [1, 2])
def test_requests_end_where_nobody_reads_what_is_said(spans: Path, tmp_path: Path, workers: int) -> None:
    """As behind a terminal that was closed."""
    with running(tmp_path, spans, "--workers", workers) as (process, url), ThreadPoolExecutor() as pool:
        assert process.stderr is not None
        asked = pool.submit(ask, url, LONG)
        wait_for_requests(url, 1)
        process.stderr.close()
        process.send_signal(signal.SIGTERM)
        assert asked.result().status_code == 200
        assert process.wait(60) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_connection_that_is_made_last_has_one_answer(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """uvicorn tells its connections that the next answer is the last; here one is made right behind that."""
    made, shutdown, held, told = TimedConnection.connection_made, uvicorn.Server.shutdown, Event(), Event()

    def late(self: TimedConnection, transport: Transport) -> None:
        held.set()
        if told.is_set():
            made(self, transport)
        else:
            self.loop.call_later(0.01, late, self, transport)

    async def telling(self: uvicorn.Server, sockets: list[socket] | None = None) -> None:
        asyncio.get_running_loop().call_soon(told.set)  # it tells them before it waits for anything
        await shutdown(self, sockets)

    monkeypatch.setattr(TimedConnection, "connection_made", late)
    monkeypatch.setattr(uvicorn.Server, "shutdown", telling)
    with ThreadPoolExecutor() as pool, serving({"labels": folders["labels"]}) as server:
        client = HTTPConnection(HOST, server.port, timeout=30)
        client.connect()
        assert held.wait(30)
        answers = pool.submit(asked_again, client, told)
        server.app.state.ending = True  # as a signal does
    assert answers.result() == 1


def asked_again(client: HTTPConnection, told: Event, most: int = 20) -> int:
    """How often a client is answered by a server that ends, over the one connection."""
    assert told.wait(30)
    client.auto_open = False
    for count in range(most):
        sleep(0.05)
        try:
            client.request("GET", "/health")
            client.getresponse().read()
        except (OSError, HTTPException):
            return count
    client.close()
    return most
