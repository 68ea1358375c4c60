"""Scores of several parts of a data set as those of all of their records together, as in cross-validation.

A score is a function of its records, so that of all of them is computed from all of them: it is no mean of the scores
of the parts.  Means over records, such as the loss of a token, come out as those over all records.  What is found
within a part (a text among those of its fold) is counted as it was found there.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from headway.metrics.intervals import Statistic
from headway.metrics.scores import Bucket, Classes, Scores, by_length


def pooled_scores(parts: Sequence[Scores]) -> Scores:
    """The scores of the records of all parts; where one could not be scored, those of that part."""
    first = parts[0]
    names = [name for name in first.numbers if all(name in one.numbers for one in parts)]
    if first.main not in names:  # a model has diverged
        return min(parts, key=lambda one: len(one.numbers))
    joined = {name: one for name in names if (one := joined_statistic([part.statistics.get(name) for part in parts]))}
    lengths = [length for part in parts for length in part.lengths or ()]
    return replace(
        first,
        numbers={name: joined[name].value() if name in joined else mean_number(name, parts) for name in names},
        count=sum(one.count for one in parts),
        signatures={name: one.signature for name, one in joined.items() if one.signature},
        buckets=by_length(lengths, joined, edges=edges_of(parts)) if lengths and first.buckets else (),
        classes=joined_classes([one.classes for one in parts]),
        statistics=joined,
        lengths=lengths or None,
    )


def joined_statistic(several: Sequence[Statistic | None]) -> Statistic | None:
    """A statistic of the records of all, where all know theirs."""
    known = [one for one in several if one is not None]
    return known[0].joined(known[1:]) if len(known) == len(several) else None


def mean_number(name: str, parts: Sequence[Scores]) -> float:
    """The mean of a number whose records are not known, such as chance, over the records."""
    total = sum(one.count for one in parts)
    return math.fsum(one.count * one.numbers[name] for one in parts) / total if total else math.nan


def joined_classes(several: Sequence[Classes | None]) -> Classes | None:
    known = [one.counts for one in several if one is not None]
    return Classes(sum(known, Counter[tuple[str, str]]())) if len(known) == len(several) else None


def edges_of(parts: Sequence[Scores]) -> tuple[int, ...]:
    """The edges between buckets that have records."""
    buckets: list[Bucket] = [bucket for part in parts for bucket in part.buckets]
    lasts = {bucket.last for bucket in buckets if bucket.last is not None}
    return tuple(sorted(lasts | {bucket.first - 1 for bucket in buckets if bucket.first > 1}))
