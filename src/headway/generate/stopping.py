"""When a continuation ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from headway.errors import UserError

Decode = Callable[[Sequence[int]], str]


class Reason(StrEnum):
    """Why a continuation ended."""

    TOKEN = "token"  # a stop token was chosen
    STRING = "string"  # its text holds a stop string
    LENGTH = "length"  # it has as many tokens as were asked for
    CONTEXT = "context"  # the model has no more positions


@dataclass(frozen=True)
class Stop:
    """A continuation ends at a stop token, where its text holds a stop string, or after `most` new tokens.

    The stop token, and the tokens that complete a stop string, belong to the continuation's tokens; its `text` ends
    before them.  Before `least` new tokens stop tokens cannot be chosen and stop strings do not count.  Stop strings
    are looked for in what `decode` makes of all new tokens; the prompt's text does not count.
    """

    most: int = 64
    tokens: tuple[int, ...] = ()
    strings: tuple[str, ...] = ()
    least: int = 0
    decode: Decode | None = None

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

    def reason(self, tokens: Sequence[int], room: int) -> Reason | None:
        """Why a continuation ends here that may have `room` tokens; None: it goes on."""
        if tokens[-1] in self.tokens:
            return Reason.TOKEN
        if len(tokens) >= self.least and self.found(tokens) is not None:
            return Reason.STRING
        if len(tokens) >= self.most:
            return Reason.LENGTH
        return Reason.CONTEXT if len(tokens) >= room else None

    def found(self, tokens: Sequence[int]) -> int | None:
        """Where in the text of `tokens` the first stop string begins."""
        if not self.strings or self.decode is None:
            return None
        text = self.decode(tokens)
        return min((text.index(string) for string in self.strings if string in text), default=None)

    def text(self, tokens: Sequence[int]) -> str:
        """The text of a continuation, without its stop token and before its stop string."""
        if self.decode is None:
            raise UserError("text without a way to read tokens", do="pass Stop(decode=tokenizer.decode, …)")
        if tokens and tokens[-1] in self.tokens:
            tokens = tokens[:-1]
        found = self.found(tokens) if len(tokens) >= self.least else None
        return self.decode(tokens)[:found]


STOP = Stop()
