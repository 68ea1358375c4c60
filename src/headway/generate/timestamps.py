"""Whisper's timestamp tokens: the rules by which they are predicted, and how they divide a window into segments.

A segment is written as <|0.00|> words <|2.40|>, and the next begins with the time at which this one ended, so that two
times stand side by side where a segment ends.  Radford et al. 2022, §2.3 and §4.5.

Axes:  B rows   V vocabulary
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import NamedTuple

import torch
from torch import Tensor

from headway.generate.rules import Rules


@dataclass(frozen=True)
class TimeRules(Rules):
    """Times come in pairs, never fall, and come first; a time is written where all together are likelier than a word.

    Text has ids below `end`; times have those from `first_time` on.  The first is at most `latest` steps.
    """

    end: int = 0
    first_time: int = 1
    latest: int | None = None

    def masked(self, logits: Tensor, length: int, rooms: Sequence[int], ids: Tensor) -> Tensor:
        logits = super().masked(logits, length, rooms, ids)
        barred = torch.zeros_like(logits, dtype=torch.bool)
        for row, seen in zip(barred, ids.tolist(), strict=True):
            for first, last in self.spans(seen[len(seen) - length :], logits.shape[1]):
                row[first:last] = True
        logits = logits.masked_fill(barred, -inf)
        words, times = logits[:, : self.first_time], logits[:, self.first_time :]
        timed = times.logsumexp(1) > words.amax(1)
        return torch.cat([words.masked_fill(timed[:, None], -inf), times], 1)

    def spans(self, written: Sequence[int], vocab: int) -> list[tuple[int, int]]:
        """The ids that may not come next, from … up to: <|notimestamps|>, and what would break the order of times."""
        first, barred = self.first_time, [(self.first_time - 1, self.first_time)]
        if not written:
            late = vocab if self.latest is None else first + self.latest + 1
            return [(0, first), (late, vocab)]
        now, before = written[-1] >= first, len(written) < 2 or written[-2] >= first
        last = max((token for token in written if token >= first), default=first - 1)
        if now and not before:  # a segment has ended: the time at which the next begins, or the end
            return [*barred, (0, self.end), (first, last)]
        return [*barred, (first, vocab if now else last + 1)]


class TimedSpan(NamedTuple):
    """A segment: when it begins and ends, in steps of time from the start of its window, and what was written."""

    start: int
    end: int
    tokens: tuple[int, ...]


class WindowSegments(NamedTuple):
    """The segments of a window."""

    spans: list[TimedSpan]
    heard: int  # steps of time of the window that need not be heard again

    @staticmethod
    def whole(tokens: Sequence[int], steps: int) -> WindowSegments:
        """One segment, where no times were asked for."""
        return WindowSegments([TimedSpan(0, steps, tuple(tokens))], steps)


def cut_segments(tokens: Sequence[int], first_time: int, steps: int) -> WindowSegments:
    """The segments of a window of `steps` steps of time.

    What stands behind the last pair of times was cut off by the window's end, and is heard again in the next; a single
    time at the end means that nothing was said after it.
    """
    times = [token >= first_time for token in tokens]
    ends = [at + 1 for at in range(len(times) - 1) if times[at] and times[at + 1]]
    finished = times[-2:] == [False, True]
    if not ends:
        told = [token - first_time for token in tokens if token >= first_time]
        return WindowSegments([TimedSpan(0, told[-1] if told and told[-1] else steps, tuple(tokens))], steps)
    edges = [0, *ends, *([len(tokens)] if finished else [])]
    spans = [
        TimedSpan(tokens[a] - first_time, tokens[b - 1] - first_time, tuple(tokens[a:b])) for a, b in pairwise(edges)
    ]
    return WindowSegments(spans, steps if finished else spans[-1].end)
