"""Beam search with length penalty.

Axes:  N prompts that go on   K beams of each   B = N·K rows   T new tokens   V vocabulary

The unfinished hypotheses of a beam search, for all prompts.

Axes:  N prompts that go on   K beams of each   T new tokens   V vocabulary
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import torch
from torch import Tensor

from headway.errors import UserError
from headway.generate.request import STOP, Generated, Reason, Stop, StopMatcher
from headway.generate.sampling import FREE, Rules, largest, logprobs_at
from headway.generate.session import DecodingSession, Prompts, checked_prompts, context_of, room_for, smallest
from headway.nn.context import EMPTY, Context
from headway.nn.trunk import Trunk


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

    def extend(self, logits: Tensor, masked: Tensor, forced: Tensor, count: int) -> tuple[OpenBeams, Tensor]:
        """Of all ways to go on by one token the `count` best, and which beam each comes from: (N K) V → N count.

        `masked` are logits with −∞ at what may not come; rows that are `forced` (N) pay nothing for their token.
        """
        beams = self.totals.shape[1]
        # the best of all beams are among the best of each, so only these are normalised and added up
        found, ids = largest(masked, count)
        told = logprobs_at(logits, ids).double()
        logprobs = told.masked_fill(found.isneginf(), -inf).unflatten(0, (-1, beams))  # N K count
        paid = torch.where(forced[:, None, None] & logprobs.isfinite(), 0.0, logprobs)
        totals = (self.totals[..., None] + paid).flatten(1)
        totals, at = totals.topk(min(count, totals.shape[1]))
        before = self.select(parents := at // found.shape[1])
        ids = ids.unflatten(0, (-1, beams)).flatten(1).gather(1, at)[..., None]
        logprobs = logprobs.flatten(1).gather(1, at)[..., None]
        grown = OpenBeams(
            totals, torch.cat([before.tokens, ids], 2), torch.cat([before.logprobs, logprobs], 2), before.matchers
        )
        return grown, parents

    def stopped(self, least: int) -> Tensor:
        """Which of them end with their newest token because of what their text holds, N K."""
        newest = self.tokens[..., -1].tolist()
        found = [[w.push(t) for w, t in zip(*pair, strict=True)] for pair in zip(self.matchers, newest, strict=True)]
        return torch.tensor(found, device=self.totals.device) & (self.tokens.shape[2] >= least)

    def select(self, beams: Tensor) -> OpenBeams:
        """These beams (N K) of each prompt."""
        wide = beams[..., None]
        tokens, logprobs = (x.take_along_dim(wide, 1) for x in (self.tokens, self.logprobs))
        matchers = [
            [row[beam].fork() for beam in chosen]
            for row, chosen in (zip(self.matchers, beams.tolist(), strict=True) if self.matchers else ())
        ]
        return OpenBeams(self.totals.gather(1, beams), tokens, logprobs, matchers)

    def of(self, prompts: list[int]) -> OpenBeams:
        rows = torch.tensor(prompts, device=self.totals.device)
        totals, tokens, logprobs = (x[rows] for x in (self.totals, self.tokens, self.logprobs))
        return OpenBeams(
            totals, tokens, logprobs, [self.matchers[prompt] for prompt in prompts] if self.matchers else []
        )


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
        """The length-normalised score of a continuation of `length` tokens whose log-probabilities sum to `total`."""
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
    rules: Rules = FREE,
) -> list[list[Generated]]:
    """The `how.best` continuations of each prompt, the best first; fewer where there are no more.

    The other arguments are those of `stream`.
    """
    context = smallest(context, context_of(model))
    rows = checked_prompts(model, prompts, bos, context)
    if not rows:
        return []
    searches = [Search(row, how, stop, room_for(len(row), stop.most, context)) for row in rows]
    session = DecodingSession(model, rows, max(search.room for search in searches) - 1, memory=memory)
    explore(session, searches, how, stop, rules, session.prompt(chunk))
    return [search.found() for search in searches]


class Search:
    """The finished continuations of one prompt."""

    def __init__(self, prompt: list[int], how: Beam, stop: Stop, room: int):
        self.prompt, self.how, self.stop, self.room = prompt, how, stop, room
        self.finished: list[Generated] = []

    def offer(self, opened: OpenBeams, at: tuple[int, int], heard: bool) -> None:
        """Adds a finished continuation, unless its probability is 0."""
        if (total := float(opened.totals[at])) > -inf:
            tokens, logprobs = tuple(opened.tokens[at].tolist()), tuple(opened.logprobs[at].tolist())
            reason = self.stop.reason(tokens, self.room, heard) or Reason.LENGTH
            self.finished.append(Generated(tokens, logprobs, reason, self.how.score(total, len(tokens))))

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


def explore(
    session: DecodingSession, searches: list[Search], how: Beam, stop: Stop, rules: Rules, logits: Tensor
) -> None:
    """Searches on from the logits after the prompts, N V, until every search is done."""
    opened, stops = (
        OpenBeams.start(len(searches), stop, session.device),
        torch.tensor(stop.tokens, device=session.device),
    )
    count = how.width * (1 + len(stop.tokens) + bool(stop.strings))  # however many of them end, `width` go on
    for length in range(1, stop.most + 1):
        beams = opened.totals.shape[1]
        masked, forced = mask_logits(logits, opened, searches, stop, rules)
        grown, parents = opened.extend(logits, masked, forced, count)
        heard = grown.stopped(stop.least) if stop.strings else torch.zeros_like(grown.totals, dtype=torch.bool)
        ended = torch.isin(grown.tokens[..., -1], stops) | heard  # N count
        for at in ended[:, : how.width].nonzero().tolist():
            searches[at[0]].offer(grown, (at[0], at[1]), bool(heard[tuple(at)]))
        live = ended.long().argsort(dim=1, stable=True)[:, : how.width]
        opened = grown._replace(totals=grown.totals.masked_fill(ended, -inf)).select(live)
        going = open_searches(searches, opened, length)
        if not going:
            return
        rows = torch.tensor(going, device=session.device)[:, None] * beams + parents.gather(1, live)[going]
        searches, opened = [searches[prompt] for prompt in going], opened.of(going)
        session.select(rows.flatten(), going)
        logits = session.step(opened.tokens[..., -1].flatten())


def mask_logits(
    logits: Tensor, opened: OpenBeams, searches: list[Search], stop: Stop, rules: Rules
) -> tuple[Tensor, Tensor]:
    """The logits ((N K) V) with −∞ at tokens that are not allowed, and which prompts have a forced token (N)."""
    beams, length = opened.tokens.shape[1:]
    masked = logits
    if barred := stop.forbidden(length):
        masked = masked.index_fill(1, torch.tensor(barred, device=logits.device), -inf)
    forced = torch.tensor([bool(rules.forced(length, search.room)) for search in searches], device=logits.device)
    if rules is FREE:
        return masked, forced
    longest = max(len(search.prompt) for search in searches)
    prompts = [[-1] * (longest - len(search.prompt)) + search.prompt for search in searches for _ in range(beams)]
    ids = torch.cat([torch.tensor(prompts, device=logits.device), opened.tokens.flatten(0, 1)], 1)
    rooms = [search.room for search in searches for _ in range(beams)]
    return rules.masked(masked, length, rooms, ids), forced


def open_searches(searches: list[Search], opened: OpenBeams, length: int) -> list[int]:
    """Which searches go on; what is open where there is no more room counts as it is."""
    for prompt, search in enumerate(searches):
        if length == search.room:
            for beam in range(opened.totals.shape[1]):
                search.offer(opened, (prompt, beam), heard=False)
    best = opened.totals.amax(1).tolist()
    return [prompt for prompt, search in enumerate(searches) if not search.is_done(length, best[prompt])]
