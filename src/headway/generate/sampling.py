"""Greedy decoding and sampling: logits processors (repetition penalty, temperature, top-k, top-p, min-p), a choice.

A setting is a frozen value.  A draw takes one number from the request's own generator, so a request with a seed gets
the same tokens in any batch.

Axes:  V vocabulary

Constraints on the next token, from a generation config: forced and suppressed tokens, no-repeat n-grams.

Axes:  B rows   T tokens so far   V vocabulary

Reductions over a vocabulary, which are a visible part of a step where it is large.

Axes:  B rows   V vocabulary   K tokens of each row   W tokens of a piece
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Protocol

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


WIDTH = 64  # tokens of a piece: of 32 to 256 the fastest from 4×50k to 256×32k
CELLS = 2**18  # logits that are normalised at a time: 1 MiB of float32 stays in the cache


def largest(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row, falling, and where they stand: B V → B K, B K.  The values are topk's.

    In two stages: what is among the K largest lies in a piece whose maximum is among the K largest maxima.  256 rows of
    32k: 13.6 → 5.0 ms; 4 of 50k: 0.33 → 0.10.
    """
    rows, vocab = logits.shape
    pieces = vocab // WIDTH
    if pieces <= 2 * count:
        values, ids = logits.topk(min(count, vocab))
        return values, ids
    whole = logits[:, : pieces * WIDTH].unflatten(1, (pieces, WIDTH))  # B V/W W
    best = whole.amax(2).topk(count).indices[..., None]  # B K 1
    found = whole.take_along_dim(best, 1).flatten(1)  # B (K W)
    ids = (best * WIDTH + torch.arange(WIDTH, device=logits.device)).flatten(1)
    rest = torch.arange(pieces * WIDTH, vocab, device=logits.device).expand(rows, -1)
    values, at = torch.cat([found, logits[:, pieces * WIDTH :]], 1).topk(count)
    return values, torch.cat([ids, rest], 1).gather(1, at)


