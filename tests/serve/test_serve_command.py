"""`headway serve` in a process of its own: what it refuses, and how it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx2 as httpx
import pytest

pytestmark = pytest.mark.slow
MISTAKES = [
    ([], "headway serve needs a model"),
    (["MODEL", "--host", "0.0.0.0"], "--host 0.0.0.0 can be reached by others, which needs an API key; give --api-key"),
    (["MODEL", "--host", "::"], "needs an API key"),
    (["MODEL", "--host", "nowhere.invalid", "--api-key", "x"], "is no address of this machine"),
    (["MODEL", "--api-key", "a b"], "the API key has other characters"),
    (["MODEL", "MODEL"], "have the same name"),
    (["MODEL", "--slots", "0"], "--slots 0; allowed: 1 or more"),
    (["MODEL", "--timeout", "0"], "--timeout 0"),
    (["MODEL", "--memory", "1e-9"], "raise --memory"),
    (["MODEL", "--memory", "1e-9", "--workers", "2"], "raise --memory"),
    (["MODEL", "--workers", "0"], "--workers 0; allowed: 1 to 64"),
    (["MODEL", "--cors", "*"], "'*' is no origin"),
    (["nothing"], "nothing does not exist"),
    (["NOTES"], "holds no weights"),
    (["MODEL", "NOTES", "--workers", "2"], "holds no weights"),
    (["EMPTY"], "holds no weights"),
]


ROOT = Path(__file__).parent.parent.parent
HEADWAY = ("-m", "headway")  # what Python runs


def command(*words: object, launcher: Sequence[str] = HEADWAY) -> list[str]:
    return [sys.executable, *launcher, "serve", *map(str, words)]


@pytest.mark.parametrize(("words", "said"), MISTAKES, ids=[" ".join(words) for words, _ in MISTAKES])
def test_mistakes_are_told_in_a_sentence(spans: Path, tmp_path: Path, words: list[str], said: str) -> None:
    (tmp_path / "notes.txt").write_text("no model", encoding="utf-8")
    folders = {"MODEL": str(spans), "NOTES": str(tmp_path), "EMPTY": str(tmp_path / "empty")}
    (tmp_path / "empty").mkdir()
    given = command(*(folders.get(word, word) for word in words))
    done = subprocess.run(given, capture_output=True, text=True, env={**os.environ, "HEADWAY_API_KEY": ""})
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("workers", [1, 2])
def test_a_port_in_use_is_told(spans: Path, workers: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        given = command(spans, "--port", port, "--workers", workers)
        done = subprocess.run(given, capture_output=True, text=True)
    assert done.returncode == 2
    assert f"port {port} is in use" in done.stderr


def test_missing_packages_are_told(spans: Path) -> None:
    code = (
        "import sys, importlib.util as u; found = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'fastapi' else found(name, *rest)\n"
        f"from headway.cli.main import main; sys.exit(main(['serve', {str(spans)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert "pip install 'headway[serve]'" in done.stderr


@contextmanager
def running(
    tmp_path: Path, *words: object, launcher: Sequence[str] = HEADWAY
) -> Generator[tuple[subprocess.Popen[str], str]]:
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    given = command(*words, "--port", 0, launcher=launcher)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(given, **pipes, text=True, env=env, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().split("/  ")[0]
        finally:
            process.kill()


LONG = {"model": "spans", "input": "the cat", "options": {"max_new_tokens": 4096}}


def ask(url: str, body: object) -> httpx.Response:
    return httpx.post(f"{url}/api/predict", json=body, timeout=60)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_requests_end(spans: Path, tmp_path: Path, number: signal.Signals) -> None:
    with running(tmp_path, spans) as (process, url), ThreadPoolExecutor() as pool:
        assert ask(url, {**LONG, "options": {"max_new_tokens": 1}}).status_code == 200
        asked = pool.submit(ask, url, LONG)
        wait_for(url, 'headway_requests_running{model="spans"} 1')
        process.send_signal(number)
        found = asked.result()
        assert found.status_code == 200
        assert len(found.json()["predictions"][0]["tokens"]) == 4096
        assert process.wait(60) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_second_signal_leaves_at_once(spans: Path, tmp_path: Path) -> None:
    with running(tmp_path, spans) as (process, url), ThreadPoolExecutor() as pool:
        assert ask(url, {**LONG, "options": {"max_new_tokens": 1}}).status_code == 200
        asked = pool.submit(ask, url, {**LONG, "input": ["the cat"] * 500})
        wait_for(url, 'headway_requests_running{model="spans"} 1')
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        assert process.stderr.readline().endswith("to be answered first; once more to leave at once\n")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
        with pytest.raises(httpx.TransportError):
            asked.result()
        assert process.stderr.read() == ""
    assert list(tmp_path.iterdir()) == []


def wait_for(url: str, line: str) -> None:
    while line not in httpx.get(f"{url}/metrics").text.splitlines():
        pass


# ---- workers

LONGER = {**LONG, "input": ["the cat"] * 4}  # gauges of another worker may be a second old


@pytest.mark.long
def test_workers_share_a_port_and_one_that_dies_is_replaced(spans: Path, tmp_path: Path) -> None:
    counted = 'headway_requests_total{path="/api/predict",status="200"}'
    with running(tmp_path, spans, "--workers", 2) as (process, url):
        assert process.stderr is not None
        first = answering(url)
        for _ in range(6):
            assert ask(url, {**LONG, "options": {"max_new_tokens": 1}}).status_code == 200
        wait_for(url, f"{counted} 6")
        killed = first.pop()
        os.kill(killed, signal.SIGKILL)
        assert " was killed by SIGKILL and is started again\n" in process.stderr.readline()
        second = answering(url)
        assert killed not in second
        assert first < second
        for _ in range(10):  # whoever answers
            assert f"{counted} 6" in httpx.get(f"{url}/metrics").text.splitlines()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert_quiet(process.stderr.read())
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{url}/health")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_requests_of_workers_end(spans: Path, tmp_path: Path, number: signal.Signals) -> None:
    with running(tmp_path, spans, "--workers", 2) as (process, url), ThreadPoolExecutor() as pool:
        answering(url)
        asked = [pool.submit(ask, url, LONGER) for _ in range(3)]
        wait_for_requests(url, 3)
        process.send_signal(number)
        for one in asked:
            assert one.result().status_code == 200
            assert [len(found["tokens"]) for found in one.result().json()["predictions"]] == [4096] * 4
        assert process.wait(60) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_a_second_signal_kills_workers(spans: Path, tmp_path: Path) -> None:
    with running(tmp_path, spans, "--workers", 2) as (process, url), ThreadPoolExecutor() as pool:
        assert process.stderr is not None
        asked = pool.submit(ask, url, {**LONG, "input": ["the cat"] * 500})
        wait_for_requests(url, 1)
        process.send_signal(signal.SIGTERM)
        assert process.stderr.readline().endswith("to be answered first; once more to leave at once\n")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
        with pytest.raises(httpx.TransportError):
            asked.result()
        assert_quiet(process.stderr.read())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_workers_end_with_their_parent(spans: Path, tmp_path: Path) -> None:
    with running(tmp_path, spans, "--workers", 2) as (process, url):
        assert process.stderr is not None
        answering(url)
        process.kill()
        assert_quiet(process.stderr.read())  # until the last of them has closed it


def assert_quiet(said: str) -> None:
    """Nothing is told but requests that were still being answered: the last one has its answer before it has ended."""
    assert all(line.startswith("ending: ") for line in said.splitlines()), said


def answering(url: str) -> set[int]:
    """The processes of both workers."""
    found = set[int]()
    while len(found) < 2:
        found.add(httpx.get(f"{url}/ready").json()["pid"])
    return found


def wait_for_requests(url: str, count: int) -> None:
    """Until so many are computed or wait, in all workers together."""
    found = -1
    while found != count:
        lines = httpx.get(f"{url}/metrics").text.splitlines()
        held = [line for line in lines if line.startswith(("headway_requests_running{", "headway_requests_waiting{"))]
        found = sum(int(line.split()[-1]) for line in held)
