"""From records to rows of ids on disk: tokenizers, the task, and what each step and each evaluation reads.

Axes:  R rows   C columns

The batches of each step: a function of its number alone, whichever process prepares them.

Axes:  N tokens of a stream
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from torch.utils.data import DataLoader, Dataset

from headway.data.order import Buckets, Order, Steps, StreamWindows, batched, random_for, spans
from headway.data.records import Record, by_document
from headway.data.shards import Shards, cached_shards, digest, write_shards
from headway.data.splits import DataSplits
from headway.errors import UserError
from headway.tasks.base import RecordTask, StreamTask, TaskSetup
from headway.training.loop import deaf

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


ENCODED_TOGETHER = 1000  # records
MEDIA_NUMBERS = 2**31  # what a row of images or sounds may hold: the bytes of a name, and how long a sound is
VALIDATION_BATCH = {"tokens": 8192, "images": 128, "frames": 16_384, "vectors": 8192}  # of a batch for validation


@dataclass(frozen=True)
class ShardCache:
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
class EncodedDataset:
    """Rows on disk.  `validation` are batches; `tokens` counts what an epoch reads, in `unit`s."""

    batches: Callable[[int, int], Batches]  # of a token budget and a number of batches for each update
    validation: Sequence[Any]
    tokens: int
    rows: int
    unit: str = "tokens"


def encoded_dataset(
    setup: TaskSetup, splits: DataSplits, seed: int, max_length: int, cache: ShardCache
) -> EncodedDataset:
    """The rows of a task, as batches of training and of validation."""
    task = setup.task
    if isinstance(task, StreamTask):
        encode = encode_series if task.has_history else encode_stream
        return encode(task, splits, seed, task.stride(max_length), cache)
    assert isinstance(task, RecordTask)
    known = [one.vocab for one in (setup.tokenizer, setup.target_tokenizer) if one]
    vocab = MEDIA_NUMBERS if setup.preprocess else max([setup.classes + 1, task.max_id + 1, *known])
    return encode_records(task, splits, seed, vocab, cache)


def encode_records(task: RecordTask, splits: DataSplits, seed: int, vocab: int, cache: ShardCache) -> EncodedDataset:
    """Rows that are learned one by one, in batches of like length."""
    train = cache.stored("train", lambda: encoded(task, splits.train()), task.columns, vocab)
    held = cache.stored("held", lambda: encoded(task, splits.validation()), task.columns, vocab)
    if len(train) == 0:
        raise UserError(f"{splits.name} has no records to train on", do="give more, or a smaller data.validation_split")
    lengths = task.sizes(train)

    def batches(tokens: int, accumulation: int) -> Batches:
        return Batches(task, RowExamples(train), Steps(Buckets(lengths, tokens, seed), accumulation), seed)

    numbers = [] if len(held) == 0 else Buckets(task.sizes(held), VALIDATION_BATCH[task.unit], 0).epoch(0)
    validation = ValidationBatches(task.without_augmentation(), RowExamples(held), numbers)
    return EncodedDataset(batches, validation, int(lengths.sum()), len(train), task.unit)


def encode_stream(task: StreamTask, splits: DataSplits, seed: int, length: int, cache: ShardCache) -> EncodedDataset:
    """Spans of one long stream of documents."""
    stream = token_stream(task, splits, length, cache)
    size = len(stream.last.stream()) - stream.first
    width = min(length, size - 1)  # little text is measured in one piece
    spans = span_batches(size, width, 32) if width > 0 else []
    examples = SpanExamples(stream.last, width, stream.first)
    validation = ValidationBatches(task.without_augmentation(), examples, spans)
    batches = stream.batches(task, SpanExamples(stream.train, length), seed)
    return EncodedDataset(batches, validation, stream.cut, len(stream.train))


def encode_series(task: StreamTask, splits: DataSplits, seed: int, length: int, cache: ShardCache) -> EncodedDataset:
    """Spans of one long series; every row that is held out is asked for, after as many before it as in training."""
    stream = token_stream(task, splits, length, cache)
    known = min(length, stream.first - 1) if splits.tail else 0
    first, size = max(0, stream.first - 1 - known), VALIDATION_BATCH[task.unit]
    count = len(stream.last.stream()) - first - known - 1  # rows that are asked for
    spans = [np.array([at]) for at in range(0, count, size)]
    examples = HistoryExamples(stream.last, known + size, first, known)
    validation = ValidationBatches(task.without_augmentation(), examples, spans)
    batches = stream.batches(task, HistoryExamples(stream.train, length), seed)
    return EncodedDataset(batches, validation, stream.cut, stream.cut, task.unit)


@dataclass(frozen=True, eq=False)
class TokenStream:
    """One long stream on disk, learned from up to `cut`; what is held out lies in `last`, from `first` on."""

    train: Shards
    cut: int
    last: Shards
    first: int

    def batches(self, task: StreamTask, examples: SpanExamples, seed: int) -> Callable[[int, int], Batches]:
        def made(tokens: int, accumulate: int) -> Batches:
            windows: Order = StreamWindows(self.cut, examples.length, max(1, tokens // examples.length), seed)
            return Batches(task, examples, Steps(windows, accumulate), seed)

        return made


def token_stream(task: StreamTask, splits: DataSplits, length: int, cache: ShardCache) -> TokenStream:
    """Documents on disk, enough for one span at least."""
    train, held = (
        cache.stored(part, partial(documents, task, records), task.columns, task.vocab)
        for part, records in (("train", splits.train), ("held", splits.validation))
    )
    total = len(train.stream())
    cut = total - round(total * splits.tail)
    if cut <= length:
        said = f"{splits.name} has {cut} {task.unit} to learn from, which are no row of {length} + 1"
        raise UserError(said, do=f"give more, or a smaller data.max_length, such as {max(2, cut // 4)}")
    return TokenStream(train, cut, train, cut) if splits.tail else TokenStream(train, cut, held, 0)


def encoded(task: RecordTask, records: Iterator[Record]) -> Iterator[list[list[int]]]:
    for some in batched(records, ENCODED_TOGETHER):
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
