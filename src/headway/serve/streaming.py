"""Work that ends when its client leaves, and answers that are sent as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

from fastapi import Response
from starlette.types import Receive, Scope, Send

CLIENT_LEFT = 499  # nobody reads it; for the counters
DONE = b"data: [DONE]\n\n"
Result = TypeVar("Result")


class ClientLeftError(Exception):
    """Nobody waits for the answer any more."""


async def while_connected(receive: Receive, work: Coroutine[Any, Any, Result]) -> Result:
    """What some work returns; it is cancelled where the client leaves."""
    working, gone = asyncio.ensure_future(work), asyncio.ensure_future(disconnected(receive))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientLeftError
        return working.result()
    finally:
        for task in (working, gone):
            task.cancel()
        await asyncio.gather(working, gone, return_exceptions=True)


async def disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def event(value: object) -> bytes:
    """One event: a line of JSON, in which no line ends."""
    return f"data: {json.dumps(value, allow_nan=False, separators=(',', ':'))}\n\n".encode("ascii")


class EventStream(Response):
    """Events that are sent as they come.  `end` is called once when the stream has ended, however it did."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes], end: Callable[[], None]):
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self.events, self.end = events, end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await while_connected(receive, self.send_all(send))
        finally:
            self.end()

    async def send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self.events) as events:
            async for piece in events:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
