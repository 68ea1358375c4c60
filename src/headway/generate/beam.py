"""Beam search with length penalty, for all prompts of a session at once.

Axes:  N prompts that go on   K beams of each   B = N·K rows   T new tokens   V vocabulary
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import torch
from torch import Tensor

from headway.errors import UserError
from headway.generate.option_checks import check_best
from headway.generate.request import Generated, Interrupt, Reason, Stop, StopMatcher
from headway.generate.sampling import Rules, Tokens, forbid_tokens, largest_but, logprobs_at
from headway.generate.session import DecodingSession


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
        check_best(self.width, self.best)

    def score(self, total: float, length: int) -> float:
        """The length-normalised score of a continuation of `length` tokens whose log-probabilities sum to `total`."""
        return total / ((5 + length) / 6) ** self.alpha


BEAM = Beam()


def beam_search(
    session: DecodingSession, logits: Tensor, searches: list[Search], stop: Stop, rules: Rules, interrupt: Interrupt
) -> None:
    """Searches on from the logits after the prompts, N V, until every search is done; all have the same beam."""
    width = searches[0].beam.width
    opened = OpenBeams.start(len(searches), stop, session.device)
    stops = torch.tensor(stop.tokens, device=session.device)
    count = width * (1 + len(stop.tokens) + bool(stop.strings))  # however many of them end, `width` go on
    for length in range(1, stop.max_new_tokens + 1):
        interrupt()
        beams = opened.totals.shape[1]
        grown, parents = opened.extend(logits, mask_logits(logits, opened, searches, stop, rules), count)
        matched = grown.match_stops(stop)
        ended = torch.isin(grown.tokens[..., -1], stops) | matched  # N count
        for prompt, at in ended[:, :width].nonzero().tolist():
            searches[prompt].offer(grown, (prompt, at), bool(matched[prompt, at]))
        live = ended.long().argsort(dim=1, stable=True)[:, :width]
        opened = grown._replace(totals=grown.totals.masked_fill(ended, -inf)).select(live)
        going = open_searches(searches, opened, length)
        if not going:
            return
        rows = torch.tensor(going, device=session.device)[:, None] * beams + parents.gather(1, live)[going]
        searches, opened = [searches[prompt] for prompt in going], opened.select_prompts(going)
        session.select(rows.flatten(), going)
        logits = session.step(opened.tokens[..., -1].flatten())


class Search:
    """The finished continuations of one prompt."""

    def __init__(self, prompt: list[int], beam: Beam, stop: Stop, room: int):
        self.prompt, self.beam, self.stop, self.room = prompt, beam, stop, room
        self.finished: list[Generated] = []

    def offer(self, opened: OpenBeams, at: tuple[int, int], matched: bool) -> None:
        """Adds a finished continuation, unless its probability is 0."""
        if (total := float(opened.totals[at])) > -inf:
            tokens, logprobs = tuple(opened.tokens[at].tolist()), tuple(opened.logprobs[at].tolist())
            reason = self.stop.reason(tokens, self.room, matched) or Reason.LENGTH
            self.finished.append(Generated(tokens, logprobs, reason, self.beam.score(total, len(tokens))))

    def best(self) -> list[Generated]:
        """The best finished continuations, the best first."""
        return sorted(self.finished, key=lambda one: -one.score)[: self.beam.best]

    def is_done(self, length: int, open_total: float) -> bool:
        """Whether it can end, where the best open continuation has `length` tokens that sum to `open_total`."""
        if length >= self.room or open_total == -inf or (self.beam.early and len(self.finished) >= self.beam.width):
            return True
        # a sum only falls; what divides it grows or falls with the length, so an end of the range is the best there is
        reachable = max(self.beam.score(open_total, end) for end in (length + 1, self.room))
        best = self.best()
        return len(best) == self.beam.best and best[-1].score >= reachable


class OpenBeams(NamedTuple):
    """K continuations of each prompt, the best first."""

    totals: Tensor  # N K, sums of the log-probabilities of what was not forced
    tokens: Tensor  # N K T
    logprobs: Tensor  # N K T
    matchers: list[list[StopMatcher]]  # N K, where there are stop strings

    @staticmethod
    def start(prompts: int, stop: Stop, device: torch.device) -> OpenBeams:
        """One of no tokens for each prompt."""
        empty = torch.zeros(prompts, 1, 0, dtype=torch.float64, device=device)
        matchers = [[StopMatcher(stop)] for _ in range(prompts)] if stop.strings else []
        return OpenBeams(empty.sum(-1), empty.long(), empty, matchers)

    def extend(self, logits: Tensor, allowed: Allowed, count: int) -> tuple[OpenBeams, Tensor]:
        """Of all ways to go on by one token the `count` best, and which beam each comes from: (N K) V → N count."""
        beams, (masked, forbidden, forced) = self.totals.shape[1], allowed
        # the best of all beams are among the best of each, so only these are normalised and added up
        found, ids = largest_but(masked, forbidden, count)
        logprobs = logprobs_at(logits, ids).double().masked_fill(found.isneginf(), -inf)
        logprobs = logprobs.unflatten(0, (-1, beams))  # N K count
        paid = torch.where(forced[:, None, None] & logprobs.isfinite(), 0.0, logprobs)
        totals = (self.totals[..., None] + paid).flatten(1)
        totals, at = totals.topk(min(count, totals.shape[1]))
        before = self.select(parents := at // found.shape[1])
        ids = ids.unflatten(0, (-1, beams)).flatten(1).gather(1, at)[..., None]
        logprobs = logprobs.flatten(1).gather(1, at)[..., None]
        tokens, logprobs = torch.cat([before.tokens, ids], 2), torch.cat([before.logprobs, logprobs], 2)
        return OpenBeams(totals, tokens, logprobs, before.matchers), parents

    def match_stops(self, stop: Stop) -> Tensor:
        """Which of them end with their newest token because of a stop string, N K."""
        if not stop.strings:
            return torch.zeros_like(self.totals, dtype=torch.bool)
        newest = self.tokens[..., -1].tolist()
        found = [[w.push(t) for w, t in zip(*pair, strict=True)] for pair in zip(self.matchers, newest, strict=True)]
        return torch.tensor(found, device=self.totals.device) & (self.tokens.shape[2] >= stop.min_new_tokens)

    def select(self, beams: Tensor) -> OpenBeams:
        """These beams (N K) of each prompt."""
        wide = beams[..., None]
        tokens, logprobs = (x.take_along_dim(wide, 1) for x in (self.tokens, self.logprobs))
        chosen = beams.tolist() if self.matchers else []
        matchers = [[row[beam].fork() for beam in some] for row, some in zip(self.matchers, chosen, strict=True)]
        return OpenBeams(self.totals.gather(1, beams), tokens, logprobs, matchers)

    def select_prompts(self, prompts: list[int]) -> OpenBeams:
        rows = torch.tensor(prompts, device=self.totals.device)
        totals, tokens, logprobs = (x[rows] for x in (self.totals, self.tokens, self.logprobs))
        matchers = [self.matchers[prompt] for prompt in prompts] if self.matchers else []
        return OpenBeams(totals, tokens, logprobs, matchers)


class Allowed(NamedTuple):
    """Logits with −∞ at what may not come, but for the `forbidden` tokens, which may not either."""

    masked: Tensor  # (N K) V
    forbidden: Tokens
    forced: Tensor  # N, bool  rows that pay nothing for their token


def mask_logits(logits: Tensor, opened: OpenBeams, searches: list[Search], stop: Stop, rules: Rules) -> Allowed:
    """Which tokens may come next, by logits (N K) V."""
    beams, length = opened.tokens.shape[1:]
    forced = torch.tensor([bool(rules.forced(length, search.room)) for search in searches], device=logits.device)
    if not rules.reads_tokens and not forced.any():
        return Allowed(logits, stop.forbidden(length) + rules.forbidden(length), forced)
    longest = max(len(search.prompt) for search in searches)
    prompts = [[-1] * (longest - len(search.prompt)) + search.prompt for search in searches for _ in range(beams)]
    ids = torch.cat([torch.tensor(prompts, device=logits.device), opened.tokens.flatten(0, 1)], 1)
    rooms = [search.room for search in searches for _ in range(beams)]
    return Allowed(rules.masked(forbid_tokens(logits, stop.forbidden(length)), length, rooms, ids), (), forced)


def open_searches(searches: list[Search], opened: OpenBeams, length: int) -> list[int]:
    """Which searches go on; what is open where there is no more room counts as it is."""
    for prompt, search in enumerate(searches):
        if length == search.room:
            for beam in range(opened.totals.shape[1]):
                search.offer(opened, (prompt, beam), matched=False)
    best = opened.totals.amax(1).tolist()
    return [prompt for prompt, search in enumerate(searches) if not search.is_done(length, best[prompt])]
