"""Connectionist temporal classification (CTC): loss, forced alignment and collapsing of paths.

A path names one symbol for each frame, the blank (symbol 0) among them.  Collapsed, its runs become one symbol each and
its blanks none; the probability of a row of symbols is that of all paths that collapse to it.

Axes:  B batch   T frames   V symbols   U targets   S states of an alignment, 2·U + 1
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.errors import UserError

BLANK = 0


class AlignedSpan(NamedTuple):
    """A symbol and the frames that say it, from `begin` up to, but not, `end`."""

    symbol: int
    begin: int
    end: int


def ctc_loss(log_probs: Tensor, frames: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
    """−log of each row's probability: B T V, of which `frames` (B), and B U, of which `lengths` (B) → B.

    Infinite where the targets have no path in so few frames: ask `frames_needed` first.
    """
    return F.ctc_loss(log_probs.transpose(0, 1), targets, frames, lengths, blank=BLANK, reduction="none")


def frames_needed(symbols: Sequence[int]) -> int:
    """The shortest path that collapses to these symbols: between two that are equal stands a blank."""
    return len(symbols) + sum(a == b for a, b in pairwise(symbols))


def collapse(path: Sequence[int]) -> list[int]:
    """The symbols of a path."""
    return [span.symbol for span in symbol_spans(path)]


def symbol_spans(path: Sequence[int]) -> list[AlignedSpan]:
    """The symbols of a path, and when they are said."""
    found: list[AlignedSpan] = []
    end = 0
    for symbol, run in groupby(path):
        begin, end = end, end + sum(1 for _ in run)
        if symbol != BLANK:
            found.append(AlignedSpan(symbol, begin, end))
    return found


def align(log_probs: Tensor, symbols: Sequence[int]) -> list[int]:
    """The most probable path, T long, that collapses to these symbols, of one row T V."""
    if len(log_probs) < max(1, frames_needed(symbols)):
        said = f"{len(symbols)} symbols have no path in {len(log_probs)} frames"
        raise UserError(said, allowed=f"{max(1, frames_needed(symbols))} frames or more")
    states = torch.full((2 * len(symbols) + 1,), BLANK, device=log_probs.device)  # blanks all round
    states[1::2] = torch.tensor(symbols, dtype=states.dtype, device=states.device)
    steps = best_steps(log_probs[:, states], states)
    path, state = [0] * len(log_probs), steps.last
    for t in range(len(log_probs) - 1, -1, -1):
        path[t] = int(states[state])
        state -= steps.back[t][state]
    return path


class PathSteps(NamedTuple):
    """How the best way to each state came there: from itself (0), or from one (1) or two (2) states before."""

    back: list[list[int]]  # T S
    last: int  # the state in which the best way ends


def best_steps(scores: Tensor, states: Tensor) -> PathSteps:
    """Viterbi's recursion over the log-probabilities of the states, T S: on, to the next, or over a blank."""
    # a blank may be left out, but not between equal symbols
    over = (states != BLANK) & (states != F.pad(states, (2, 0))[:-2])  # S
    before = torch.full_like(scores[0], -torch.inf)
    before[0] = 0.0  # so the first frame stands in state 0 or 1
    back: list[list[int]] = []
    for now in scores:
        wide = F.pad(before, (2, 0), value=-torch.inf)
        ways = torch.stack([before, wide[1:-1], wide[:-2].masked_fill(~over, -torch.inf)])  # 3 S
        before, step = ways.max(0)
        before = before + now
        back.append(step.tolist())
    return PathSteps(back, len(states) - len(before[-2:]) + int(before[-2:].argmax()))
