"""Bodies that no client would send: only answers of 2xx or 4xx, and the server goes on as before."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.serve.server import RunningServer, serving

pytestmark = pytest.mark.slow
PATHS = ("/v1/completions", "/v1/chat/completions", "/v1/embeddings", "/api/predict", "/api/attention")
NAMES = (
    *("model", "prompt", "messages", "input", "options", "n", "stop", "seed", "temperature", "top_p", "max_tokens"),
    *(
        "stream",
        "stream_options",
        "logprobs",
        "top_logprobs",
        "echo",
        "dimensions",
        "encoding_format",
        "tokens",
        "site",
    ),
    *("role", "content", "logit_bias", "tools", "response_format", "user", "include_usage", "type", "text"),
)
small = st.integers(-2, 20) | st.sampled_from([0.0, 0.5, 1.0, 2.5, 2**31, 2**64, -(2**70), 1e308])
words = st.sampled_from(
    ["", "a", "the cat", "user", "text", "float", "base64", "x.csv", "../x", "[MASK]", "\ud800", "\0"]
)
plain = st.none() | st.booleans() | small | words | st.text(max_size=8)
values = st.recursive(
    plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=6,
)
bodies = st.fixed_dictionaries(
    {"model": st.sampled_from(["causal", "chat", "labels", "pairs", "vectors", "masked", "tags", "none"]) | values},
    optional={name: values for name in NAMES if name != "model"}
    | {
        "prompt": words | st.lists(words, max_size=3) | st.lists(st.integers(-1, 300), max_size=5) | values,
        "input": words | st.lists(words, max_size=3) | values,
        "messages": st.lists(st.fixed_dictionaries({"role": st.just("user"), "content": words}), max_size=2) | values,
        "max_tokens": st.integers(0, 3) | values,
        "options": st.fixed_dictionaries({"max_new_tokens": st.integers(0, 3)}) | values,
    },
)


@pytest.fixture(scope="module")
def target(folders: dict[str, Path]) -> Generator[tuple[RunningServer, httpx.Client]]:
    with serving(folders) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        yield server, client


def golden(client: httpx.Client) -> Any:
    body = {"model": "causal", "prompt": "the cat", "temperature": 0, "max_tokens": 6}
    found = client.post("/v1/completions", json=body)
    assert found.status_code == 200, found.text
    return found.json()["choices"]


def attack(client: httpx.Client, path: str, body: Any) -> None:
    data = json.dumps(body).encode("ascii")
    found = client.post(path, content=data, headers={"Content-Type": "application/json"})
    assert 200 <= found.status_code < 500, (path, data, found.text)
    if found.status_code >= 300:
        assert set(found.json()["error"]) == {"message", "type", "param", "code"}


quiet: Any = {"deadline": None, "suppress_health_check": list(HealthCheck), "database": None}


def attacked(target: tuple[RunningServer, httpx.Client], examples: int) -> None:
    server, client = target
    before, count = golden(client), 0

    @settings(max_examples=examples, **quiet)
    @given(st.sampled_from(PATHS), bodies)
    def each(path: str, body: Any) -> None:
        nonlocal count
        attack(client, path, body)
        count += 1
        if count % 500 == 0:
            assert golden(client) == before

    each()
    assert golden(client) == before
    assert all(slot.leases == 0 for slot in server.pool.slots.values())
    assert list(server.folder.iterdir()) == []


def test_fuzzed_bodies(target: tuple[RunningServer, httpx.Client]) -> None:
    attacked(target, 250)


@settings(max_examples=100, **quiet)
@given(
    st.sampled_from((*PATHS, "/v1/audio/transcriptions")),
    st.binary(max_size=200),
    st.sampled_from(
        ["application/json", "multipart/form-data; boundary=x", "text/plain", "multipart/form-data", "", "é"]
    ),
)
def test_fuzzed_bytes(target: tuple[RunningServer, httpx.Client], path: str, data: bytes, kind: str) -> None:
    found = target[1].post(path, content=data, headers={"Content-Type": kind.encode("utf-8")})
    assert 400 <= found.status_code < 500


parts = st.lists(
    st.tuples(
        st.sampled_from(["model", "input", "options", "file", "tokens", "response_format", "x"]),
        st.none() | st.sampled_from(["a.png", "../a.csv", "a.wav", "\0", "x" * 300]),
        st.binary(max_size=30) | st.sampled_from([b"labels", b"the cat", b"{}", b'{"beam": 2}', b"[" * 2000]),
    ),
    max_size=5,
)


@settings(max_examples=100, **quiet)
@given(st.sampled_from(["/api/predict", "/api/attention", "/v1/audio/transcriptions"]), parts)
def test_fuzzed_forms(target: tuple[RunningServer, httpx.Client], path: str, fields: Any) -> None:
    server, client = target
    found = client.post(path, files=[("model", (None, b"labels")), *((n, (name, data)) for n, name, data in fields)])
    assert 200 <= found.status_code < 500, found.text
    assert list(server.folder.iterdir()) == []
