"""The state of one prompt during decoding, its steps and its result.

Axes:  V vocabulary
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

import torch
from torch import Tensor

from headway.generate.rules import FREE, Rules
from headway.generate.sampling import Sampler
from headway.generate.stopping import Reason, Stop, StopMatcher


class Step(NamedTuple):
    """A new token of one row."""

    row: int  # which of the prompts
    token: int
    logprob: float  # by the model itself, before any change of its logits
    reason: Reason | None  # why the row ends with it; None: it goes on


@dataclass(frozen=True)
class Generated:
    """A continuation: its tokens with a stop token at the end where it has one, and the model's log-probabilities."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    reason: Reason
    score: float  # what continuations of one prompt are ordered by: the sum of logprobs unless a beam says otherwise

    @property
    def body(self) -> tuple[int, ...]:
        """The tokens without the stop token."""
        return self.tokens[:-1] if self.reason is Reason.TOKEN else self.tokens


@dataclass
class Request:
    """One row while it is being continued."""

    row: int
    prompt: list[int]
    how: Sampler
    stop: Stop
    room: int  # new tokens at most
    rules: Rules = FREE
    tokens: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    reason: Reason | None = None

    def __post_init__(self) -> None:
        self.draw = torch.Generator().manual_seed(self.how.seed)
        self.matcher, self.processors = StopMatcher(self.stop), self.how.processors()

    def process(self, logits: Tensor, ahead: Sequence[int] = ()) -> Tensor:
        """The processed logits (V) of the next token, after the tokens `ahead`."""
        length = len(self.tokens) + len(ahead)
        if forbidden := self.stop.forbidden(length):
            logits = logits.index_fill(0, torch.tensor(forbidden, device=logits.device), -inf)
        if self.rules is FREE and not self.processors:
            return logits
        seen = [*self.prompt, *self.tokens, *ahead]
        ids = torch.tensor([seen], device=logits.device)
        logits = self.rules.masked(logits[None], length, [self.room], ids)[0]
        return self.how.process(logits, seen)

    def choose(self, logits: Tensor) -> int:
        return self.how.pick(self.process(logits), self.draw)

    def take(self, token: int, logprob: float) -> Step:
        self.tokens.append(token)
        self.logprobs.append(logprob)
        self.reason = self.stop.reason(self.tokens, self.room, self.matcher.push(token))
        return Step(self.row, token, logprob, self.reason)