def logprobs_at(logits: Tensor, ids: Tensor) -> Tensor:
    """The log-probabilities of `ids` (B K) by logits (B V), B K.  A row with NaN or +∞ gives NaN.

    By the fused log-softmax of a few rows at a time: 256 rows of 32k 15.2 → 9.7 ms against logsumexp.
    """
    some = max(1, CELLS // logits.shape[1])
    pairs = zip(logits.split(some), ids.split(some), strict=True)
    return torch.cat([part.log_softmax(-1).gather(1, at) for part, at in pairs])


class LogitsProcessor(Protocol):
    """Changes logits (V), given the tokens `seen` in the prompt and the continuation so far."""

    def __call__(self, logits: Tensor, seen: Sequence[int]) -> Tensor: ...


class Sampler(ABC):
    """A way to choose the next token."""

    seed: int = 0

    @abstractmethod
    def processors(self) -> list[LogitsProcessor]:
        """The logits processors, in order of application."""

    @abstractmethod
    def pick(self, logits: Tensor, draw: torch.Generator) -> int:
        """A token, by processed logits (V)."""

    @abstractmethod
    def probabilities(self, logits: Tensor) -> Tensor:
        """The probability of each token by processed logits: V → V, float64."""

    def process(self, logits: Tensor, seen: Sequence[int]) -> Tensor:
        for processor in self.processors():
            logits = processor(logits, seen)
        return logits


@dataclass(frozen=True)
class Greedy(Sampler):
    """The likeliest token; among equals the first."""

    repetition: float = 1.0

    def __post_init__(self) -> None:
        Repetition(self.repetition)

    def processors(self) -> list[LogitsProcessor]:
        return [Repetition(self.repetition)] if self.repetition != 1.0 else []

    def pick(self, logits: Tensor, draw: torch.Generator) -> int:
        return int(logits.argmax())

    def probabilities(self, logits: Tensor) -> Tensor:
        return torch.zeros_like(logits, dtype=torch.float64).index_fill_(0, logits.argmax(), 1.0)


@dataclass(frozen=True)
class RandomSampler(Sampler):
    """A random token by the model's distribution, processed so: repetition, temperature, top-k, top-p, min-p.

    Each of these works on what the ones before it have left.  A temperature of 0 is the limit: the likeliest token.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        self.processors()  # impossible numbers are told here, not in the first step

    def processors(self) -> list[LogitsProcessor]:
        changes: list[LogitsProcessor | None] = [
            None if self.repetition == 1.0 else Repetition(self.repetition),
            None if self.temperature == 1.0 else Temperature(self.temperature),
            None if self.top_k is None else TopK(self.top_k),
            None if self.top_p is None else TopP(self.top_p),
            None if self.min_p is None else MinP(self.min_p),
        ]
        return [change for change in changes if change is not None]

    def pick(self, logits: Tensor, draw: torch.Generator) -> int:
        return draw_index(self.probabilities(logits), draw)

    def probabilities(self, logits: Tensor) -> Tensor:
        return logits.log_softmax(-1, dtype=torch.float64).exp()


@dataclass(frozen=True)
class Repetition:
    """Tokens that were seen become less likely: a positive logit is divided by `penalty`, a negative one multiplied.

    Keskar et al. 2019; the prompt counts as seen.
    """

    penalty: float

    def __post_init__(self) -> None:
        check_positive("repetition", self.penalty)

    def __call__(self, logits: Tensor, seen: Sequence[int]) -> Tensor:
        ids = torch.tensor(sorted(set(seen)), dtype=torch.long, device=logits.device)
        old = logits[ids]
        return logits.index_copy(0, ids, torch.where(old > 0, old / self.penalty, old * self.penalty))


@dataclass(frozen=True)
class Temperature:
    """logits / value: below 1 likely tokens become likelier still; at 0 only the likeliest is left."""

    value: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.value < inf:
            raise UserError(f"temperature={self.value:g}", allowed="0 or more; 0 takes the likeliest token")

    def __call__(self, logits: Tensor, seen: Sequence[int]) -> Tensor:
        # the smallest temperatures would overflow: in float64 and from the maximum down they give −∞, which is right
        return keep_top_k(logits, 1) if self.value == 0.0 else (logits.double() - logits.max()) / self.value


@dataclass(frozen=True)
class TopK:
    """The `count` likeliest tokens; among equals the first."""

    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise UserError(f"top_k={self.count}", allowed="1 or more", do="leave it out to keep all tokens")

    def __call__(self, logits: Tensor, seen: Sequence[int]) -> Tensor:
        return keep_top_k(logits, self.count)


@dataclass(frozen=True)
class TopP:
    """The fewest likeliest tokens whose probabilities sum to `mass` or more.  Holtzman et al. 2020."""

    mass: float

    def __post_init__(self) -> None:
        check_share("top_p", self.mass)

    def __call__(self, logits: Tensor, seen: Sequence[int]) -> Tensor:
        ordered = logits.double().sort(descending=True).values
        reached = ordered.log_softmax(-1).exp().cumsum(-1)
        return keep_top_k(logits, int((reached < self.mass).sum()) + 1)


@dataclass(frozen=True)
class MinP:
    """Tokens at least `share` times as likely as the likeliest."""

    share: float

    def __post_init__(self) -> None:
        check_share("min_p", self.share)

    def __call__(self, logits: Tensor, seen: Sequence[int]) -> Tensor:
        ratio = (logits.double() - logits.max()).exp()
        return logits.masked_fill(ratio < self.share, -inf)


def keep_top_k(logits: Tensor, count: int) -> Tensor:
    """`logits` (V) with −∞ at all but the `count` largest; among equals the first are kept."""
    if count >= len(logits):
        return logits
    least = logits.topk(count).values[-1]
    above, equal = logits > least, logits == least
    return logits.masked_fill(~(above | equal & (equal.cumsum(0) <= count - above.sum())), -inf)


def draw_index(weights: Tensor, draw: torch.Generator) -> int:
    """An index, each as often as its weight (V, float64) says, by one random number."""
    upto = weights.cumsum(0)
    point = torch.rand((), dtype=torch.float64, generator=draw).to(weights.device) * upto[-1]
    last = torch.searchsorted(upto, upto[-1:])  # rounding must not lead to a token of weight 0 behind it
    return int(torch.minimum(torch.searchsorted(upto, point[None], right=True), last))


def check_positive(name: str, value: float) -> None:
    if not (value > 0.0 and isfinite(value)):
        raise UserError(f"{name}={value:g}", allowed="a number above 0; 1 changes nothing")


def check_share(name: str, value: float) -> None:
    if not 0.0 < value <= 1.0:
        raise UserError(f"{name}={value:g}", allowed="above 0, up to 1", do="leave it out to keep all tokens")


GREEDY = Greedy()
