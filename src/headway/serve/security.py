"""What stands before every route, in plain ASGI: who may ask, from where, and how much.

The order is: Host and Origin, the key, the size and the depth of the body.  Nothing is parsed, and no model works,
before all of them are passed.  The log has a line for each request, without its query and its body.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import sys
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic

import numpy as np
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway.look.server import HEADERS as PAGE_HEADERS
from headway.serve.api_errors import ApiError, print_bug
from headway.serve.counters import Counters
from headway.serve.server_state import RequestLimits
from headway.serve.streaming import CLIENT_LEFT, ClientLeftError

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
OPEN_PATH = "/health"
CHAT_PATH = "/v1/chat/completions"
READING = ("GET", "HEAD")
HEADERS = {**PAGE_HEADERS, "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'"}
STRING = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)', re.DOTALL)  # the last may lack its end
NESTING = np.array([(byte in b"[{") - (byte in b"]}") for byte in range(256)], np.int8)


@dataclass(frozen=True)
class AccessRules:
    """Who may ask: with a `key`, whoever has it; without, only who names the loopback address as the host."""

    key: str | None = field(default=None, repr=False)
    origins: Sequence[str] = ()  # of pages of other servers
    log: bool = False

    def check_origin(self, scope: Scope, headers: Headers) -> None:
        """A page of another server may not ask, nor one that a name of its own leads here (DNS rebinding)."""
        host, origin = headers.get("host", ""), headers.get("origin")
        address, port = scope.get("server") or ("", None)
        allowed = {name if port == 80 else f"{name}:{port}" for name in (*LOOPBACK, address)}
        if self.key is None and host not in allowed:
            raise ApiError(403, "this server answers requests to its loopback address alone", code="host")
        own = {f"{scheme}://{host}" for scheme in ("http", "https")}
        if origin is not None and origin not in own and origin not in self.origins:
            raise ApiError(403, "pages of other servers may not ask this one", code="origin")

    def check_key(self, scope: Scope, headers: Headers) -> None:
        if self.key is None or (scope["path"] == OPEN_PATH and scope["method"] in READING):
            return
        given = given_key(headers.get("authorization", ""))
        digests = (hashlib.sha256(one.encode("utf-8", "replace")).digest() for one in (given or "", self.key))
        if not hmac.compare_digest(*digests) or given is None:
            said = "a request needs the server's API key, as in Authorization: Bearer KEY"
            # a browser asks for the key as a password of any name
            challenge = (
                'Basic realm="headway", charset="UTF-8"' if "text/html" in headers.get("accept", "") else "Bearer"
            )
            raise ApiError(401, said, code="invalid_api_key", headers={"WWW-Authenticate": challenge})


def given_key(authorization: str) -> str | None:
    """The key of a client, or the password that a browser sends; None where there is neither."""
    scheme, _, given = authorization.partition(" ")
    match scheme.lower():
        case "bearer":
            return given.strip()
        case "basic":
            try:
                return b64decode(given.strip(), validate=True).decode("utf-8").partition(":")[2]
            except ValueError:
                return None
        case _:
            return None


class Gate:
    """The outermost layer: every request is checked, counted, and answered, also where a route has a bug."""

    def __init__(self, app: ASGIApp, rules: AccessRules, limits: RequestLimits, counters: Counters):
        self.app, self.rules, self.limits, self.counters = app, rules, limits, counters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await self.answer(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008, "reason": ""})

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        start, status = monotonic(), 0

        async def send_marked(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            headers = Headers(scope=scope)
            self.rules.check_origin(scope, headers)
            self.rules.check_key(scope, headers)
            await self.app(scope, await self.bounded(scope["path"], headers, receive), send_marked)
        except ApiError as error:
            await error.response()(scope, receive, send_marked)
        except ClientLeftError:
            status = CLIENT_LEFT
        except Exception as error:
            print_bug(error)
            if not status:
                await ApiError(500, "internal error; see the server's log").response()(scope, receive, send_marked)
        finally:
            self.count(scope, status or CLIENT_LEFT, monotonic() - start)

    def count(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")  # not what a client made up
        if status == CLIENT_LEFT:
            self.counters.client_left()
        self.counters.answered(route, status)
        if self.rules.log:
            print(f"{scope['method']:.10} {route} {status} {seconds * 1000:.0f} ms", file=sys.stderr, flush=True)

    async def bounded(self, path: str, headers: Headers, receive: Receive) -> Receive:
        """What receives a body that is not too large; a form comes in pieces, all else is read and checked here."""
        form = headers.get("content-type", "").strip().lower().startswith("multipart/form-data")
        limit = self.limits.chat_bytes if path == CHAT_PATH else self.limits.json_bytes
        limit = self.limits.upload_bytes if form else limit
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > 18:
            raise ApiError(400, "Content-Length is not a number")
        if int(length) > limit:
            raise too_large(limit)
        pieces = BoundedBody(receive, limit, self.limits.body_seconds)
        if form:
            return pieces.receive
        body = await pieces.whole()
        if deeper_than(body, self.limits.json_depth):
            said = f"the body is not JSON, or is nested more than {self.limits.json_depth} levels deep"
            raise ApiError(400, said)
        return Replayed(body, receive).receive


class BoundedBody:
    """A body of which no more than `limit` bytes are received, in no more than `seconds`."""

    def __init__(self, inner: Receive, limit: int, seconds: float):
        self.inner, self.limit, self.deadline = inner, limit, monotonic() + seconds
        self.left, self.ended = limit, False

    async def receive(self) -> Message:
        if self.ended:
            return await self.inner()
        try:
            async with asyncio.timeout(max(0.0, self.deadline - monotonic())):
                message = await self.inner()
        except TimeoutError:
            raise ApiError(408, "the body took too long to arrive", headers={"Connection": "close"}) from None
        if message["type"] == "http.disconnect":
            raise ClientLeftError
        self.left -= len(message.get("body", b""))
        self.ended = not message.get("more_body", False)
        if self.left < 0:
            raise too_large(self.limit)
        return message

    async def whole(self) -> bytes:
        parts = list[bytes]()
        while not self.ended:
            parts.append((await self.receive()).get("body", b""))
        return b"".join(parts)


class Replayed:
    """A body that was read already, and then what follows it."""

    def __init__(self, body: bytes, inner: Receive):
        self.body, self.inner, self.given = body, inner, False

    async def receive(self) -> Message:
        if self.given:
            return await self.inner()
        self.given = True
        return {"type": "http.request", "body": self.body, "more_body": False}


def too_large(limit: int) -> ApiError:
    said = f"a body of more than the {limit:,} bytes that are allowed"
    return ApiError(413, said, code="request_too_large")


def deeper_than(body: bytes, depth: int) -> bool:
    """Whether brackets outside of strings are nested deeper, in one pass: a body of them alone must not cost seconds.

    Where more are closed than opened, a parser goes no further, and neither counts what follows.
    """
    rest = np.frombuffer(STRING.sub(b"", body), np.uint8)
    return bool(NESTING[rest].cumsum(dtype=np.int32).max(initial=0) > depth)
