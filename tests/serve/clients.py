"""Clients that speak HTTP by hand: what they send, and how they leave, is up to a test."""

from __future__ import annotations

import asyncio
import io
import json
import socket
import struct
from collections.abc import Mapping
from http.client import HTTPException, HTTPResponse
from typing import Any, NamedTuple

import httpx2 as httpx

from tests.serve.server import read_events

HOST = "127.0.0.1"
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends a reset


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


def head(port: int, target: str, *lines: str) -> bytes:
    return "\r\n".join([f"{target} HTTP/1.1", f"Host: {HOST}:{port}", *lines, "", ""]).encode()


def posted(port: int, path: str, body: object) -> bytes:
    """A request behind whose answer the server closes the connection."""
    data = json.dumps(body).encode()
    about = ("Content-Type: application/json", f"Content-Length: {len(data)}", "Connection: close")
    return head(port, f"POST {path}", *about) + data


async def exchange(port: int, request: bytes, seconds: float = 30.0) -> Answer:
    """The one answer that a connection gives; it fails where there is none, half of one or a second."""
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection(HOST, port)
            try:
                writer.write(request)
                return parsed(await reader.read())
            finally:
                writer.close()
    except (OSError, HTTPException) as error:  # a timeout is one too
        raise AssertionError(f"{request[:40]!r} was not answered: {error!r}") from error


class Wire(io.BytesIO):
    """What was received, for a parser that expects a socket and would close it."""

    def makefile(self, mode: str) -> Wire:
        return self

    def close(self) -> None:
        pass


def parsed(data: bytes) -> Answer:
    wire = Wire(data)
    response = HTTPResponse(wire)  # type: ignore[arg-type]
    response.begin()
    body = response.read()
    assert wire.read() == b""
    return Answer(response.status, response.headers, body)


def check_finished(answer: Answer) -> int:
    """Sees that a completion ended once; the number of its tokens."""
    assert answer.status == 200, answer
    if "text/event-stream" not in answer.headers["content-type"]:
        whole = json.loads(answer.body)
        assert [choice["finish_reason"] in ("stop", "length") for choice in whole["choices"]] == [True]
        return whole["usage"]["completion_tokens"]
    *events, usage, done = read_events(answer.body.decode())
    assert [one for one in (*events, usage, done) if isinstance(one, str)] == [done]
    assert sum(event["choices"][0]["finish_reason"] is not None for event in events) == 1
    assert events[-1]["choices"][0]["finish_reason"] in ("stop", "length")
    return usage["usage"]["completion_tokens"]


def completion(model: str, tokens: int, *, stream: bool, **more: Any) -> dict[str, Any]:
    streamed = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    return {"model": model, "prompt": "the cat", "max_tokens": tokens, **streamed, **more}


def asked(port: int, request: bytes) -> socket.socket:
    """A connection on which a request was sent, and nothing read."""
    connection = socket.create_connection((HOST, port), timeout=60)
    connection.sendall(request)
    return connection


def begun(port: int, request: bytes) -> socket.socket:
    """A connection on which the first event of a stream has come, or the end of another answer."""
    connection, received = asked(port, request), b""
    while b"data: " not in received and (piece := connection.recv(4096)):
        received += piece
    return connection


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    connection.close()


def close(connection: socket.socket) -> None:
    """In order, although there is something left to read, which would make it a reset."""
    connection.shutdown(socket.SHUT_WR)
    connection.close()


def metrics(url: str) -> dict[str, int]:
    lines = httpx.get(f"{url}/metrics", timeout=60).text.splitlines()
    return {name: int(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


def total(found: Mapping[str, int], beginning: str) -> int:
    return sum(value for name, value in found.items() if name.startswith(beginning))
