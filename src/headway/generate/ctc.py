"""What a CTC head has heard: the best path, or the best symbols by all of their paths.

Axes:  B batch   T frames   V symbols
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappushpop, nlargest
from math import exp, inf, log1p
from typing import NamedTuple

from torch import Tensor

from headway.errors import UserError
from headway.ops.attend import shown
from headway.ops.ctc import BLANK, collapsed


class Heard(NamedTuple):
    """Symbols, and the logarithm of their probability: of one path, or of all that a search has followed."""

    symbols: tuple[int, ...]
    score: float


def greedy(log_probs: Tensor, frames: Sequence[int] | None = None) -> list[Heard]:
    """The symbols of each row's most probable path: B T V, of which `frames`, all unless given."""
    scores, best = log_probs.max(-1)
    return [
        Heard(tuple(collapsed(best[row, :count].tolist())), float(scores[row, :count].double().sum()))
        for row, count in enumerate(counted(log_probs, frames))
    ]


@dataclass(frozen=True)
class PrefixBeam:
    """A search for symbols by all of their paths, with the `width` best beginnings kept after each frame.

    Each frame may go on with its `candidates` most probable symbols (None: all).  What is found has from `shortest` to
    `longest` symbols; beginnings that can no longer have enough are left.
    """

    width: int = 8
    candidates: int | None = 32
    shortest: int = 0
    longest: int | None = None

    def __post_init__(self) -> None:
        if self.width < 1 or (self.candidates is not None and self.candidates < 1):
            raise UserError(f"{self}", allowed="width and candidates of 1 or more")
        if self.shortest < 0 or (self.longest is not None and self.longest < self.shortest):
            raise UserError(f"{self}", allowed="0 ≤ shortest ≤ longest")

    def __call__(self, log_probs: Tensor, frames: Sequence[int] | None = None) -> list[list[Heard]]:
        """For each row at most `width` answers, the best first: B T V, of which `frames`, all unless given."""
        counts = counted(log_probs, frames)
        return [self.search(row[:count]) for row, count in zip(log_probs, counts, strict=True)]

    def search(self, log_probs: Tensor) -> list[Heard]:
        """One row, T V."""
        count = log_probs.shape[1] - 1 if self.candidates is None else min(self.candidates, log_probs.shape[1] - 1)
        likely = (log_probs[:, 1:].topk(count).indices + 1).tolist()  # the blank is always among what may come
        beams = self.best({(): Ends(0.0, -inf)}, left=len(log_probs))
        for t, scores in enumerate(log_probs.tolist()):
            left = len(log_probs) - t - 1
            beams = self.best(self.grown(beams, scores, likely[t], left), left)
        found = [Heard(symbols, ends.total) for symbols, ends in beams.items()]
        if not found:
            said = f"no {self.shortest} symbols or more were heard in {len(log_probs)} frames"
            raise UserError(said, do="ask for fewer with shortest, or follow more with width and candidates")
        return found

    def grown(self, beams: Beams, scores: Sequence[float], likely: Sequence[int], left: int) -> Beams:
        """Every beginning one frame later, and those that grow out of it by one of the `likely` symbols, best first."""
        later = {symbols: stayed(beams, symbols, scores) for symbols in beams}
        kept = [-inf] * self.width  # a heap of the best so far, the least of them first
        for total, _ in self.able(later, left):
            heappushpop(kept, total)
        for symbols, ends in beams.items():
            if self.longest is not None and len(symbols) >= self.longest:
                continue
            total = ends.total
            for symbol in likely:
                if total + scores[symbol] < kept[0]:
                    break  # as many as are kept are better than this one and all that follow
                if (*symbols, symbol) not in beams:
                    said = before(ends, symbols, symbol) + scores[symbol]
                    later[(*symbols, symbol)] = Ends(-inf, said)
                    heappushpop(kept, said if len(symbols) + 1 + left >= self.shortest else -inf)
        return later

    def best(self, beams: Beams, left: int) -> Beams:
        """The most probable beginnings that can still become long enough in the frames that are left."""
        return {
            symbols: beams[symbols] for total, symbols in nlargest(self.width, self.able(beams, left)) if total > -inf
        }

    def able(self, beams: Beams, left: int) -> list[tuple[float, tuple[int, ...]]]:
        return [(ends.total, symbols) for symbols, ends in beams.items() if len(symbols) + left >= self.shortest]


class Ends(NamedTuple):
    """The probabilities, as logarithms, of a beginning whose paths end in a blank, or in its last symbol."""

    blank: float
    symbol: float

    @property
    def total(self) -> float:
        return summed(self.blank, self.symbol)


Beams = dict[tuple[int, ...], Ends]


def stayed(beams: Beams, symbols: tuple[int, ...], scores: Sequence[float]) -> Ends:
    """The same symbols one frame later: a blank, their last one again, or out of the beginning that lacks it."""
    ends = beams[symbols]
    blank = ends.total + scores[BLANK]
    if not symbols:
        return Ends(blank, -inf)
    said, parent = ends.symbol, beams.get(symbols[:-1])
    if parent is not None:
        said = summed(said, before(parent, symbols[:-1], symbols[-1]))
    return Ends(blank, said + scores[symbols[-1]])


def before(ends: Ends, symbols: tuple[int, ...], symbol: int) -> float:
    """What may go on with a symbol: said twice, it is two only where a blank stood between."""
    return ends.blank if symbols[-1:] == (symbol,) else ends.total


def summed(a: float, b: float) -> float:
    """log(exp a + exp b)"""
    high, low = (a, b) if a > b else (b, a)
    return high if low == -inf else high + log1p(exp(low - high))


def counted(log_probs: Tensor, frames: Sequence[int] | None) -> list[int]:
    """How many frames each row has."""
    if log_probs.dim() != 3 or log_probs.shape[2] < 2:
        raise UserError(f"log-probabilities are {shown(log_probs)}", allowed="B T V, a blank and one symbol or more")
    counts = [log_probs.shape[1]] * len(log_probs) if frames is None else list(frames)
    if len(counts) != len(log_probs) or not all(0 <= count <= log_probs.shape[1] for count in counts):
        said = f"frames {counts} for log-probabilities of {shown(log_probs)}"
        raise UserError(said, allowed=f"one number for each row, 0 to {log_probs.shape[1]}")
    return counts
