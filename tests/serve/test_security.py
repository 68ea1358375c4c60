"""Who may ask, from where, and how much; and that nothing a client sends is opened, logged or left behind."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from fastapi.routing import iter_route_contexts

from headway.serve.security import AccessRules, deeper_than
from headway.serve.server_state import RequestLimits
from tests.serve.server import RunningServer, serving

slow = pytest.mark.slow
CREDENTIALS: list[dict[str, str]] = [
    {},
    {"Authorization": "Bearer wrong"},
    {"Authorization": "Bearer"},
    {"Authorization": "Basic secret-key-1"},
    {"Authorization": "secret-key-1"},
    {"X-API-Key": "secret-key-1"},
]
SPELLINGS = ("{}", "/{}", "{}/", "{}?key=secret-key-1", "{}%00", "/health/..{}", "/health{}", "{}#/health")


@slow
def test_no_route_answers_without_the_key(guarded: RunningServer) -> None:
    refuse_without_key(guarded, ("GET", "POST", "OPTIONS"))
    assert httpx.get(f"{guarded.url}/health").json() == {"status": "ok"}
    assert guarded.get("/ready").status_code == 200


def refuse_without_key(server: RunningServer, methods: Sequence[str]) -> None:
    """Every path of the application, however it is spelled, with anything but the key."""
    routes = {route.path for route in iter_route_contexts(server.app.routes)}
    assert routes >= {"/", "/health", "/look", "/metrics", "/openapi.json", *server.app.openapi()["paths"]}
    every = sorted(path.replace("{name}", "causal") for path in routes - {"/health"})
    for path in every:
        for spelling in SPELLINGS:
            for headers in CREDENTIALS:
                for method in methods:
                    status = raw_status(server.port, method, spelling.format(path), headers)
                    assert status == 401, (method, path, spelling, headers)  # not even whether there is such a path


def raw_status(port: int, method: str, target: str, headers: dict[str, str]) -> int:
    """The status of a request whose target is sent as it stands."""
    lines = [f"{method} {target} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Connection: close", "Content-Length: 0"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        return int(connection.makefile("rb").readline().split()[1])


@slow
def test_hosts_and_origins(server: RunningServer, guarded: RunningServer) -> None:
    port = server.url.rpartition(":")[2]
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}"):
        assert server.get("/health", headers={"Host": host}).status_code == 200
        assert server.get("/health", headers={"Host": host, "Origin": f"http://{host}"}).status_code == 200
    for host in ("elsewhere.example", f"elsewhere.example:{port}", "127.0.0.1", "127.0.0.1:1", ""):
        assert server.get("/health", headers={"Host": host}).status_code in (400, 403)
    for origin in ("http://elsewhere.example", "null", f"http://127.0.0.1:{port}.example", "http://127.0.0.1"):
        refused = server.get("/v1/models", headers={"Origin": origin})
        assert refused.status_code == 403
        assert refused.json()["error"]["type"] == "permission_error"
        assert "access-control-allow-origin" not in refused.headers
    # with a key, a proxy may pass on the name that the world knows
    assert guarded.get("/v1/models", headers={**guarded.headers, "Host": "models.example"}).status_code == 200


@slow
def test_a_named_origin_may_ask_and_no_other(folders: dict[str, Path]) -> None:
    ours, other = "https://app.example", "https://other.example"
    with serving({"causal": folders["causal"]}, AccessRules("k", (ours,))) as server:
        asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
        allowed = httpx.options(f"{server.url}/v1/completions", headers={"Origin": ours, **asked})
        assert allowed.headers["access-control-allow-origin"] == ours
        refused = httpx.options(f"{server.url}/v1/completions", headers={"Origin": other, **asked})
        assert "access-control-allow-origin" not in refused.headers
        found = server.get("/v1/models", headers={**server.headers, "Origin": ours})
        assert (found.status_code, found.headers["access-control-allow-origin"]) == (200, ours)
        assert server.get("/v1/models", headers={**server.headers, "Origin": other}).status_code == 403
        assert server.get("/v1/models", headers={"Origin": ours}).status_code == 401


@slow
def test_large_and_deep_bodies_are_refused_before_they_are_parsed(server: RunningServer) -> None:
    large = server.post("/v1/completions", {"model": "causal", "prompt": "x" * (3 * 2**20)})
    assert large.status_code == 413
    assert large.json()["error"]["code"] == "request_too_large"
    chunked = httpx.post(
        f"{server.url}/v1/completions",
        content=(b"[" + b" " * 2**16 for _ in range(50)),
        headers={"Content-Type": "application/json"},
    )
    assert chunked.status_code == 413
    for deep in (b"[" * 100_000, b"[" * 40 + b"]" * 40, b'{"a":' * 40 + b"1" + b"}" * 40):
        found = server.post("/v1/completions", content=deep, headers={"Content-Type": "application/json"})
        assert found.status_code == 400
        assert "levels deep" in found.json()["error"]["message"]
    upload = server.post("/api/predict", files={"file": b"x" * (33 * 2**20)}, data={"model": "labels"})
    assert upload.status_code == 413
    prompt = server.post("/v1/completions", {"model": "causal", "prompt": "x" * 500_000})
    assert prompt.status_code == 400
    assert prompt.json()["error"]["code"] == "context_length_exceeded"


@pytest.mark.slow
def test_the_depth_of_json_is_counted_outside_of_strings() -> None:
    assert not deeper_than(b'{"a": "[[[[[[", "b": [1, {"c": []}]}', 4)
    assert deeper_than(b'{"a": "[[[[[[", "b": [1, {"c": []}]}', 3)
    assert not deeper_than(rb'["\"[[[["]', 1)
    assert deeper_than(b"[[]", 1)
    assert not deeper_than(b'"' + rb"\"" * 10**6 + b"\\", 1)  # in linear time
    assert not deeper_than(b"", 0)
    assert deeper_than(b"[a" * 10**6, 8)


WRONG: list[tuple[bytes, str]] = [
    (b"", "application/json"),
    (b"{", "application/json"),
    (b"null", "application/json"),
    (b"[]", "application/json"),
    (b'{"model": "causal", "prompt": "a"}', "text/plain"),
    (b'{"model": "causal", "prompt": "a"}', "application/x-www-form-urlencoded"),
    (b"\xff\xfe", "application/json"),
    (b'{"model": "causal", "prompt": "a", "seed": 1' + b"0" * 5000 + b"}", "application/json"),
    (b'{"model": "causal", "prompt": "a", "temperature": NaN}', "application/json"),
    (b'{"model": "causal", "prompt": "\\ud800"}', "application/json"),
    (b'{"model": "\\ud800", "prompt": "a"}', "application/json"),
    (b"--x\r\n", "multipart/form-data; boundary=x"),
    (b"--x\r\n", "multipart/form-data"),
]


@slow
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/embeddings", "/api/predict"])
@pytest.mark.parametrize(("body", "kind"), WRONG, ids=lambda value: str(value)[:30])
def test_wrong_bodies(server: RunningServer, path: str, body: bytes, kind: str) -> None:
    found = server.post(path, content=body, headers={"Content-Type": kind})
    assert found.status_code == 400
    assert set(found.json()["error"]) == {"message", "type", "param", "code"}


@slow
def test_every_answer_has_the_headers_of_a_careful_server(server: RunningServer) -> None:
    for path in ("/", "/docs", "/v1/models", "/nothing"):
        headers = server.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "server" not in headers or "headway" not in headers["server"]
    for path in ("/", "/docs"):
        text = server.get(path).text
        assert "<script src" not in text
        assert "unsafe" not in server.get(path).headers["content-security-policy"]
        assert "src=" not in text
        assert "https://" not in text


@slow
def test_a_text_is_never_opened_as_a_file(server: RunningServer, folders: dict[str, Path], tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("the password")
    for name in ("labels", "pairs", "tags", "vectors", "causal"):
        found = server.post("/api/predict", {"model": name, "input": str(secret)})
        assert found.status_code == 200
        assert "password" not in found.text
    for name in (str(folders["labels"]), "../labels", "labels/../labels", "file:///labels"):
        assert server.post("/api/predict", {"model": name, "input": "a"}).status_code == 404


@slow
def test_logs_hold_no_prompt(folders: dict[str, Path], capfd: pytest.CaptureFixture[str]) -> None:
    with serving({"causal": folders["causal"]}, AccessRules(log=True)) as server:
        server.post("/v1/completions?q=marzipan", {"model": "causal", "prompt": "marzipan", "max_tokens": 1})
        server.post("/v1/completions", {"model": "marzipan", "prompt": "marzipan"})
        server.get("/marzipan")
        engine = server.engine("causal")
        engine.pool.read = broken  # type: ignore[method-assign]
        failed = server.post("/v1/completions", {"model": "causal", "prompt": "marzipan"})
        assert failed.status_code == 503
        assert "marzipan" not in failed.text
    log = capfd.readouterr()
    assert "POST /v1/completions 200" in log.err
    assert "internal error: KeyError" in log.err
    assert "marzipan" not in log.err + log.out


def broken(pieces: Any, memories: Any) -> None:
    raise KeyError("marzipan")


@slow
def test_bodies_that_never_end_are_left(folders: dict[str, Path]) -> None:
    with serving({"causal": folders["causal"]}, limits=RequestLimits(body_seconds=0.2)) as server:
        port = int(server.url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 100\r\n\r\n"
            connection.sendall(head.encode() + b"{")
            answer = connection.makefile("rb")
            assert b"408" in answer.readline()
            assert json.loads(answer.read().rpartition(b"\r\n\r\n")[2])["error"]["message"]
