"""Connections of clients: how many there may be, and how long one may keep the server waiting.

uvicorn bounds the time between two requests.  By itself it would wait for ever for a head that comes byte by byte, for
the rest of a body that was answered before its end, for a client that takes nothing of its answer, and as it ends for
one that goes on asking over a connection that it accepted last.  How long a body may take that a route reads is up to
`BoundedBody`.
"""

from __future__ import annotations

from asyncio import TimerHandle, Transport
from logging import CRITICAL, ERROR, getLogger

from fastapi import FastAPI
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol

from headway.serve.counters import Counters

MAX_CONNECTIONS = 512
ACCEPTED = 1  # connections in a turn of the event loop: the first worker to wake would else take all of a burst
PATIENCE = 20  # seconds


def server_config(app: FastAPI, counters: Counters, patience: int = PATIENCE) -> Config:
    """How uvicorn runs the application: over HTTP/1.1 alone, without logs and headers of its own."""
    getLogger("python_multipart").setLevel(CRITICAL)  # which tells of the bytes of malformed forms
    getLogger("asyncio").setLevel(ERROR)  # which warns of each client that has left
    return Config(
        app,
        loop="asyncio",
        http=TimedConnection,
        ws="none",
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MAX_CONNECTIONS,
        backlog=ACCEPTED,
        timeout_keep_alive=patience,
        callback_notify=counters.refresh,
        timeout_notify=0,
    )


class TimedConnection(H11Protocol):
    """A connection that ends where the client lets it wait for more than `timeout_keep_alive` seconds."""

    to_send: TimerHandle | None = None  # runs while no request is being answered, and the client has to send one
    to_take: TimerHandle | None = None  # runs while the client has to take what was sent

    def connection_made(self, transport: Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # every byte that was not taken counts
        self.watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # uvicorn tells those that are open; one that it has accepted may be made only then
        if self.cycle is not None and self.ending:  # pyright: ignore[reportUnnecessaryComparison]
            self.cycle.keep_alive = False
        self.watch()

    @property
    def ending(self) -> bool:
        app = self.config.app
        assert isinstance(app, FastAPI)
        return app.state.ending

    def watch(self) -> None:
        answering = self.cycle is not None and not self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]
        if answering and self.to_send is not None:
            self.to_send.cancel()
            self.to_send = None
        elif not answering and self.to_send is None:
            self.to_send = self.loop.call_later(self.timeout_keep_alive, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.check_taken(self.transport.get_write_buffer_size() + 1)

    def check_taken(self, before: int) -> None:
        """Looks again later, as long as there is less to take each time."""
        left = self.transport.get_write_buffer_size()
        if left < before:
            self.to_take = self.loop.call_later(self.timeout_keep_alive, self.check_taken, left)
        else:
            self.transport.abort()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.to_take is not None:
            self.to_take.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for timer in (self.to_send, self.to_take):
            if timer is not None:
                timer.cancel()
