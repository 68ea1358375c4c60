"""Greedy decoding and sampling: logits processors (repetition penalty, temperature, top-k, top-p, min-p), a choice.

A sampler is a frozen value.  A draw takes one number from the request's own generator, so a request with a seed gets
the same tokens in any batch.  `Rules` force and forbid tokens, whatever the sampler.  `largest` and `logprobs_at` are
reductions over a vocabulary, which take a visible part of a step where it is large.

Axes:  B rows   T tokens so far   V vocabulary   K tokens of each row   W tokens of a piece
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from headway.errors import UserError
from headway.generate.option_checks import check_repetition, check_sampling

Tokens = tuple[int, ...]
WIDTH = 64  # tokens of a piece: of 32 to 256 the fastest from 4×50k to 256×32k
NUCLEUS = 256  # tokens among which those of top-p are looked for first
CELLS = 2**18  # logits that are normalised at a time: 1 MiB of float32 stays in the cache


class Sampler(ABC):
    """A way to choose the next token."""

    seed: int = 0

    @abstractmethod
    def process(self, logits: Tensor, seen: Sequence[int]) -> Tensor:
        """Processed logits (V), given the tokens `seen` in the prompt and the continuation so far."""

    @abstractmethod
    def probabilities(self, logits: Tensor) -> Tensor:
        """The probability of each token by processed logits: V → V, float64."""

    def pick(self, logits: Tensor, generator: torch.Generator) -> int:
        """A token, by processed logits (V)."""
        return draw_index(self.probabilities(logits), generator)


@dataclass(frozen=True)
class Greedy(Sampler):
    """The likeliest token; among equals the first."""

    repetition: float = 1.0

    def __post_init__(self) -> None:
        check_repetition(self.repetition)

    def process(self, logits: Tensor, seen: Sequence[int]) -> Tensor:
        return penalise_repetition(logits, seen, self.repetition)

    def probabilities(self, logits: Tensor) -> Tensor:
        return torch.zeros_like(logits, dtype=torch.float64).index_fill_(0, logits.argmax(), 1.0)

    def pick(self, logits: Tensor, generator: torch.Generator) -> int:
        return int(logits.argmax())


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
        check_sampling(self.temperature, self.top_k, self.top_p, self.min_p, self.repetition)

    def process(self, logits: Tensor, seen: Sequence[int]) -> Tensor:
        logits = apply_temperature(penalise_repetition(logits, seen, self.repetition), self.temperature)
        logits = logits if self.top_k is None else keep_top_k(logits, self.top_k)
        logits = logits if self.top_p is None else keep_top_p(logits, self.top_p)
        return logits if self.min_p is None else keep_min_p(logits, self.min_p)

    def probabilities(self, logits: Tensor) -> Tensor:
        return logits.log_softmax(-1, dtype=torch.float64).exp()


def penalise_repetition(logits: Tensor, seen: Sequence[int], penalty: float) -> Tensor:
    """Tokens that were seen become less likely: a positive logit is divided by `penalty`, a negative one multiplied.

    Keskar et al. 2019; the prompt counts as seen.
    """
    if penalty == 1.0:
        return logits
    ids = torch.tensor(sorted(set(seen)), dtype=torch.long, device=logits.device)
    old = logits[ids]
    return logits.index_copy(0, ids, torch.where(old > 0, old / penalty, old * penalty))


def apply_temperature(logits: Tensor, temperature: float) -> Tensor:
    """logits / temperature: below 1 likely tokens become likelier still; at 0 only the likeliest is left."""
    if temperature == 1.0:
        return logits
    # the smallest temperatures would overflow: in float64 and from the maximum down they give −∞, which is right
    return keep_top_k(logits, 1) if temperature == 0.0 else (logits.double() - logits.max()) / temperature


def keep_top_k(logits: Tensor, count: int) -> Tensor:
    """`logits` (V) with −∞ at all but the `count` largest; among equals the first are kept."""
    if count >= len(logits):
        return logits
    least = largest(logits[None], count)[0][0, -1]
    above, equal = logits > least, logits == least
    return logits.masked_fill(~(above | equal & (equal.cumsum(0) <= count - above.sum())), -inf)


def keep_top_p(logits: Tensor, mass: float) -> Tensor:
    """The fewest likeliest tokens whose probabilities sum to `mass` or more.  Holtzman et al. 2020.

    They are mostly among the first few, so that a vocabulary need not be sorted: 145 of 50k 3.6 → 0.45 ms.
    """
    logprobs = logits.log_softmax(-1, dtype=torch.float64)
    reached = largest(logprobs[None], NUCLEUS)[0][0].exp().cumsum(-1)
    if reached[-1] < mass:
        reached = logprobs.sort(descending=True).values.exp().cumsum(-1)
    return keep_top_k(logits, int((reached < mass).sum()) + 1)


def keep_min_p(logits: Tensor, share: float) -> Tensor:
    """Tokens at least `share` times as likely as the likeliest."""
    ratio = (logits.double() - logits.max()).exp()
    return logits.masked_fill(ratio < share, -inf)


def draw_index(weights: Tensor, generator: torch.Generator) -> int:
    """An index, each as often as its weight (V, float64) says, by one random number."""
    upto = weights.cumsum(0)
    point = torch.rand((), dtype=torch.float64, generator=generator).to(weights.device) * upto[-1]
    last = torch.searchsorted(upto, upto[-1:])  # rounding must not lead to a token of weight 0 behind it
    return int(torch.minimum(torch.searchsorted(upto, point[None], right=True), last))


GREEDY = Greedy()


@dataclass(frozen=True)
class Rules:
    """Which tokens are forced or forbidden at each position of a continuation.

    A continuation begins with one of `first` and, where it is as long as it may be, ends with one of `last`; above all
    other rules, it begins with the tokens of `prefix`.  A token that is forced does not change a beam's score.  Tokens
    in `never` are suppressed everywhere, those in `not_first` at the beginning; no n-gram of `no_repeat` tokens occurs
    twice, the prompt included.
    """

    first: Tokens = ()
    last: Tokens = ()
    never: Tokens = ()
    not_first: Tokens = ()
    no_repeat: int = 0
    prefix: Tokens = ()

    def __post_init__(self) -> None:
        if self.no_repeat < 0:
            raise UserError(f"Rules(no_repeat={self.no_repeat})", allowed="the length of a run; 0 allows repetition")

    @property
    def reads_tokens(self) -> bool:
        """Whether what may come depends on the tokens before it, and not on their number alone."""
        return self.no_repeat > 0

    def forced(self, length: int, room: int) -> Tokens:
        """The only tokens that may follow `length` new ones, where there is room for `room`; none: all may."""
        if length < len(self.prefix):
            return (self.prefix[length],)
        if self.last and length == room - 1:
            return self.last
        return self.first if length == 0 else ()

    def forbidden(self, length: int) -> Tokens:
        """The tokens that may not follow `length` new ones, whatever they are."""
        return self.never + (self.not_first if length == 0 else ())

    def masked(self, logits: Tensor, length: int, rooms: Sequence[int], ids: Tensor) -> Tensor:
        """Logits (B V) with −∞ at forbidden tokens.

        `ids` (B T) are the prompt and `length` new tokens of each row, −1 in front where a row is shorter; `rooms` are
        how many new tokens each may have.
        """
        logits = forbid_tokens(logits, self.forbidden(length))
        if self.no_repeat and ids.shape[1] >= self.no_repeat:
            logits = logits.masked_fill(repeated_ngrams(ids, self.no_repeat, logits.shape[1]), -inf)
        forced = [self.forced(length, room) for room in rooms]
        if any(forced):
            logits = torch.stack([force_tokens(row, tokens) for row, tokens in zip(logits, forced, strict=True)])
        return logits


FREE = Rules()


def forbid_tokens(logits: Tensor, tokens: Tokens) -> Tensor:
    """`logits` (… V) with −∞ at `tokens`."""
    return logits.index_fill(-1, torch.tensor(tokens, device=logits.device), -inf) if tokens else logits


def force_tokens(logits: Tensor, tokens: Tokens) -> Tensor:
    """`logits` (V) with 0 at `tokens` and −∞ at all others; unchanged where no token is forced."""
    allowed = torch.tensor(tokens, device=logits.device)
    return torch.full_like(logits, -inf).index_fill(0, allowed, 0.0) if tokens else logits


def repeated_ngrams(ids: Tensor, size: int, vocab: int) -> Tensor:
    """Which tokens would complete an n-gram of `size` tokens that ids (B T) has already, B V."""
    ngrams = ids.unfold(1, size, 1)  # B (T − size + 1) size
    begun = ids[:, ids.shape[1] - size + 1 :]  # B (size − 1): the n-gram that the next token would end
    same = (ngrams[:, :, :-1] == begun[:, None]).all(-1) & (ngrams[:, :, -1] >= 0)
    repeated = torch.zeros(len(ids), vocab + 1, dtype=torch.bool, device=ids.device)
    return repeated.scatter_(1, torch.where(same, ngrams[:, :, -1], vocab), True)[:, :vocab]


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


def largest_but(logits: Tensor, forbidden: Tokens, count: int) -> tuple[Tensor, Tensor]:
    """The same of logits with −∞ at `forbidden` tokens.

    A few of them are left out of what was found, so that no logits are copied: 64 rows of 32k 1.3 → 0.9 ms.
    """
    if not forbidden or len(forbidden) > WIDTH:
        return largest(forbid_tokens(logits, forbidden), count)
    found, ids = largest(logits, count + len(forbidden))
    found = found.masked_fill(torch.isin(ids, torch.tensor(forbidden, device=ids.device)), -inf)
    found, at = found.topk(min(count, logits.shape[1]))
    return found, ids.gather(1, at)


def logprobs_at(logits: Tensor, ids: Tensor) -> Tensor:
    """The log-probabilities of `ids` (B K) by logits (B V), B K.  A row with NaN or +∞ gives NaN.

    By the fused log-softmax of a few rows at a time: 256 rows of 32k 15.2 → 9.7 ms against logsumexp.
    """
    rows = max(1, CELLS // logits.shape[1])
    pairs = zip(logits.split(rows), ids.split(rows), strict=True)
    return torch.cat([part.log_softmax(-1).gather(1, at) for part, at in pairs])
