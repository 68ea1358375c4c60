"""How far a score may be from what more records would say: its 95 % interval.

A share of records (4 of 4 right) has the exact interval of Clopper and Pearson (1934): those shares p under which the
count is not improbable, neither as so many nor as so few.  Every other score is a function of sums over records, and
has the percentiles of the bootstrap (Efron 1979): of the scores of as many records, drawn from these with replacement.
Draws are always the same, and the order of records changes nothing.

Axes:  N records   K sums   R resamples
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95
RESAMPLES, MIN_RESAMPLES = 1000, 100
DRAWS = 4_000_000  # at most, of all resamples together, down to the least number of these, and at once
HALVINGS = 60  # of the range from 0 to 1, which leave nothing that a float could tell

Rows = Sequence[int]
Numbers = NDArray[np.float64]


class Interval(NamedTuple):
    """From `low` to `high`; not numbers where nothing can be said."""

    low: float
    high: float

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int | float) and self.low <= number <= self.high


UNKNOWN = Interval(math.nan, math.nan)


S = TypeVar("S", bound="Statistic")


class Statistic(ABC):
    """A score as a function of records."""

    signature: str = ""  # how it was computed, for others to compare with

    @property
    @abstractmethod
    def count(self) -> int:
        """Records."""

    @property
    def n(self) -> int:
        """What the score is of: the records, or the tokens or images in them where records are runs of these."""
        return self.count

    @abstractmethod
    def value(self) -> float:
        """The score."""

    @abstractmethod
    def subset(self, rows: Rows) -> Self:
        """The same of some records."""

    @abstractmethod
    def joined(self, others: Sequence[Statistic]) -> Self:
        """The same of these records and those of others."""

    @abstractmethod
    def resampled(self, counts: Numbers) -> Numbers:
        """The scores where each record counts so often, R N → R; the order of records must not matter."""

    def interval(self) -> Interval:
        if self.count < 2:
            return UNKNOWN
        outside = (1 - LEVEL) / 2
        scores = np.concatenate([self.resampled(some) for some in resamples(self.count)])
        low, high = np.quantile(scores, (outside, 1 - outside)).tolist()
        return Interval(low, high)


@dataclass(frozen=True, eq=False)
class Sums(Statistic):
    """A function of sums over records: counts of matches, losses with their tokens."""

    columns: NDArray[np.int64] | Numbers  # K N
    of: Callable[[Sequence[float]], float]  # the K sums
    signature: str = ""
    sizes: NDArray[np.int64] | None = None  # N, where a record is a run of so many things

    @property
    def count(self) -> int:
        return self.columns.shape[1]

    @property
    def n(self) -> int:
        return self.count if self.sizes is None else int(self.sizes.sum())

    def value(self) -> float:
        whole = self.columns.dtype.kind == "i"
        # exact, whatever the order
        return self.of([int(one.sum()) if whole else math.fsum(one) for one in self.columns])

    def subset(self, rows: Rows) -> Self:
        some = list(rows)
        return replace(self, columns=self.columns[:, some], sizes=None if self.sizes is None else self.sizes[some])

    def joined(self, others: Sequence[Statistic]) -> Self:
        parts = alike(self, others)
        sizes = [one.sizes for one in parts if one.sizes is not None]
        summed = np.concatenate([one.columns for one in parts], 1)
        return replace(self, columns=summed, sizes=np.concatenate(sizes) if sizes else None)

    def resampled(self, counts: Numbers) -> Numbers:
        ordered = self.columns[:, np.lexsort(self.columns)]
        return np.array([self.of(totals) for totals in (counts @ ordered.T).tolist()])


@dataclass(frozen=True, eq=False)
class SetSums(Sums):
    """Sums whose columns depend on the whole set, as ranks do: `make` makes them of its records."""

    make: Callable[..., Sums] = field(kw_only=True)
    records: tuple[Sequence[Any] | NDArray[Any], ...] = ()

    @staticmethod
    def made_by(make: Callable[..., Sums], *records: Sequence[Any] | NDArray[Any]) -> SetSums:
        found = make(*records)
        return SetSums(found.columns, found.of, found.signature, found.sizes, make=make, records=records)

    def subset(self, rows: Rows) -> Self:
        """The columns stay those of the whole set."""
        return replace(super().subset(rows), records=tuple([one[at] for at in rows] for one in self.records))

    def joined(self, others: Sequence[Statistic]) -> Self:
        sides = zip(*(one.records for one in alike(self, others)), strict=True)
        found = self.make(*(records := tuple([*chain(*side)] for side in sides)))
        return replace(self, columns=found.columns, sizes=found.sizes, records=records)


@dataclass(frozen=True, eq=False)
class Share(Statistic):
    """The share of records of which something is true."""

    true: NDArray[np.bool_]  # N

    @property
    def count(self) -> int:
        return len(self.true)

    def value(self) -> float:
        return int(self.true.sum()) / len(self.true)

    def subset(self, rows: Rows) -> Self:
        return replace(self, true=self.true[list(rows)])

    def joined(self, others: Sequence[Statistic]) -> Self:
        return replace(self, true=np.concatenate([one.true for one in alike(self, others)]))

    def resampled(self, counts: Numbers) -> Numbers:
        return counts @ np.sort(self.true) / self.count

    def interval(self) -> Interval:
        return clopper_pearson(int(self.true.sum()), self.count)


def alike(one: S, others: Sequence[Statistic]) -> list[S]:
    """A statistic and others, which are of its kind."""
    same = [other for other in others if isinstance(other, type(one))]
    assert len(same) == len(others)
    return [one, *same]


def clopper_pearson(right: int, count: int) -> Interval:
    """The exact interval of a share: 4 of 4 may be 40 % to 100 %."""
    if not count:
        return UNKNOWN
    return Interval(lower_limit(right, count), 1 - lower_limit(count - right, count))


def lower_limit(right: int, count: int) -> float:
    """The share p under which `right` or more of `count` have the probability (1 − LEVEL) / 2."""
    if right == 0:
        return 0.0
    more = np.arange(right, count + 1)
    # log of the binomial coefficients, each from the one before: (n over i) = (n over i−1) · (n − i + 1) / i
    steps = np.arange(1, count + 1)
    coefficients = np.cumsum(np.log((count - steps + 1) / steps))[right - 1 :]
    low, high = 0.0, right / count
    for _ in range(HALVINGS):
        p = (low + high) / 2
        tail = np.exp(coefficients + more * math.log(p) + (count - more) * math.log1p(-p)).sum()
        low, high = (p, high) if tail < (1 - LEVEL) / 2 else (low, p)
    return (low + high) / 2


def resamples(count: int) -> Iterable[Numbers]:
    """How often each record is drawn in each resample, R N, in parts of at most `DRAWS` or of one resample."""
    return drawn_once(count) if MIN_RESAMPLES * count <= DRAWS else drawn(count)


@lru_cache(1)
def drawn_once(count: int) -> tuple[Numbers, ...]:
    """Those of few records, which several scores of the same records have in common."""
    return tuple(drawn(count))


def drawn(count: int) -> Iterator[Numbers]:
    several, random = min(RESAMPLES, max(MIN_RESAMPLES, DRAWS // count)), np.random.default_rng(0)
    together = max(1, DRAWS // count)
    for some in (min(together, several - at) for at in range(0, several, together)):
        places = random.integers(0, count, (some, count)) + count * np.arange(some)[:, None]
        yield np.bincount(places.ravel(), minlength=some * count).reshape(some, count).astype(np.float64)


def ratio(totals: Sequence[float]) -> float:
    """The first sum over the second; not a number where that is 0."""
    part, whole = totals
    return part / whole if whole else math.nan


def columns(*several: Sequence[float] | NDArray[np.int64] | Numbers) -> NDArray[np.int64] | Numbers:
    """Columns of numbers, one for each record, as `Sums` takes them: whole numbers, or all of them floats."""
    return np.array([np.asarray(column) for column in several])
