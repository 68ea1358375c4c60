"""CTC decoding: greedy (the best path), and prefix beam search (the best symbols over all their paths).

Axes:  B batch   T frames   V symbols
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappushpop, nlargest
from math import exp, inf, log1p
from typing import NamedTuple

from torch import Tensor, nn

from headway.data.tokenizer import Tokenizer
from headway.errors import UserError
from headway.generate.request import Interrupt, go_on
from headway.ops.attend import shape_text
from headway.ops.ctc import BLANK, collapse


class CTCHypothesis(NamedTuple):
    """Symbols, and the logarithm of their probability: of one path, or of all that a search has followed."""

    symbols: tuple[int, ...]
    score: float


def ctc_greedy(log_probs: Tensor, frames: Sequence[int] | None = None) -> list[CTCHypothesis]:
    """The symbols of each row's most probable path: B T V, of which `frames`, all unless given."""
    scores, best = log_probs.max(-1)
    return [
        CTCHypothesis(tuple(collapse(best[row, :count].tolist())), float(scores[row, :count].double().sum()))
        for row, count in enumerate(frame_counts(log_probs, frames))
    ]


@dataclass(frozen=True)
class PrefixBeam:
    """CTC prefix beam search: the `width` most probable prefixes are kept after each frame.

    Each frame may go on with its `candidates` most probable symbols (None: all).  A result has from `shortest` to
    `longest` symbols; prefixes that can no longer become long enough are dropped.  `interrupt` is called before each
    frame, and may raise.
    """

    width: int = 8
    candidates: int | None = 32
    shortest: int = 0
    longest: int | None = None
    interrupt: Interrupt = go_on

    def __post_init__(self) -> None:
        if self.width < 1 or (self.candidates is not None and self.candidates < 1):
            raise UserError(f"{self}", allowed="width and candidates of 1 or more")
        if self.shortest < 0 or (self.longest is not None and self.longest < self.shortest):
            raise UserError(f"{self}", allowed="0 ≤ shortest ≤ longest")

    def __call__(self, log_probs: Tensor, frames: Sequence[int] | None = None) -> list[list[CTCHypothesis]]:
        """For each row at most `width` answers, the best first: B T V, of which `frames`, all unless given."""
        counts = frame_counts(log_probs, frames)
        return [self.search(row[:count]) for row, count in zip(log_probs, counts, strict=True)]

    def search(self, log_probs: Tensor) -> list[CTCHypothesis]:
        """One row, T V."""
        count = log_probs.shape[1] - 1 if self.candidates is None else min(self.candidates, log_probs.shape[1] - 1)
        likely = (log_probs[:, 1:].topk(count).indices + 1).tolist()  # the blank is always among what may come
        beams = self.best({(): PrefixScore(0.0, -inf)}, left=len(log_probs))
        for t, scores in enumerate(log_probs.tolist()):
            self.interrupt()
            left = len(log_probs) - t - 1
            beams = self.best(self.grown(beams, scores, likely[t], left), left)
        found = [CTCHypothesis(symbols, ends.total) for symbols, ends in beams.items()]
        if not found:
            given = f"no {self.shortest} symbols or more were heard in {len(log_probs)} frames"
            raise UserError(given, do="ask for fewer with shortest, or follow more with width and candidates")
        return found

    def grown(self, beams: Beams, scores: Sequence[float], likely: Sequence[int], left: int) -> Beams:
        """Every prefix one frame later, and its extensions by one of the `likely` symbols, the most probable first."""
        later = {symbols: extend_by_same(beams, symbols, scores) for symbols in beams}
        best = [-inf] * self.width  # a heap of the best scores so far, the least of them first
        for total, _ in self.able(later, left):
            heappushpop(best, total)
        for symbols, ends in beams.items():
            if self.longest is not None and len(symbols) >= self.longest:
                continue
            total = ends.total
            for symbol in likely:
                if total + scores[symbol] < best[0]:
                    break  # `width` prefixes are better than this one and all that follow
                if (*symbols, symbol) not in beams:
                    score = score_before(ends, symbols, symbol) + scores[symbol]
                    later[(*symbols, symbol)] = PrefixScore(-inf, score)
                    heappushpop(best, score if len(symbols) + 1 + left >= self.shortest else -inf)
        return later

    def best(self, beams: Beams, left: int) -> Beams:
        """The most probable prefixes that can still become long enough in the remaining frames."""
        return {
            symbols: beams[symbols] for total, symbols in nlargest(self.width, self.able(beams, left)) if total > -inf
        }

    def able(self, beams: Beams, left: int) -> list[tuple[float, tuple[int, ...]]]:
        return [(ends.total, symbols) for symbols, ends in beams.items() if len(symbols) + left >= self.shortest]


class PrefixScore(NamedTuple):
    """The log-probabilities of a prefix by its paths that end in a blank, and by those that end in its last symbol."""

    blank: float
    symbol: float

    @property
    def total(self) -> float:
        return log_add_exp(self.blank, self.symbol)


Beams = dict[tuple[int, ...], PrefixScore]


def extend_by_same(beams: Beams, symbols: tuple[int, ...], scores: Sequence[float]) -> PrefixScore:
    """The same prefix one frame later: a blank, its last symbol again, or the shorter prefix extended by it."""
    ends = beams[symbols]
    blank = ends.total + scores[BLANK]
    if not symbols:
        return PrefixScore(blank, -inf)
    score, parent = ends.symbol, beams.get(symbols[:-1])
    if parent is not None:
        score = log_add_exp(score, score_before(parent, symbols[:-1], symbols[-1]))
    return PrefixScore(blank, score + scores[symbols[-1]])


def score_before(ends: PrefixScore, symbols: tuple[int, ...], symbol: int) -> float:
    """The score that a symbol extends: a repeated symbol needs a blank in between."""
    return ends.blank if symbols[-1:] == (symbol,) else ends.total


def log_add_exp(a: float, b: float) -> float:
    """log(exp a + exp b)"""
    high, low = (a, b) if a > b else (b, a)
    return high if low == -inf else high + log1p(exp(low - high))


def frame_counts(log_probs: Tensor, frames: Sequence[int] | None) -> list[int]:
    """How many frames each row has."""
    if log_probs.dim() != 3 or log_probs.shape[2] < 2:
        raise UserError(
            f"log-probabilities are {shape_text(log_probs)}", allowed="B T V, a blank and one symbol or more"
        )
    counts = [log_probs.shape[1]] * len(log_probs) if frames is None else list(frames)
    if len(counts) != len(log_probs) or not all(0 <= count <= log_probs.shape[1] for count in counts):
        given = f"frames {counts} for log-probabilities of {shape_text(log_probs)}"
        raise UserError(given, allowed=f"one number for each row, 0 to {log_probs.shape[1]}")
    return counts


def first_symbol(words: Tokenizer, head: nn.Linear) -> int:
    """The symbol of word 0: 1, behind the blank, or 0 where published vocabularies count the blank among them."""
    return 0 if words.vocab >= head.out_features else 1
