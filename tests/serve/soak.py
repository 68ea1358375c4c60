"""Requests of all kinds for as long as one likes: memory stays as it is, and after shutdown nothing is left.

`python -m tests.serve.soak FOLDER SECONDS GROWTH` fails where memory grows by more than so many bytes.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from statistics import median
from threading import Event
from time import monotonic
from typing import Any
from unittest.mock import patch

import httpx2 as httpx

from headway.serve.serve_options import EngineLimits, ServeOptions
from headway.serve.served_models import ModelPool
from headway.system import resident_memory, share_arena
from tests.cli.folders import VOCABULARY
from tests.serve.clients import asked, begun, close, completion, head, metrics, posted, reset, total
from tests.serve.media import png, save_media
from tests.serve.proofs import COMPLETIONS, ENDLESS, Place, settle
from tests.serve.server import RunningServer, read_events, save_models, serving

VISITORS = 6
SHARE = 0.8  # of all weights and KV caches, which may be loaded at a time: models leave and come back
LIMITS = EngineLimits(prefix_bytes=2**20)
LEFT = 0  # in place of a status
BUSY = (429, 503)


def soak(folder: Path, seconds: float, growth: int) -> None:
    """Memory of the second quarter of the time, after as long a warm-up, is compared with that of the last."""
    temporary = folder / "temporary"
    temporary.mkdir()
    folders = {**save_models(folder), ENDLESS: Place({}, folder).endless(), **save_media(folder)}
    options = ServeOptions(limits=LIMITS, memory=SHARE * sum(loaded_bytes(folders)) / 2**30)
    before = held()
    with patch("tempfile.tempdir", str(temporary)), serving(folders, options=options) as server:
        memory, answers = visited(server, seconds)
        settle(server, 30)
        counted = metrics(server.url)
    assert list(temporary.iterdir()) == []
    gc.collect()
    assert held() == before
    quarter = len(memory) // 4
    first, last = median(memory[quarter : 2 * quarter]), median(memory[-quarter:])
    print(f"{answers.total()} requests; {first / 2**20:.1f} MiB, then {last / 2**20:.1f}")
    print(*(f"{name} {status}: {count}" for (name, status), count in sorted(answers.items())), sep=", ")
    assert answers.total() == total(counted, "headway_requests_total") - total(counted, METRICS)
    assert {name for name, status in answers if status not in BUSY} == set(KINDS)
    assert last - first < growth


def loaded_bytes(folders: Mapping[str, Path]) -> Iterator[int]:
    """Of each model with its KV cache."""
    pool = ModelPool(folders, ServeOptions(limits=LIMITS))
    for name, folder in folders.items():
        served = pool.read(name, folder)
        served.close(drain=True)
        yield served.bytes


METRICS = 'headway_requests_total{path="/metrics"'


def held() -> tuple[list[str], Counter[str]]:
    """The threads of this process, and its open files by their kinds."""
    files = Counter[str]()
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of this listing
            files[os.readlink(f"/proc/self/fd/{name}").partition(":")[0]] += 1
    return sorted(thread.name for thread in threading.enumerate()), files


def visited(server: RunningServer, seconds: float) -> tuple[list[int], Counter[tuple[str, int]]]:
    """Memory as time goes on, and how often each kind of request had each status."""
    stop, end, memory = Event(), monotonic() + seconds, list[int]()
    with ThreadPoolExecutor(VISITORS) as pool:
        visits = [pool.submit(visit, Visitor(server, seed), stop) for seed in range(VISITORS)]
        while monotonic() < end and not any(one.done() for one in visits):
            memory.append(resident_memory())
            stop.wait(seconds / 400)
        stop.set()
        return memory, sum((one.result() for one in visits), Counter[tuple[str, int]]())


class Visitor:
    def __init__(self, server: RunningServer, seed: int):
        self.server, self.random = server, Random(seed)
        self.client = httpx.Client(base_url=server.url, timeout=60)

    def text(self) -> str:
        return " ".join(self.random.choices(VOCABULARY, k=self.random.randint(1, 3)))

    def post(self, path: str, **what: Any) -> int:
        found = self.client.post(path, **what)
        if found.status_code == 503:
            assert found.json()["error"]["code"] == "model_unavailable"
        if "text/event-stream" in found.headers["content-type"]:
            assert read_events(found.text)[-1] == "[DONE]"
        return found.status_code


def visit(visitor: Visitor, stop: Event) -> Counter[tuple[str, int]]:
    """Each kind once, then any."""
    answers, names = Counter[tuple[str, int]](), visitor.random.sample([*KINDS], len(KINDS))
    with visitor.client:
        while names or not stop.is_set():
            name = names.pop() if names else visitor.random.choice([*KINDS])
            ask, expected = KINDS[name]
            status = ask(visitor)
            assert status in (expected, *BUSY), (name, status)
            answers[name, status] += 1
    return answers


def complete(by: Visitor, *, stream: bool) -> int:
    how = {"temperature": (0, 1), "logprobs": (None, 2), "n": (1, 2), "stop": (None, ["at", "zz"])}
    chosen = {name: by.random.choice(values) for name, values in how.items()}
    model = by.random.choice(["causal", ENDLESS])
    body = completion(model, by.random.randint(1, 12), stream=stream, **chosen)
    return by.post(COMPLETIONS, json={**body, "prompt": by.text()[:12]})


def chat(by: Visitor, *, stream: bool) -> int:
    said = [{"role": "user", "content": "a"}]
    return by.post("/v1/chat/completions", json={"model": "chat", "messages": said, "max_tokens": 4, "stream": stream})


def embed(by: Visitor) -> int:
    form = by.random.choice(["float", "base64"])
    texts = [by.text() for _ in range(by.random.randint(1, 3))]
    return by.post("/v1/embeddings", json={"model": "vectors", "input": texts, "encoding_format": form})


def predict(by: Visitor, *, model: str, more: str = "") -> int:
    return by.post("/api/predict", json={"model": model, "input": by.text() + more})


def upload(by: Visitor, *, model: str, data: bytes, name: str, **fields: str) -> int:
    return by.post("/api/predict", data={"model": model, **fields}, files={"file": (name, data)})


def attention(by: Visitor) -> int:
    return by.post("/api/attention", json={"model": "pairs", "input": by.text()})


def page(by: Visitor) -> int:
    path = by.random.choice(["/", "/docs", "/openapi.json", "/v1/models", "/ready", "/health", "/v1/models/causal"])
    return by.client.get(path).status_code


def bad(by: Visitor) -> int:
    bodies = (b"", b"{", b"[" * 1000, b'{"model": "causal"}', b'{"model": "causal", "prompt": "a", "n": 0}')
    return by.post(COMPLETIONS, content=by.random.choice(bodies), headers={"Content-Type": "application/json"})


def leave_stream(by: Visitor, *, way: Callable[[Any], None]) -> int:
    body = completion(ENDLESS, 4000, stream=True)
    way(begun(by.server.port, posted(by.server.port, COMPLETIONS, body)))
    return LEFT


def leave_early(by: Visitor, *, path: str, body: Mapping[str, Any]) -> int:
    close(asked(by.server.port, posted(by.server.port, path, body)))
    return LEFT


def leave_body(by: Visitor, *, kind: str, start: bytes) -> int:
    about = (f"Content-Type: {kind}", "Content-Length: 100000")
    close(asked(by.server.port, head(by.server.port, "POST /api/predict", *about) + start))
    return LEFT


FORM = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\n\r\n' + b"a" * 2000
MANY = {"model": "labels", "input": ["the cat"] * 40}
KINDS: dict[str, tuple[Callable[[Visitor], int], int]] = {
    "completion": (partial(complete, stream=False), 200),
    "stream": (partial(complete, stream=True), 200),
    "chat": (partial(chat, stream=False), 200),
    "chat stream": (partial(chat, stream=True), 200),
    "embeddings": (embed, 200),
    "classify": (partial(predict, model="labels"), 200),
    "translate": (partial(predict, model="pairs"), 200),
    "fill": (partial(predict, model="masked", more=" [MASK]"), 200),
    "tag": (partial(predict, model="tags"), 200),
    "continue": (partial(predict, model="causal"), 200),
    "image": (partial(upload, model="seer", data=png(20, 30), name="a.png"), 200),
    "match": (partial(upload, model="clip", data=png(9, 9), name="b.png", input="a cat"), 200),
    "no image": (partial(upload, model="seer", data=b"no image", name="c.png"), 400),
    "attention": (attention, 200),
    "page": (page, 200),
    "no such page": (lambda by: by.post("/nothing"), 404),
    "no such model": (partial(predict, model="nobody"), 404),
    "wrong model": (lambda by: by.post(COMPLETIONS, json=completion("labels", 1, stream=False)), 400),
    "bad body": (bad, 400),
    "large body": (lambda by: by.post(COMPLETIONS, content=b"x" * (3 * 2**20)), 413),
    "reset": (partial(leave_stream, way=reset), LEFT),
    "close": (partial(leave_stream, way=close), LEFT),
    "drop": (partial(leave_early, path=COMPLETIONS, body=completion(ENDLESS, 4000, stream=False)), LEFT),
    "drop predictions": (partial(leave_early, path="/api/predict", body=MANY), LEFT),
    "drop a body": (partial(leave_body, kind="application/json", start=b"{"), LEFT),
    "drop a form": (partial(leave_body, kind="multipart/form-data; boundary=x", start=FORM), LEFT),
}

if __name__ == "__main__":
    share_arena()  # as run_server does
    soak(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
