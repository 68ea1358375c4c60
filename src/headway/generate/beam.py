"""Beam search: the best of many continuations, kept `width` at a time.

Axes:  N prompts that go on   K beams of each   B = N·K rows   T new tokens   V vocabulary
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import torch
from torch import Tensor

from headway.errors import UserError
from headway.generate.feed import Feed, Prompts, checked_prompts, context_of, least, room_for
from headway.generate.request import Generated
from headway.generate.stopping import STOP, Reason, Stop
from headway.nn.context import EMPTY, Context
from headway.nn.model import Trunk


@dataclass(frozen=True)
class Beam:
    """`width` continuations of each prompt side by side, and the `best` of those that finish.

    A continuation's score is the sum of its log-probabilities divided by ((5 + length) / 6)^alpha, as in GNMT
    (Wu et al. 2016); the stop token counts in both.  `early`: a search ends when `width` continuations have finished;
    otherwise only when no open one can still come among the best.  One beam that stops early is greedy decoding.
    """

    width: int = 4
    alpha: float = 0.6
    best: int = 1
    early: bool = True

    def __post_init__(self) -> None:
        if self.width < 1:
            raise UserError(f"Beam(width={self.width})", allowed="1 beam or more")
        if not 1 <= self.best <= self.width:
            said = f"Beam(width={self.width}, best={self.best})"
            raise UserError(said, allowed=f"the best 1 to {self.width}", do="widen the beam to see more")

    def score(self, total: float, length: int) -> float:
        """What a continuation of `length` tokens is worth whose log-probabilities sum to `total`."""
        return total / ((5 + length) / 6) ** self.alpha


BEAM = Beam()


def beam_search(
    model: Trunk,
    prompts: Prompts,
    how: Beam = BEAM,
    stop: Stop = STOP,
    *,
    memory: Context = EMPTY,
    bos: int | None = None,
    chunk: int | None = None,
    context: int | None = None,
) -> list[list[Generated]]:
    """The `how.best` continuations of each prompt, the best first; fewer where there are no more.

    The other arguments are those of `stream`.
    """
    if stop.strings:
        raise UserError(
            "a beam search with stop strings", allowed="stop tokens", do="use Greedy or Sample with strings"
        )
    context = least(context, context_of(model))
    rows = checked_prompts(model, prompts, bos, context)
    if not rows:
        return []
    searches = [Search(how, stop, room_for(len(row), stop.most, context)) for row in rows]
    feed = Feed(model, rows, max(search.room for search in searches) - 1, memory=memory)
    explore(feed, searches, how, stop, feed.prompt(chunk))
    return [search.found() for search in searches]


class Search:
    """What one prompt has found."""

    def __init__(self, how: Beam, stop: Stop, room: int):
        self.how, self.stop, self.room = how, stop, room
        self.finished: list[Generated] = []

    def offer(self, tokens: list[int], logprobs: list[float], total: float) -> None:
        """A continuation that ends here; one that could never be chosen is none."""
        if total > -inf:
            reason = self.stop.reason(tokens, self.room) or Reason.LENGTH
            score = self.how.score(total, len(tokens))
            self.finished.append(Generated(tuple(tokens), tuple(logprobs), reason, score))

    def found(self) -> list[Generated]:
        return sorted(self.finished, key=lambda one: -one.score)[: self.how.best]

    def is_done(self, length: int, open_total: float) -> bool:
        """Whether it can end, where the best open continuation has `length` tokens that sum to `open_total`."""
        if length >= self.room or open_total == -inf or (self.how.early and len(self.finished) >= self.how.width):
            return True
        # a sum only falls; what divides it grows or falls with the length, so an end of the range is the best there is
        reachable = max(self.how.score(open_total, end) for end in (length + 1, self.room))
        best = self.found()
        return len(best) == self.how.best and best[-1].score >= reachable


class Open(NamedTuple):
    """The open continuations of all prompts that go on, K for each, the best first."""

    totals: Tensor  # N K, sums of the log-probabilities
    tokens: Tensor  # N K T
    logprobs: Tensor  # N K T

    @staticmethod
    def start(prompts: int, device: torch.device) -> Open:
        """One of no tokens for each prompt."""
        empty = torch.zeros(prompts, 1, 0, dtype=torch.float64, device=device)
        return Open(empty.sum(-1), empty.long(), empty)

    def grown(self, logits: Tensor, count: int, forbidden: tuple[int, ...]) -> tuple[Open, Tensor]:
        """Of all ways to go on by one token the `count` best, and which beam each comes from: (N K) V → N count."""
        beams, normal = self.totals.shape[1], logits.logsumexp(-1, keepdim=True)
        if forbidden:
            logits = logits.index_fill(1, torch.tensor(forbidden, device=logits.device), -inf)
        # the best of all beams are among the best of each, so only these are normalised and added up
        found, ids = logits.topk(min(count, logits.shape[1]))
        logprobs = (found - normal).double().unflatten(0, (-1, beams))  # N K count
        totals, at = (self.totals[..., None] + logprobs).flatten(1).topk(min(count, beams * found.shape[1]))
        before = self.taken(parents := at // found.shape[1])
        ids = ids.unflatten(0, (-1, beams)).flatten(1).gather(1, at)[..., None]
        logprobs = logprobs.flatten(1).gather(1, at)[..., None]
        return Open(totals, torch.cat([before.tokens, ids], 2), torch.cat([before.logprobs, logprobs], 2)), parents

    def taken(self, beams: Tensor) -> Open:
        """These beams (N K) of each prompt."""
        wide = beams[..., None]
        tokens, logprobs = (x.take_along_dim(wide, 1) for x in (self.tokens, self.logprobs))
        return Open(self.totals.gather(1, beams), tokens, logprobs)

    def of(self, prompts: Tensor) -> Open:
        return Open(*(x[prompts] for x in self))

    def offer(self, search: Search, prompt: int, beam: int) -> None:
        at = prompt, beam
        search.offer(self.tokens[at].tolist(), self.logprobs[at].tolist(), float(self.totals[at]))


def explore(feed: Feed, searches: list[Search], how: Beam, stop: Stop, logits: Tensor) -> None:
    """Searches on from the logits after the prompts, N V, until every search is done."""
    opened, stops = Open.start(len(searches), feed.device), torch.tensor(stop.tokens, device=feed.device)
    count = how.width * (1 + len(stop.tokens))  # however many of them end, `width` go on
    for length in range(1, stop.most + 1):
        beams = opened.totals.shape[1]
        grown, parents = opened.grown(logits, count, stop.forbidden(length - 1))
        ended = torch.isin(grown.tokens[..., -1], stops)  # N count
        for prompt, beam in ended[:, : how.width].nonzero().tolist():
            grown.offer(searches[prompt], prompt, beam)
        live = ended.long().argsort(dim=1, stable=True)[:, : how.width]
        opened = grown._replace(totals=grown.totals.masked_fill(ended, -inf)).taken(live)
        going = still_going(searches, opened, length)
        if not going:
            return
        rest = torch.tensor(going, device=feed.device)
        rows = rest[:, None] * beams + parents.gather(1, live)[rest]
        searches, opened = [searches[prompt] for prompt in going], opened.of(rest)
        feed.select(rows.flatten())
        logits = feed.step(opened.tokens[..., -1].flatten())


def still_going(searches: list[Search], opened: Open, length: int) -> list[int]:
    """Which searches go on; what is open where there is no more room counts as it is."""
    for prompt, search in enumerate(searches):
        if length == search.room:
            for beam in range(opened.totals.shape[1]):
                opened.offer(search, prompt, beam)
    best = opened.totals.amax(1).tolist()
    return [prompt for prompt, search in enumerate(searches) if not search.is_done(length, best[prompt])]
