"""Continuous batching: many requests decoded by one model, which join and leave between steps.

(Under construction: the types below are fixed; the engine itself is being written.)
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import NamedTuple

from headway.generate.request import Reason
from headway.model import Model
from headway.tasks.generation import GREEDY_OPTIONS, GenerationOptions


@dataclass(frozen=True)
class EngineLimits:
    """How much an engine does at once: rows that are decoded, requests that wait, and tokens of a row."""

    slots: int = 4
    queue: int = 16
    context: int | None = None  # None: what the model can read at once, or 4,096
    chunk: int = 128  # tokens of a prompt that are read between two steps of the others
    prefix_bytes: int = 256 * 2**20  # of keys and values that are kept of earlier requests


class Overloaded(Exception):
    """All slots are taken and the queue is full; `retry_after` is in seconds."""

    def __init__(self, retry_after: int):
        super().__init__("all slots are taken and the queue is full")
        self.retry_after = retry_after


class TokenEvent(NamedTuple):
    """A new token; `text` is what can be shown with it, which may be nothing yet."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]  # the likeliest tokens with their log-probabilities, as many as asked for
    text: str
    reason: Reason | None  # why it is the last; None: it goes on


@dataclass(frozen=True)
class GenerationRequest:
    """A prompt to continue.  `options.decoding` is a sampler; `options.max_new_tokens` None: until the context is full."""

    prompt: tuple[int, ...]
    options: GenerationOptions = GREEDY_OPTIONS
    top_logprobs: int = 0


class Ticket:
    """A request that an engine has taken."""

    cached_tokens: int = 0  # of the prompt, which were read for an earlier request

    def events(self) -> AsyncIterator[TokenEvent]:
        """The tokens as they come; it raises what the engine has failed with.  Used in the event loop it was made in."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Frees the slot; nothing follows.  Called from any thread, any number of times."""
        raise NotImplementedError


class Engine:
    """One model that continues texts, in a thread of its own."""

    def __init__(self, model: Model, limits: EngineLimits):
        raise NotImplementedError

    def submit(self, request: GenerationRequest) -> Ticket:
        """Takes a request, or raises `Overloaded`, or a `UserError` where the prompt is longer than the context."""
        raise NotImplementedError

    @property
    def running(self) -> int: ...

    @property
    def waiting(self) -> int: ...

    def close(self, *, drain: bool) -> None:
        """Ends the thread: after all that was taken (`drain`), or at once."""
        raise NotImplementedError
