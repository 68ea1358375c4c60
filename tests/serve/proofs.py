"""Proofs of the server under load and abuse, each of some size; `defects.py` has a defect that each must see."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from asyncio import Task
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from signal import SIGTERM
from subprocess import Popen, run
from time import monotonic, sleep
from typing import Any

import httpx2 as httpx

from headway.serve.security import CHAT_PATH, AccessRules
from headway.serve.serve_options import EngineLimits, ServeOptions
from headway.serve.server_state import RequestLimits
from headway.zoo import llama
from tests.cli.folders import made, words
from tests.serve.clients import (
    HOST,
    Answer,
    asked,
    begun,
    check_finished,
    close,
    completion,
    exchange,
    head,
    metrics,
    posted,
    reset,
    total,
)
from tests.serve.server import RunningServer, serving
from tests.serve.test_fuzzed import attacked, golden
from tests.serve.test_security import refuse_without_key
from tests.serve.test_serve_command import ROOT, running

COMPLETIONS = "/v1/completions"
ENDLESS = "endless"


@dataclass(frozen=True)
class Place:
    """Saved models, a folder, and how Python is told to run a module in a process of its own."""

    folders: Mapping[str, Path]
    folder: Path
    launcher: Sequence[str] = ("-m",)

    def endless(self) -> Path:
        """A model that never ends a text by itself: it writes as many tokens as it may, up to 4,096."""
        folder, known = self.folder / ENDLESS, words("wordpiece")
        if not folder.is_dir():
            config = llama.Config(vocab=known.vocab, kv_heads=1, dim=16, layers=2, heads=2, hidden=32)
            made("llama", config, known, {"suppress_tokens": [known.eos]}).save(folder)
        return folder


# 1: load


def each_request_ends_once(place: Place, clients: int, requests: int, burst: int, seconds: float = 30) -> None:
    """With 4 slots and a queue of 16: each is answered, or told to come again, within `seconds`; and counted so."""
    options, count = ServeOptions(limits=EngineLimits(slots=4, queue=16)), clients * requests + burst
    with serving({"causal": place.folders["causal"]}, options=options) as server:
        assert server.get("/api/models/causal").status_code == 200  # loads it
        answers = asyncio.run(load(server, clients, requests, burst, seconds))
        counted = metrics(server.url)
        settle(server, 30)
    statuses = Counter(answer.status for answer in answers)
    assert statuses.total() == count
    assert set(statuses) == {200, 429}
    assert statuses[200] >= 20
    for answer in answers:
        if answer.status == 200:
            check_finished(answer)
        else:
            assert int(answer.headers.get("retry-after", 0)) >= 1
    for status in (200, 429):
        assert counted[requests_total(COMPLETIONS, status)] == statuses[status]
    assert total(counted, f'headway_requests_total{{path="{COMPLETIONS}"') == count


async def load(server: RunningServer, clients: int, requests: int, burst: int, seconds: float) -> list[Answer]:
    """The engine stands still until the queue is full and somebody was refused."""
    engine = server.engine("causal")
    engine.hold()

    async def ask(number: int) -> Answer:
        body = completion("causal", 1 + number % 9, stream=number % 2 == 0, seed=number)
        return await exchange(server.port, posted(server.port, COMPLETIONS, body), seconds)

    async def client(number: int) -> list[Answer]:
        return [await ask(number + at) for at in range(requests)]

    async def open_gate() -> list[Answer]:
        while requests_total(COMPLETIONS, 429) not in await asyncio.to_thread(metrics, server.url):
            await asyncio.sleep(0.02)
        engine.gate.set()
        return []

    async def one(number: int) -> list[Answer]:
        return [await ask(number)]

    found = await asyncio.gather(open_gate(), *map(client, range(clients)), *map(one, range(burst)))
    return [answer for answers in found for answer in answers]


def requests_total(path: str, status: int) -> str:
    return f'headway_requests_total{{path="{path}",status="{status}"}}'


# 2: clients that leave


def nothing_runs_for_those_who_left(place: Place, resets: int, closes: int, drops: int, seconds: float) -> None:
    """Clients that leave in mid-stream, by a reset or in order; others that wait for a whole answer or a prediction."""
    options = ServeOptions(limits=EngineLimits(slots=16, queue=60))
    with serving({ENDLESS: place.endless()}, options=options) as server:
        expected = server.post(COMPLETIONS, completion(ENDLESS, 9, stream=False, temperature=0)).json()["choices"]
        ways: list[Callable[[socket.socket], None]] = [reset, close]
        stream, whole = (posted(server.port, COMPLETIONS, completion(ENDLESS, 4000, stream=on)) for on in (True, False))
        with ThreadPoolExecutor(32) as pool:
            list(pool.map(lambda way: way(begun(server.port, stream)), ways[:1] * resets + ways[1:] * closes))
            dropped = list(pool.map(lambda _: asked(server.port, whole), range(drops)))
        engine, limit = server.engine(ENDLESS), monotonic() + 30
        while engine.running + engine.waiting < drops:
            assert monotonic() < limit
            sleep(0.01)
        dropped.append(asked(server.port, posted(server.port, "/api/predict", prediction(4000))))
        while not server.queue(ENDLESS).running:
            assert monotonic() < limit
            sleep(0.01)
        for at, connection in enumerate(dropped):
            ways[at % 2](connection)
        settle(server, seconds)
        assert metrics(server.url)["headway_requests_cancelled_total"] == resets + closes + len(dropped)
        again = server.post(COMPLETIONS, completion(ENDLESS, 9, stream=False, temperature=0)).json()["choices"]
        assert again == expected


def prediction(tokens: int) -> dict[str, Any]:
    return {"model": ENDLESS, "input": "the cat", "options": {"max_new_tokens": tokens}}


def settle(server: RunningServer, seconds: float) -> None:
    """Waits until nothing is left of any request, for so many seconds."""
    limit = monotonic() + seconds
    while left := unsettled(server):
        assert monotonic() < limit, left
        sleep(0.02)


def unsettled(server: RunningServer) -> list[str]:
    """What the server still does or keeps for its clients."""
    counts = {
        "connections": len(server.connections),
        "leases": sum(slot.leases for slot in server.pool.slots.values()),
        "files": len(list(server.folder.iterdir())),
        "running": total(found := metrics(server.url), "headway_requests_running"),
        "waiting": total(found, "headway_requests_waiting"),
    }
    return [f"{count} {name}" for name, count in counts.items() if count]


# 3: signals

IN_FLIGHT, TOKENS = 8, 400


def signals_cut_nothing(place: Place, processes: int) -> None:
    """SIGTERM lets requests end; a second one leaves at once."""
    for number in range(processes):
        temporary = place.folder / f"drained-{number}"
        temporary.mkdir()
        with running(temporary, place.endless(), launcher=(*place.launcher, "headway")) as (process, url):
            asyncio.run(drain(process, url))
            assert process.wait(60) == 0
        assert list(temporary.iterdir()) == []
    temporary = place.folder / "left"
    temporary.mkdir()
    with running(temporary, place.endless(), launcher=(*place.launcher, "headway")) as (process, url):
        asyncio.run(leave(process, url))
        assert process.wait(60) == 128 + SIGTERM
    assert list(temporary.iterdir()) == []


async def in_flight(url: str) -> list[Task[Answer]]:
    """Requests that are computed or wait, streams and others."""
    port = int(url.rpartition(":")[2])
    assert check_finished(await exchange(port, posted(port, COMPLETIONS, completion(ENDLESS, 1, stream=False)))) == 1
    bodies = [completion(ENDLESS, TOKENS, stream=at % 2 == 0) for at in range(IN_FLIGHT)]
    tasks = [asyncio.create_task(exchange(port, posted(port, COMPLETIONS, body), 300)) for body in bodies]
    while True:
        found = await asyncio.to_thread(metrics, url)
        if total(found, "headway_requests_running") + total(found, "headway_requests_waiting") == IN_FLIGHT:
            return tasks
        assert not any(task.done() for task in tasks)


async def drain(process: Popen[str], url: str) -> None:
    tasks = await in_flight(url)
    process.send_signal(SIGTERM)
    assert [check_finished(answer) for answer in await asyncio.gather(*tasks)] == [TOKENS] * IN_FLIGHT


async def leave(process: Popen[str], url: str) -> None:
    tasks = await in_flight(url)
    process.send_signal(SIGTERM)
    assert process.stderr is not None
    assert "once more to leave at once" in await asyncio.to_thread(process.stderr.readline)
    process.send_signal(SIGTERM)
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(one, AssertionError) for one in found)  # none was answered to its end


# 4: abuse


def fuzzed_bodies_are_refused(place: Place, examples: int) -> None:
    with serving(place.folders) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        attacked((server, client), examples)


def large_deep_and_tricky_bodies_are_refused(place: Place, size: int) -> None:
    """Bodies that would cost a careless server its memory, its stack or its time."""
    limits = RequestLimits()
    with serving(place.folders) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        expected = golden(client)
        for path, about in TEXT_FIELDS.items():
            for text in texts(min(size, 300 if path == "/api/attention" else 390_000)):
                found = client.post(path, json=about(text))
                assert found.status_code in (200, 400), (path, text[:20], found.text[:200])
            for body, kind, statuses in baits(size, limits.chat_bytes if path == CHAT_PATH else limits.json_bytes):
                found = client.post(path, content=body, headers={"Content-Type": kind})
                assert found.status_code in statuses, (path, body[:60], kind[:60], found.text[:200])
            for body in deep(size):
                found = client.post(path, content=body, headers={"Content-Type": "application/json"})
                assert "levels deep" in found.json()["error"]["message"]
            assert golden(client) == expected
        client.close()
        settle(server, 30)


TEXT_FIELDS: dict[str, Callable[[str], dict[str, Any]]] = {
    COMPLETIONS: lambda text: {"model": "causal", "prompt": text, "stop": [text[:at] + "b" for at in range(150, 166)]},
    CHAT_PATH: lambda text: {"model": "chat", "messages": [{"role": "user", "content": text}]},
    "/v1/embeddings": lambda text: {"model": "vectors", "input": text},
    "/api/predict": lambda text: {"model": "labels", "input": text},
    "/api/attention": lambda text: {"model": "pairs", "input": text},
}


def texts(size: int) -> list[str]:
    """What tokenizers and searches may take long for."""
    return [(part * size)[:size] for part in ("a", " ", "\\", "'s", "İ", "0", "a ", "[MASK]")]


def baits(size: int, limit: int) -> list[tuple[bytes, str, Sequence[int]]]:
    """Bodies of about a `size`, or beyond the limit, their type, and the statuses that may answer them."""
    plain, form = "application/json", "multipart/form-data; boundary=x"
    tricks = [b'"' + rb"\"" * (size // 2), b'""' * (size // 2), b"9" * size, b"-" * size, b"\xff" * size]
    name = f'Content-Disposition: form-data; name="model"; {"x=;" * 2000}'.encode()
    forms = [b"--x\r\n" * (size // 5), b"--x\r\n" + name, b"--x\r\n" + b"a" * size, b"\r\n--x" * (size // 5)]
    large = json.dumps({"model": "causal", "prompt": "x" * limit}).encode()
    return [
        (large, plain, (413,)),
        *((body, plain, (400,)) for body in tricks),
        *((body, form, (400, 404)) for body in forms),
        (b"", f"multipart/form-data; {'boundary=;' * 2000}", (400,)),
        (b"{}", ";" * 20_000, (400,)),
    ]


def deep(size: int) -> list[bytes]:
    shallow = b"[" * 30 + b"]" * 30 + b","  # and then what is deep
    short = [b"[" * 5000 + b"]" * 5000, b'{"a":[' * 20 + b"]}" * 20]
    return [b"[" * size, b"[a" * (size // 2), b'{"a":' * (size // 5), b"[" + shallow + b"[" * size, *short]


def slow_clients_are_left(place: Place, each: int, seconds: float = 60) -> None:
    """Clients that send byte by byte or take nothing, while others are answered as ever."""
    limits = RequestLimits(body_seconds=1.0)
    with serving({"causal": place.folders["causal"]}, limits=limits, patience=3.0) as server, ExitStack() as opened:
        expected = golden_by_hand(server)
        found = asyncio.run(kept_waiting(server, each, expected, seconds))
        for _ in range(each):
            opened.enter_context(pipelined(server.port))
        settle(server, seconds)
        assert golden_by_hand(server) == expected
    assert found == {name: {status} for name, (_, _, status) in SLOW.items()}


def golden_by_hand(server: RunningServer) -> Any:
    body = completion("causal", 6, stream=False, temperature=0)
    return json.loads(asyncio.run(exchange(server.port, posted(server.port, COMPLETIONS, body))).body)["choices"]


ASKED = (
    f"POST {COMPLETIONS} HTTP/1.1\r\nHost: {HOST}:PORT\r\nContent-Length: 100000\r\nContent-Type: application/json\r\n"
)
FORM = ASKED.replace(COMPLETIONS, "/api/predict").replace("application/json", "multipart/form-data; boundary=x")
# what is sent at first, what is sent again and again, and the status that is answered (0: none)
SLOW = {
    "nothing": ("", "", 0),
    "a head": ("GET /health HTTP/1.1\r\nX-Name: ", "x", 0),
    "a body": (f"{ASKED}\r\n", " ", 408),
    "half a body": (f"{ASKED}\r\n[", "", 408),
    "a form": (f'{FORM}\r\n--x\r\nContent-Disposition: form-data; name="input"\r\n\r\n', "a", 408),
    "a body that was refused": (f"{ASKED}Origin: http://elsewhere.example\r\n\r\n", " ", 403),
}


async def kept_waiting(server: RunningServer, each: int, expected: Any, seconds: float) -> dict[str, set[int]]:
    """The statuses that slow clients were answered before they were left."""

    def client(start: str, piece: str) -> Task[int]:
        sent = start.replace("PORT", str(server.port)).encode()
        return asyncio.create_task(trickle(server.port, sent, piece.encode(), seconds))

    clients = {name: [client(start, piece) for _ in range(each)] for name, (start, piece, _) in SLOW.items()}
    while not all(task.done() for tasks in clients.values() for task in tasks):
        assert await asyncio.to_thread(golden_by_hand, server) == expected
        await asyncio.sleep(0.1)
    return {name: {task.result() for task in tasks} for name, tasks in clients.items()}


async def trickle(port: int, start: bytes, piece: bytes, seconds: float) -> int:
    """Sends a piece over and over until the server ends the connection; the status of its answer, or 0."""
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(start)
    received, ended = bytearray(), asyncio.Event()

    async def read() -> None:
        try:
            while data := await reader.read(4096):
                received.extend(data)
        except ConnectionError:
            pass  # a reset is an end too
        ended.set()

    reading = asyncio.create_task(read())
    try:
        async with asyncio.timeout(seconds):
            while not ended.is_set():
                writer.write(piece)
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"the server waits for {start[:60]!r}") from None
    finally:
        reading.cancel()
        writer.close()
    return int(received.split()[1]) if received else 0


def pipelined(port: int) -> socket.socket:
    """A client that asks for many pages and takes the first byte of them."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect((HOST, port))
    connection.sendall(head(port, "GET /openapi.json") * 500)
    assert connection.recv(1) == b"H"
    return connection


# 5: keys


def no_route_answers_without_the_key(place: Place, methods: Sequence[str]) -> None:
    with serving(place.folders, AccessRules("secret-key-1")) as server:
        refuse_without_key(server, methods)


# 6: a long time


def nothing_grows_or_is_left(place: Place, seconds: float, growth: int) -> None:
    """`soak.py` in a process that has done nothing else, whose memory is its own."""
    given = (*place.launcher, "tests.serve.soak", str(place.folder), str(seconds), str(growth))
    done = run([sys.executable, *given], cwd=ROOT, capture_output=True, text=True)
    print(done.stdout)
    assert done.returncode == 0, done.stderr[-4000:]
