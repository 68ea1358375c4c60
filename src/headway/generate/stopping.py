"""Stopping criteria: stop tokens, stop strings, maximum length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from headway.errors import UserError

Decode = Callable[[Sequence[int]], str]


class Reason(StrEnum):
    """Why a continuation ended."""

    TOKEN = "token"  # a stop token was chosen
    STRING = "string"  # its text holds a stop string
    LENGTH = "length"  # it has as many tokens as were asked for
    CONTEXT = "context"  # the model has no more positions


class StreamDecoder(Protocol):
    """Text as its tokens come in, as a tokenizer's stream gives it; `copy` of it goes on by itself."""

    def push(self, id: int, /) -> str: ...


@dataclass(frozen=True)
class Stop:
    """A continuation ends at a stop token, where its text holds a stop string, or after `most` new tokens.

    The stop token, and the tokens that complete a stop string, belong to the continuation's tokens; its `text` ends
    before them.  Before `least` new tokens stop tokens cannot be chosen and stop strings do not count.  Stop strings
    are looked for in what `decode` makes of all new tokens; the prompt's text does not count.  With `stream`, which
    tells the same text piece by piece, a token costs the same however many came before it.
    """

    most: int = 64
    tokens: tuple[int, ...] = ()
    strings: tuple[str, ...] = ()
    least: int = 0
    decode: Decode | None = None
    stream: Callable[[], StreamDecoder] | None = None

    def __post_init__(self) -> None:
        if self.most < 1:
            raise UserError(f"Stop(most={self.most})", allowed="1 new token or more")
        if not 0 <= self.least <= self.most:
            raise UserError(f"Stop(least={self.least}, most={self.most})", allowed=f"a least of 0 to {self.most}")
        if self.strings and self.decode is None:
            raise UserError("stop strings without a way to read tokens", do="pass Stop(decode=tokenizer.decode, …)")
        if "" in self.strings:
            raise UserError("an empty stop string", allowed="strings of one letter or more")

    def forbidden(self, length: int) -> tuple[int, ...]:
        """The tokens that may not follow `length` new ones."""
        return self.tokens if length < self.least else ()

    def reason(self, tokens: Sequence[int], room: int, heard: bool) -> Reason | None:
        """Why a continuation ends here that may have `room` tokens; None: it goes on.

        `heard`: its text holds a stop string, as a `StopMatcher` tells.
        """
        if tokens[-1] in self.tokens:
            return Reason.TOKEN
        if heard and len(tokens) >= self.least:
            return Reason.STRING
        if len(tokens) >= self.most:
            return Reason.LENGTH
        return Reason.CONTEXT if len(tokens) >= room else None

    def found(self, text: str) -> int | None:
        """Where the first stop string begins in a text."""
        return min((text.index(string) for string in self.strings if string in text), default=None)

    def certain(self, text: str) -> int:
        """How much of a text is before any stop string, whatever follows it."""
        found = self.found(text)
        begun = (at for at in range(len(text)) if any(string.startswith(text[at:]) for string in self.strings))
        return next(begun, len(text)) if found is None else found

    def text(self, tokens: Sequence[int]) -> str:
        """The text of a continuation, without its stop token and before its stop string."""
        if self.decode is None:
            raise UserError("text without a way to read tokens", do="pass Stop(decode=tokenizer.decode, …)")
        if tokens and tokens[-1] in self.tokens:
            tokens = tokens[:-1]
        text = self.decode(tokens)
        return text[: self.found(text)] if len(tokens) >= self.least else text


class StopMatcher:
    """Matches stop strings in one continuation, token by token."""

    def __init__(self, stop: Stop):
        self.stop, self.heard = stop, False
        self.words = stop.stream() if stop.strings and stop.stream is not None else None
        self.tail, self.reach = "", max((len(string) for string in stop.strings), default=1) - 1
        self.tokens: tuple[int, ...] = ()  # where there is no stream

    def push(self, token: int) -> bool:
        """Whether the text holds a stop string, with this token."""
        if self.heard or not self.stop.strings:
            return self.heard
        text = self.tail + self.words.push(token) if self.words is not None else self.anew(token)
        self.heard = self.stop.found(text) is not None
        self.tail = text[max(len(text) - self.reach, 0) :]  # all that a string which ends later could begin in
        return self.heard

    def anew(self, token: int) -> str:
        assert self.stop.decode is not None
        self.tokens = (*self.tokens, token)
        return self.stop.decode(self.tokens)

    def fork(self) -> StopMatcher:
        """Another that has heard the same and goes on by itself, as beams do."""
        other = copy(self)
        other.words = copy(self.words)
        return other


STOP = Stop()
