"""The batches of each step, by its number alone: whoever prepares them, and whatever ran before.

Axes:  N tokens of a stream
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from torch.utils.data import DataLoader, Dataset

from headway.data.keyed import random_for
from headway.data.order import Steps, spans
from headway.data.shards import Shards
from headway.train.signals import deaf

Row = tuple[np.ndarray, ...]


class Examples(Protocol):
    """What the numbers of a batch stand for."""

    def rows(self, numbers: Sequence[int] | np.ndarray) -> list[Row]: ...


@dataclass(frozen=True, eq=False)
class Lines:
    """Numbers are those of rows."""

    shards: Shards

    def rows(self, numbers: Sequence[int] | np.ndarray) -> list[Row]:
        return [self.shards.row(int(number)) for number in numbers]


@dataclass(frozen=True, eq=False)
class Stretches:
    """Numbers are places in a stream, counted from `first`, where spans of `length` + 1 tokens begin.

    A span is given in pieces where documents meet in it, so that nobody sees across.
    """

    shards: Shards
    length: int
    first: int = 0

    def rows(self, numbers: Sequence[int] | np.ndarray) -> list[Row]:
        return [self.columns(piece) for number in numbers for piece in self.pieces(int(number))]

    def pieces(self, number: int) -> Iterator[slice]:
        """Where the pieces of a span lie in the stream."""
        stream, begin = self.shards.stream(), self.first + number
        for size in stream.pieces(begin, min(begin + self.length + 1, len(stream))).tolist():
            yield slice(begin, begin + size)
            begin += size

    def columns(self, piece: slice) -> Row:
        return tuple(self.shards.stream(column)[piece] for column in range(self.shards.columns))


@dataclass(frozen=True, eq=False)
class Ahead(Stretches):
    """The same, where the first `known` places of a span are there to be looked back at, and nobody is asked for them.

    Behind the columns of a piece stands how many of its own places these are.
    """

    known: int = 0

    def rows(self, numbers: Sequence[int] | np.ndarray) -> list[Row]:
        return [
            (*self.columns(piece), np.array([self.unasked(int(number), piece)]))
            for number in numbers
            for piece in self.pieces(int(number))
        ]

    def unasked(self, number: int, piece: slice) -> int:
        """How many places of a piece of a span nobody is asked for: as far as all before them is known."""
        known = self.first + number + self.known - piece.start
        return min(max(0, known), piece.stop - piece.start - 1)


class Collate(Protocol):
    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> Any: ...


class Batches(Dataset[list[Any]]):
    """`batches[step]` is what update `step` reads, counted from 1: as many batches as are accumulated."""

    def __init__(self, task: Collate, examples: Examples, steps: Steps, seed: int):
        self.task, self.examples, self.steps, self.seed = task, examples, steps, seed

    def __getitem__(self, step: int) -> list[Any]:
        return [
            self.task.collate(self.examples.rows(place.rows), random_for("batch", self.seed, place.epoch, place.batch))
            for place in self.steps.at(step - 1)
        ]

    def between(self, first: int, last: int, workers: int = 0) -> Iterator[list[Any]]:
        """The batches of steps `first` to `last`, the latter excluded, prepared ahead by so many processes."""
        if workers == 0:
            return (self[step] for step in range(first, last))
        steps = range(first, last)
        return iter(DataLoader(self, None, sampler=steps, num_workers=workers, worker_init_fn=deaf, collate_fn=same))


@dataclass(frozen=True, eq=False)
class Held(Sequence[Any]):
    """Batches for validation, one for each list of numbers; what is drawn in them is always the same.

    They are made when they are asked for: all of them may be more than memory holds.
    """

    task: Collate
    examples: Examples
    numbers: Sequence[np.ndarray]

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, at: Any) -> Any:
        return self.task.collate(self.examples.rows(self.numbers[at]), random_for("validation", at))


def span_batches(total: int, length: int, rows: int) -> list[np.ndarray]:
    """The places of all spans of a stream in order, `rows` at a time."""
    starts = spans(total, length)
    return [starts[at : at + rows] for at in range(0, len(starts), rows)]


def same(batches: list[Any]) -> list[Any]:
    return batches
