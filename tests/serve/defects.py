"""A deliberate defect for each proof of the server, which must turn it red.

`python -m tests.serve.defects DEFECT MODULE …` runs a module with one of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from runpy import run_module
from tempfile import mkdtemp
from typing import Any

from tests.laws.defects.planting import Mutant, instead, result

SECURITY = "headway.serve.security"


def twice(right: Callable[..., None]) -> Callable[..., None]:
    def answered(self: Any, path: str, status: int) -> None:
        for _ in range(1 + (status == 429)):
            right(self, path, status)

    return answered


def deaf(right: Callable[..., Any]) -> Callable[..., Any]:
    async def while_connected(receive: Any, work: Any) -> Any:
        return await work

    return while_connected


def guarding_one_route(right: Callable[..., None]) -> Callable[..., None]:
    def check_key(self: Any, scope: Any, headers: Any) -> None:
        if scope["path"] == "/v1/completions":
            right(self, scope, headers)

    return check_key


def open_below_health(right: Callable[..., None]) -> Callable[..., None]:
    def check_key(self: Any, scope: Any, headers: Any) -> None:
        if not scope["path"].startswith("/health"):
            right(self, scope, headers)

    return check_key


def unbounded(right: Callable[..., Any]) -> Callable[..., Any]:
    async def bounded(self: Any, headers: Any, receive: Any) -> Any:
        return receive

    return bounded


def patient(right: Callable[..., None]) -> Callable[..., None]:
    def init(self: Any, inner: Any, limit: int, seconds: float) -> None:
        right(self, inner, limit, 1e6)

    return init


def hoarding(right: Callable[..., None]) -> Callable[..., None]:
    def answered(self: Any, path: str, status: int) -> None:
        right(self, path, status)
        self.__dict__.setdefault("kept", []).append(bytearray(b"x" * 10**6))

    return answered


def left_open(right: Callable[..., None]) -> Callable[..., None]:
    from socket import socket

    def answered(self: Any, path: str, status: int) -> None:
        right(self, path, status)
        if path == "/v1/embeddings":
            OPENED.append(socket())

    return answered


OPENED = list[Any]()


class KeptFolder:
    """A temporary folder that is not removed."""

    def __init__(self, dir: Any) -> None:
        self.name = mkdtemp(dir=dir)

    def cleanup(self) -> None:
        pass


def nothing(*given: Any, **named: Any) -> None:
    pass


async def at_once(*given: Any, **named: Any) -> None:
    pass


MUTANTS = [
    Mutant("load", "a 429 is counted twice", "headway.serve.counters:Counters.answered", twice),
    Mutant(
        "load",
        "a refusal does not say when to come again",
        "headway.serve.continuations:busy",
        lambda right: lambda *given: right(*given).__class__(429, "busy"),
    ),
    Mutant("load", "a stream ends twice", "headway.serve.continuations:DONE", lambda right: right * 2),
    Mutant(
        "leaving",
        "the engine forgets that a request was cancelled",
        "headway.serve.engine:Ticket.cancel",
        instead(nothing),
    ),
    Mutant("leaving", "a client that leaves a stream is not noticed", "headway.serve.streaming:while_connected", deaf),
    Mutant("leaving", "a client that waits is not noticed", "headway.serve.completions:while_connected", deaf),
    Mutant(
        "leaving",
        "a prediction is not interrupted",
        "headway.serve.predictions:replace",
        lambda right: lambda options, **how: options,
    ),
    Mutant("leaving", "a model is not given back", "headway.serve.served_models:ModelPool.give_back", instead(nothing)),
    Mutant("signals", "SIGTERM waits for nobody", "uvicorn.server:Server.shutdown", instead(at_once)),
    Mutant("signals", "a second SIGTERM is not heeded", "os:_exit", instead(nothing)),
    Mutant("fuzz", "a wrong field is an internal error", "headway.serve.app:on_invalid_body", instead(None)),
    Mutant(
        "fuzz",
        "a prefix is taken one token too far",
        "headway.serve.engine:PrefixCache.shared",
        result(lambda n: n + 1),
    ),
    Mutant("bait", "bodies have no limit", f"{SECURITY}:Gate.bounded", unbounded),
    Mutant("bait", "depth has no limit", f"{SECURITY}:deeper_than", instead(lambda body, depth: False)),
    Mutant("slow", "a head may come byte by byte", "headway.serve.connections:TimedConnection.watch", instead(nothing)),
    Mutant("slow", "a body may come byte by byte", f"{SECURITY}:BoundedBody.__init__", patient),
    Mutant(
        "slow", "an answer need not be taken", "headway.serve.connections:TimedConnection.check_taken", instead(nothing)
    ),
    Mutant("keys", "the key guards one route", f"{SECURITY}:AccessRules.check_key", guarding_one_route),
    Mutant("keys", "all below /health is open", f"{SECURITY}:AccessRules.check_key", open_below_health),
    Mutant("soak", "requests are kept in memory", "headway.serve.counters:Counters.answered", hoarding),
    Mutant(
        "soak",
        "the folder of an upload is not removed",
        "headway.serve.uploads:TemporaryDirectory",
        instead(KeptFolder),
    ),
    Mutant("soak", "the thread of an engine does not end", "headway.serve.engine:Engine.close", instead(nothing)),
    Mutant("soak", "a socket is left open", "headway.serve.counters:Counters.answered", left_open),
]

if __name__ == "__main__":
    [mutant] = [one for one in MUTANTS if one.defect == sys.argv[1]]
    sys.argv[:] = sys.argv[2:]
    with mutant.planted():
        run_module(sys.argv[0], run_name="__main__", alter_sys=True)
