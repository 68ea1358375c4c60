"""Constraints on the next token, from a generation config: forced and suppressed tokens, no-repeat n-grams.

Axes:  B rows   T tokens so far   V vocabulary
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from headway.errors import UserError

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Rules:
    """Which tokens are forced or forbidden at each position of a continuation.

    A continuation begins with one of `first` and, where it is as long as it may be, ends with one of `last`: a token
    that is forced does not change a beam's score.  Tokens in `never` are suppressed everywhere, those in `not_first` at
    the beginning; no n-gram of `no_repeat` tokens occurs twice, the prompt included.
    """

    first: Tokens = ()
    last: Tokens = ()
    never: Tokens = ()
    not_first: Tokens = ()
    no_repeat: int = 0

    def __post_init__(self) -> None:
        if self.no_repeat < 0:
            raise UserError(f"Rules(no_repeat={self.no_repeat})", allowed="the length of a run; 0 allows repetition")

    def forced(self, length: int, room: int) -> Tokens:
        """The only tokens that may follow `length` new ones, where there is room for `room`; none: all may."""
        if self.last and length == room - 1:
            return self.last
        return self.first if length == 0 else ()

    def masked(self, logits: Tensor, length: int, rooms: Sequence[int], ids: Tensor) -> Tensor:
        """Logits (B V) with −∞ at forbidden tokens.

        `ids` (B T) are the prompt and `length` new tokens of each row, −1 in front where a row is shorter; `rooms` are
        how many new tokens each may have.
        """
        barred = self.never + (self.not_first if length == 0 else ())
        if barred:
            logits = logits.index_fill(1, torch.tensor(barred, device=logits.device), -inf)
        if self.no_repeat and ids.shape[1] >= self.no_repeat:
            logits = logits.masked_fill(repeated_ngrams(ids, self.no_repeat, logits.shape[1]), -inf)
        forced = [self.forced(length, room) for room in rooms]
        if any(forced):
            logits = torch.stack([keep_only(row, tokens) for row, tokens in zip(logits, forced, strict=True)])
        return logits


def keep_only(logits: Tensor, tokens: Tokens) -> Tensor:
    """`logits` (V) with −∞ at all but `tokens`; as they are where none are named."""
    if not tokens:
        return logits
    kept = torch.tensor(tokens, device=logits.device)
    return torch.full_like(logits, -inf).index_fill(0, kept, 0.0)


def repeated_ngrams(ids: Tensor, size: int, vocab: int) -> Tensor:
    """Which tokens would complete an n-gram of `size` tokens that ids (B T) has already, B V."""
    runs = ids.unfold(1, size, 1)  # B (T − size + 1) size
    begun = ids[:, ids.shape[1] - size + 1 :]  # B (size − 1): the run that the next token would end
    same = (runs[:, :, :-1] == begun[:, None]).all(-1) & (runs[:, :, -1] >= 0)
    barred = torch.zeros(len(ids), vocab + 1, dtype=torch.bool, device=ids.device)
    return barred.scatter_(1, torch.where(same, runs[:, :, -1], vocab), True)[:, :vocab]


FREE = Rules()
