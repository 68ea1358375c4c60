"""The batches of each step: a function of its number alone, whichever process prepares them.

Axes:  N tokens of a stream
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from torch.utils.data import DataLoader, Dataset

from headway.data.order import Steps, spans
from headway.data.rng import random_for
from headway.data.shards import Shards
from headway.training.signals import deaf

ExampleRow = tuple[np.ndarray, ...]


class Examples(Protocol):
    """The examples that the indices of a batch refer to."""

    def rows(self, numbers: Sequence[int] | np.ndarray) -> list[ExampleRow]: ...


@dataclass(frozen=True, eq=False)
class RowExamples:
    """Indices are those of rows."""

    shards: Shards

    def rows(self, numbers: Sequence[int] | np.ndarray) -> list[ExampleRow]:
        return [self.shards.row(int(number)) for number in numbers]


@dataclass(frozen=True, eq=False)
class SpanExamples:
    """Indices are positions in a stream, counted from `first`, where spans of `length` + 1 tokens begin.

    A span is split at document boundaries, so that no token attends across them.
    """

    shards: Shards
    length: int
    first: int = 0

    def rows(self, numbers: Sequence[int] | np.ndarray) -> list[ExampleRow]:
        return [self.columns(piece) for number in numbers for piece in self.pieces(int(number))]

    def pieces(self, number: int) -> Iterator[slice]:
        """The slices of the stream that make up a span."""
        stream, begin = self.shards.stream(), self.first + number
        for size in stream.pieces(begin, min(begin + self.length + 1, len(stream))).tolist():
            yield slice(begin, begin + size)
            begin += size

    def columns(self, piece: slice) -> ExampleRow:
        return tuple(self.shards.stream(column)[piece] for column in range(self.shards.columns))


@dataclass(frozen=True, eq=False)
class HistoryExamples(SpanExamples):
    """Spans whose first `known` positions are context only and not predicted.

    After the columns of a piece comes the number of its own positions that are context.
    """

    known: int = 0

    def rows(self, numbers: Sequence[int] | np.ndarray) -> list[ExampleRow]:
        return [
            (*self.columns(piece), np.array([self.unasked(int(number), piece)]))
            for number in numbers
            for piece in self.pieces(int(number))
        ]

    def unasked(self, number: int, piece: slice) -> int:
        """How many positions of a piece are context only."""
        known = self.first + number + self.known - piece.start
        return min(max(0, known), piece.stop - piece.start - 1)


class Collate(Protocol):
    def collate(self, rows: Sequence[ExampleRow], random: np.random.Generator) -> Any: ...


class Batches(Dataset[list[Any]]):
    """`batches[step]` holds the batches of a step, counted from 1: several with gradient accumulation."""

    def __init__(self, task: Collate, examples: Examples, steps: Steps, seed: int):
        self.task, self.examples, self.steps, self.seed = task, examples, steps, seed

    def __getitem__(self, step: int) -> list[Any]:
        return [
            self.task.collate(self.examples.rows(place.rows), random_for("batch", self.seed, place.epoch, place.batch))
            for place in self.steps.at(step - 1)
        ]

    def between(self, first: int, last: int, workers: int = 0) -> Iterator[list[Any]]:
        """The batches of steps `first` to `last` (exclusive), prefetched by a number of worker processes."""
        if workers == 0:
            return (self[step] for step in range(first, last))
        steps = range(first, last)
        return iter(DataLoader(self, None, sampler=steps, num_workers=workers, worker_init_fn=deaf, collate_fn=same))


@dataclass(frozen=True, eq=False)
class ValidationBatches(Sequence[Any]):
    """Validation batches, one for each list of indices, with fixed random numbers.

    They are made on access: all of them together may not fit into memory.
    """

    task: Collate
    examples: Examples
    numbers: Sequence[np.ndarray]

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, at: Any) -> Any:
        return self.task.collate(self.examples.rows(self.numbers[at]), random_for("validation", at))


def span_batches(total: int, length: int, rows: int) -> list[np.ndarray]:
    """The start positions of all spans of a stream in order, `rows` at a time."""
    starts = spans(total, length)
    return [starts[at : at + rows] for at in range(0, len(starts), rows)]


def same(batches: list[Any]) -> list[Any]:
    return batches
