"""The unfinished hypotheses of a beam search, for all prompts.

Axes:  N prompts that go on   K beams of each   T new tokens   V vocabulary
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import torch
from torch import Tensor

from headway.generate.stopping import Stop, StopMatcher
from headway.generate.vocab_reductions import largest, logprobs_at


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
