"""The order in which data is read, and random numbers by key: pure functions, so that a resumed run is the same run.

The order is a function of (seed, epoch), the position in it is the step.  A random number is a function of the words
and numbers that name it: `random_for(seed, "dropout", step)` is the same on every machine, in every process and after
every restart.  Nothing is remembered.

Axes:  R rows   C columns
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import index
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from headway.errors import UserError

Numbers: TypeAlias = NDArray[np.int64]
WINDOW = 100  # batches whose rows are sorted together: 4 % of padding on Multi30k; 20 leave 9 %, all of them 3 %
PADDED = 1.4  # times the budget: what a batch may hold with its padding
T = TypeVar("T")


class Order(Protocol):
    """The batches of each epoch."""

    def epoch(self, number: int) -> list[Numbers]: ...


@dataclass(frozen=True)
class DataMixture:
    """How often the items of several sets are drawn in an epoch: 2.5 is each twice, and half of them once more.

    Items stand in runs, one after the other; `ends` is where each ends, `weights` how often its items are drawn.
    """

    ends: tuple[int, ...]
    weights: tuple[float, ...]

    def drawn(self, items: Numbers, *parts: int | str) -> Numbers:
        """Items as often as they are drawn; which ones are drawn once more is decided by the parts."""
        runs, found = np.searchsorted(self.ends, items, side="right"), list[Numbers]()
        for at, weight in enumerate(self.weights):
            own = items[runs == at]
            more = round(weight % 1 * len(own))
            found += [np.tile(own, int(weight)), own[shuffled(len(own), "drawn", at, *parts)[:more]]]
        drawn = np.concatenate(found)
        return drawn if len(drawn) else items[:1]

    def total(self, reached: Sequence[int]) -> int:
        """How much an epoch draws, where so much is `reached` at the end of each run."""
        return max(1, round(float(np.dot(self.weights, np.diff([0, *reached])))))


@dataclass(frozen=True, eq=False)
class Buckets:
    """Batches of rows of like length, of at most `tokens` real tokens, and at most `rows` rows where that is given.

    Each row is in one batch of an epoch, or as often as a mixture draws it.  A row that is longer than the budget
    stands alone.
    """

    lengths: NDArray[np.integer]  # R or R C
    tokens: int
    seed: int
    rows: int | None = None
    mixture: DataMixture | None = None

    def __post_init__(self) -> None:
        if len(self.lengths) == 0:
            raise UserError("there are no rows to read")
        # a small copy: it goes to each worker, and nobody else can change it
        object.__setattr__(self, "lengths", self.lengths.astype(np.min_scalar_type(int(self.lengths.max()))))
        need(self.tokens, "tokens in a batch")
        need(1 if self.rows is None else self.rows, "rows in a batch")

    def epoch(self, number: int) -> list[Numbers]:
        order = np.arange(len(self.lengths))
        order = order if self.mixture is None else self.mixture.drawn(order, self.seed, number)
        order = order[shuffled(len(order), "rows", self.seed, number)]
        lengths = self.lengths.reshape(len(self.lengths), -1)[order].astype(np.int64)  # R C
        sort = alike(lengths, self.window(lengths))
        order, lengths = order[sort], lengths[sort]
        ends = cut(lengths, self.tokens, self.rows or len(order))
        batches = np.split(order, ends[:-1])
        return [batches[i] for i in shuffled(len(batches), "batches", self.seed, number)]

    def window(self, lengths: Numbers) -> int:
        """Rows that are sorted together."""
        usual = max(1, round(self.tokens / max(1.0, float(lengths.sum(1).mean()))))
        return WINDOW * min(usual, self.rows or usual)


@dataclass(frozen=True)
class StreamWindows:
    """Spans of one long stream, `rows` at a time, as the positions where they begin; see `spans`.

    Each epoch cuts anew, shifted by less than a span, so that no token has the same neighbours for ever.
    """

    total: int
    length: int
    rows: int
    seed: int
    mixture: DataMixture | None = None  # of positions; a span is of the set in which it begins

    def __post_init__(self) -> None:
        need(self.length, "tokens in a span")
        need(self.rows, "rows in a batch")
        spans(self.total, self.length)

    def epoch(self, number: int) -> list[Numbers]:
        shift = keyed("shift", self.seed, number) % min(self.length, self.total - self.length)
        starts = spans(self.total, self.length, shift)
        starts = starts if self.mixture is None else self.mixture.drawn(starts, self.seed, number)
        starts = starts[shuffled(len(starts), "spans", self.seed, number)]
        return [starts[i : i + self.rows] for i in range(0, len(starts), self.rows)]


def spans(total: int, length: int, shift: int = 0) -> Numbers:
    """Where spans begin, each of which reads `length` + 1 tokens and learns to say the last `length` of them.

    The last token of one is the first of the next, so every token from the second on is said once, but for fewer than
    `length` at the end, and `shift` at the beginning.
    """
    if total <= length:
        raise UserError(
            f"a text of {total} tokens is too short for spans of {length} + 1",
            do=f"give more text, or a context of {total - 1} or less" if total > 1 else "give more text",
        )
    return np.arange(shift, total - length, length, dtype=np.int64)


class BatchPosition(NamedTuple):
    """A batch of an epoch: the numbers of its rows (or where its spans begin)."""

    epoch: int
    batch: int
    rows: Numbers


@dataclass(frozen=True)
class StepShare:
    """What one of several processes reads of each step: whole batches in turn, or with `split` rows of every batch.

    Together the shares are the step, whatever the number of processes.  A whole batch has the random numbers that it
    has in one process; those of a split one depend on the share too.
    """

    rank: int = 0
    processes: int = 1
    split: bool = False

    def of(self, places: Sequence[BatchPosition]) -> Sequence[BatchPosition]:
        """The batches of a step that this process reads, or its rows of them, of which there may be none."""
        mine = slice(self.rank, None, self.processes)
        return [place._replace(rows=place.rows[mine]) for place in places] if self.split else places[mine]

    def number(self, at: int) -> int:
        """Which batch of the step is the one that this process reads at a place in its order."""
        return at if self.split else at * self.processes + self.rank

    def describe(self) -> str:
        each = "rows of every batch each" if self.split else "whole batches each"
        return "all rows" if self == WHOLE else f"{self.processes} processes, {each}"

    @property
    def key(self) -> tuple[int | str, ...]:
        """What random numbers depend on besides their batch."""
        return ("share", self.rank, self.processes) if self.split else ()


WHOLE = StepShare()


class UncountedBatch(NamedTuple):
    """What a process without rows of a batch computes, so that it takes part in the exchange of gradients: times 0."""

    batch: Any
    targets: int = 0
    tokens: int = 0


class Steps:
    """What each step of training reads: `accumulate` batches, going on from epoch to epoch.

    An answer depends on the step alone.  What is kept between questions (how many batches each epoch has, and the two
    epochs that were read last) saves time and nothing else; it is left behind in pickling.
    """

    def __init__(self, order: Order, accumulate: int = 1) -> None:
        need(accumulate, "batches in a step")
        self.order, self.accumulate = order, accumulate
        self.ends: list[int] = []  # batches up to the end of each epoch
        self.recent: dict[int, list[Numbers]] = {}

    def __reduce__(self) -> tuple[type[Steps], tuple[Order, int]]:
        return Steps, (self.order, self.accumulate)

    def at(self, step: int) -> list[BatchPosition]:
        first = step * self.accumulate
        return [self.place(batch) for batch in range(first, first + self.accumulate)]

    def epochs_until(self, step: int) -> float:
        """How many epochs are read before a step: 2.5 is in the middle of the third."""
        epoch, batch, _ = self.place(step * self.accumulate)
        return epoch + batch / len(self.batches(epoch))

    def steps_for(self, epochs: int) -> int:
        """The steps that it takes to read so many epochs whole."""
        while len(self.ends) < epochs:
            self.batches(len(self.ends))
        return -(-self.ends[epochs - 1] // self.accumulate) if epochs else 0

    def place(self, number: int) -> BatchPosition:
        """The batch with this number, counted over all epochs."""
        assert number >= 0, number
        while not self.ends or self.ends[-1] <= number:
            self.batches(len(self.ends))
        epoch = bisect_right(self.ends, number)
        batch = number - (self.ends[epoch - 1] if epoch else 0)
        return BatchPosition(epoch, batch, self.batches(epoch)[batch])

    def batches(self, epoch: int) -> list[Numbers]:
        if epoch not in self.recent:
            while len(self.recent) > 1:
                del self.recent[next(iter(self.recent))]
            self.recent[epoch] = self.order.epoch(epoch)
        if epoch == len(self.ends):
            self.ends.append(len(self.recent[epoch]) + (self.ends[-1] if self.ends else 0))
        return self.recent[epoch]


def alike(lengths: Numbers, window: int) -> Numbers:
    """The order, R, that brings rows of like length together within each window of rows.

    Sorted by the longest column, then by which column is the longer.  Every other window goes down instead of up, and
    so does every other length in its second key: neighbours stay alike across these borders.  On Multi30k this leaves
    4 % of padding; sorting by the sum of the columns leaves 19 %, by the source and then the target 10 %.
    """
    windows = np.arange(len(lengths)) // window
    longest, lean = lengths.max(1), lengths[:, 0] - lengths[:, -1]
    return np.lexsort((np.where(longest % 2, lean, -lean), np.where(windows % 2, -longest, longest), windows))


def cut(lengths: Numbers, tokens: int, rows: int) -> list[int]:
    """Where batches end, taking rows as they come as long as the real and the padded size allow it."""
    sums = np.concatenate([[0], lengths.sum(1).cumsum()])
    ends = [0]
    while (start := ends[-1]) < len(lengths):
        # the last row that the budget of real tokens still holds, found among all; then the padding, among those few
        end = min(int(np.searchsorted(sums, sums[start] + tokens, side="right")) - 1, start + rows)
        widths = np.maximum.accumulate(lengths[start:end]).sum(1)
        padded = widths * np.arange(1, len(widths) + 1)
        ends.append(start + max(1, int(np.searchsorted(padded, PADDED * tokens, side="right"))))
    return ends[1:]


def need(count: int, of: str) -> None:
    if count < 1:
        raise UserError(f"{count} {of}", allowed="1 or more")


def batched(things: Iterable[T], count: int) -> Iterator[list[T]]:
    """Lists of `count` things, the last one shorter; no more than one list is read ahead."""
    left = iter(things)
    while some := list(islice(left, count)):
        yield some


def keyed(*parts: int | str) -> int:
    """A number of 63 bits for these parts; 1 and "1" are different parts, and so are ("ab",) and ("a", "b")."""
    hashes = hashlib.sha256()
    for part in parts:
        kind, said = (b"text", part) if isinstance(part, str) else (b"number", str(index(part)))
        data = said.encode("utf-8", "surrogatepass")
        hashes.update(b"%s %d %s" % (kind, len(data), data))
    return int.from_bytes(hashes.digest()[:8], "little") >> 1


def random_for(*parts: int | str) -> np.random.Generator:
    """A stream of random numbers of its own for these parts."""
    return np.random.Generator(np.random.Philox(key=keyed(*parts)))


def shuffled(count: int, *parts: int | str) -> Numbers:
    """The numbers below `count` in an order that the parts decide."""
    # Raw bits: numpy promises them for ever, but may change what `permutation` makes of them.
    return np.argsort(np.random.Philox(key=keyed(*parts)).random_raw(count), kind="stable")
