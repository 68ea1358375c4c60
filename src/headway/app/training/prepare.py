"""From records to rows of ids on disk: tokenizers, the task, and what each step and each evaluation reads.

Axes:  R rows   C columns
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from headway.app.training.material import Material
from headway.data.batched import batched
from headway.data.cached import cached_shards
from headway.data.digest import digest
from headway.data.order import Buckets, Order, Steps, Windows
from headway.data.records import by_document
from headway.data.shards import Shards, write_shards
from headway.data.sources import Record
from headway.errors import UserError
from headway.tasks.task import RecordTask, StreamTask
from headway.train.batches import Ahead, Batches, Held, Lines, Stretches, span_batches

MANY = 1000  # records that are encoded at a time
MEASURED = {"tokens": 8192, "images": 128, "frames": 16_384, "vectors": 8192}  # of a batch for validation


@dataclass(frozen=True)
class Shelf:
    """Where rows are kept: under a key, in the user's cache, or where that is to stay as it is, in `place`."""

    key: str
    place: Path | None = None

    def stored(
        self, part: str, rows: Callable[[], Iterable[Iterable[Iterable[int]]]], columns: int, vocab: int
    ) -> Shards:
        """Rows on disk, written once for all runs that have the same."""

        def make(folder: Path) -> None:
            write_shards(folder, rows(), columns, vocab)

        return cached_shards(digest((), f"{self.key} {part}"), make, self.place)


@dataclass(frozen=True, eq=False)
class Prepared:
    """Rows on disk.  `held` are batches for validation; `tokens` counts what an epoch reads, in `unit`s."""

    batches: Callable[[int, int], Batches]  # of a token budget and a number of batches for each update
    held: Sequence[Any]
    tokens: int
    rows: int
    unit: str = "tokens"


def prepare_records(task: RecordTask, material: Material, seed: int, vocab: int, shelf: Shelf) -> Prepared:
    """Rows that are learned one by one, in batches of like length."""
    train = shelf.stored("train", lambda: encoded(task, material.train()), task.columns, vocab)
    held = shelf.stored("held", lambda: encoded(task, material.held()), task.columns, vocab)
    if len(train) == 0:
        raise UserError(f"{material.name} has no records to train on", do="give more, or a smaller --data.held-out")
    lengths = task.sizes(train)

    def batches(tokens: int, accumulate: int) -> Batches:
        return Batches(task, Lines(train), Steps(Buckets(lengths, tokens, seed), accumulate), seed)

    measured = [] if len(held) == 0 else Buckets(task.sizes(held), MEASURED[task.unit], 0).epoch(0)
    found = Held(task.measured(), Lines(held), measured)
    return Prepared(batches, found, int(lengths.sum()), len(train), task.unit)


def prepare_texts(task: StreamTask, material: Material, seed: int, length: int, shelf: Shelf) -> Prepared:
    """Spans of one long stream of documents."""
    stream = streamed(task, material, length, shelf)
    size = len(stream.last.stream()) - stream.first
    width = min(length, size - 1)  # little text is measured in one piece
    spans = span_batches(size, width, 32) if width > 0 else []
    held = Held(task.measured(), Stretches(stream.last, width, stream.first), spans)
    return Prepared(stream.batches(task, Stretches(stream.train, length), seed), held, stream.cut, len(stream.train))


def prepare_series(task: StreamTask, material: Material, seed: int, length: int, shelf: Shelf) -> Prepared:
    """Spans of one long series; every row that is held out is asked for, after as many before it as in training."""
    stream = streamed(task, material, length, shelf)
    known = min(length, stream.first - 1) if material.tail else 0
    first, size = max(0, stream.first - 1 - known), MEASURED[task.unit]
    count = len(stream.last.stream()) - first - known - 1  # rows that are asked for
    spans = [np.array([at]) for at in range(0, count, size)]
    held = Held(task.measured(), Ahead(stream.last, known + size, first, known), spans)
    batches = stream.batches(task, Ahead(stream.train, length), seed)
    return Prepared(batches, held, stream.cut, stream.cut, task.unit)


@dataclass(frozen=True, eq=False)
class Streamed:
    """One long stream on disk, learned from up to `cut`; what is held out lies in `last`, from `first` on."""

    train: Shards
    cut: int
    last: Shards
    first: int

    def batches(self, task: StreamTask, examples: Stretches, seed: int) -> Callable[[int, int], Batches]:
        def made(tokens: int, accumulate: int) -> Batches:
            windows: Order = Windows(self.cut, examples.length, max(1, tokens // examples.length), seed)
            return Batches(task, examples, Steps(windows, accumulate), seed)

        return made


def streamed(task: StreamTask, material: Material, length: int, shelf: Shelf) -> Streamed:
    """Documents on disk, enough for one span at least."""
    train, held = (
        shelf.stored(part, partial(documents, task, records), task.columns, task.vocab)
        for part, records in (("train", material.train), ("held", material.held))
    )
    total = len(train.stream())
    cut = total - round(total * material.tail)
    if cut <= length:
        said = f"{material.name} has {cut} {task.unit} to learn from, which are no row of {length} + 1"
        raise UserError(said, do=f"give more, or a smaller --data.longest, such as {max(2, cut // 4)}")
    return Streamed(train, cut, train, cut) if material.tail else Streamed(train, cut, held, 0)


def encoded(task: RecordTask, records: Iterator[Record]) -> Iterator[list[list[int]]]:
    for some in batched(records, MANY):
        try:
            rows = task.encode([record.handed for record in some])
        except UserError:
            raise unreadable(task, some) from None
        yield from rows


def unreadable(task: RecordTask, records: list[Record]) -> UserError:
    """What is wrong with the first record that a task cannot read, and where that stands."""
    for record in records:
        try:
            task.encode([record.handed])
        except UserError as error:
            said = f"{record.file}:{record.line}: {error.said}"
            return UserError(said, allowed=error.allowed, meant=error.meant, do=error.do)
    raise AssertionError("together they could not be read, and each alone could")


def documents(task: StreamTask, records: Callable[[], Iterable[Record]]) -> Iterator[list[Iterable[int]]]:
    """Each document as one row."""
    return map(task.document, by_document(records()))
