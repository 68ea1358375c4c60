"""The data of a run: records of files, a validation split, rows of ids on disk, and the batches of each step.

Where no validation data is given, a share of the texts is held out by the text itself, so that no text is on both
sides, and of every class its share; of one or a few long documents, the end is held out (`tail`).  The batches of a
step are a function of its number alone, whichever process prepares them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from headway.console import phase
from headway.data.order import (
    WHOLE,
    BatchPosition,
    Buckets,
    DataMixture,
    Steps,
    StepShare,
    StreamWindows,
    UncountedBatch,
    batched,
    random_for,
    spans,
)
from headway.data.records import Record, by_document
from headway.data.shard_cache import cached_shards
from headway.data.shards import Shards, digest, write_shards
from headway.data.splits import DataSplits
from headway.errors import UserError
from headway.recipe import Recipe

if TYPE_CHECKING:  # torch takes seconds to import, and what files hold is told before
    from headway.data.tokenizer import Tokenizer
    from headway.tasks.base import RecordTask, StreamTask, Task, TaskSetup

ENCODED_TOGETHER = 1000  # records
MEDIA_NUMBERS = 2**31  # what a row of images or sounds may hold: the bytes of a name, and how long a sound is
VALIDATION_BATCH = {"tokens": 8192, "images": 128, "frames": 16_384, "vectors": 8192}  # of a batch for validation
STREAM_ROWS = 32  # spans of a validation batch


PARTS = {"train": "training", "held": "validation", "test": "test"}


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
            with phase(f"encoding the {PARTS[part]} data", "rows") as progress:
                write_shards(folder, progress.counted(rows()), columns, vocab)

        return cached_shards(digest((), f"{self.key} {part}"), make, self.place)


@dataclass(frozen=True, eq=False)
class EncodedDataset:
    """Rows on disk.  `validation` and `test` are batches; `tokens` counts what an epoch reads, in `unit`s."""

    batches: Callable[[int, int], Batches]  # of a token budget and a number of batches for each update
    validation: Sequence[Any]
    tokens: int
    rows: int
    unit: str = "tokens"
    train: Shards | None = None  # the rows themselves, where they are learned one by one
    held: Shards | None = None  # those of validation
    test: Sequence[Any] = ()


def encoded_dataset(
    recipe: Recipe, setup: TaskSetup, splits: DataSplits, max_length: int, scratch: Path | None = None
) -> EncodedDataset:
    """The rows of the data on disk, as batches of training and of validation, in an order by the recipe's seed."""
    from headway.tasks.base import RecordTask, StreamTask

    task, data, seed = setup.task, recipe.data, recipe.seed
    shape = str((seed, splits.share, data.stratify, max_length))
    paths = (*data.path, *data.validation, *data.test) if setup.preprocess else ()
    places = [f"{path} {Path(path).absolute()}" for path in paths]  # rows of images and sounds name their files
    key = digest((), splits.digest, repr(task), *tokenizer_texts(setup), shape, *places)
    cache = ShardCache(key, scratch)
    if isinstance(task, StreamTask):
        return encode_stream(task, splits, seed, task.stride(max_length), cache)
    assert isinstance(task, RecordTask)
    known = [one.vocab for one in (setup.tokenizer, setup.target_tokenizer) if one]
    vocab = MEDIA_NUMBERS if setup.preprocess else max([setup.classes + 1, task.max_id + 1, *known])
    return encode_records(task, splits, seed, vocab, cache)


def tokenizer_texts(setup: TaskSetup) -> list[str]:
    """The tokenizers, to be hashed."""
    found: tuple[Tokenizer | None, ...] = (setup.tokenizer, setup.target_tokenizer)
    return [one.backend.to_str() for one in found if one]


def encode_records(task: RecordTask, splits: DataSplits, seed: int, vocab: int, cache: ShardCache) -> EncodedDataset:
    """Rows that are learned one by one, in batches of like length."""

    def stored(part: str, records: Callable[[], Iterator[Record]]) -> Shards:
        return cache.stored(part, lambda: encoded(task, records()), task.columns, vocab)

    def unlearned(rows: Shards) -> ValidationBatches:
        numbers = [] if len(rows) == 0 else Buckets(task.sizes(rows), VALIDATION_BATCH[task.unit], 0).epoch(0)
        return ValidationBatches(task.without_augmentation(), RowExamples(rows), numbers)

    train, held = stored("train", splits.train), stored("held", splits.validation)
    if len(train) == 0:
        raise UserError(f"{splits.name} has no records to train on", do="give more, or a smaller data.validation_split")
    lengths, mixture = task.sizes(train), mixture_of(splits, np.arange(len(train) + 1))

    def batches(tokens: int, accumulation: int) -> Batches:
        order = Buckets(lengths, tokens, seed, mixture=mixture)
        return Batches(task, RowExamples(train), Steps(order, accumulation), seed)

    test = () if splits.test is None else unlearned(stored("test", splits.test))
    sums = np.concatenate([[0], lengths.reshape(len(lengths), -1).sum(1).cumsum()])
    tokens_read = int(sums[-1]) if mixture is None else mixture.total(sums[[*mixture.ends]].tolist())
    return EncodedDataset(batches, unlearned(held), tokens_read, len(train), task.unit, train, held, test)


def encode_stream(task: StreamTask, splits: DataSplits, seed: int, length: int, cache: ShardCache) -> EncodedDataset:
    """Spans of one long stream of documents, or of a series."""

    def stored(part: str, records: Callable[[], Iterator[Record]]) -> Shards:
        return cache.stored(part, partial(documents, task, records), task.columns, task.vocab)

    train, held = stored("train", splits.train), stored("held", splits.validation)
    total = len(train.stream())
    cut = total - round(total * splits.tail)  # training reads the stream up to here
    if cut <= length:
        said = f"{splits.name} has {cut} {task.unit} to learn from, which are no row of {length} + 1"
        smaller = f", or a smaller data.max_length, such as {max(2, cut // 4)}" if cut > 2 else ""
        raise UserError(said, do=f"give more {task.unit}{smaller}")
    examples = HistoryExamples(train, length) if task.has_history else SpanExamples(train, length)
    rows = cut if task.has_history else len(train)
    mixture = mixture_of(splits, np.minimum(cut, np.concatenate([[0], train.lengths(0).cumsum()])))
    read = cut if mixture is None else mixture.total(mixture.ends)

    def unlearned(rows: Shards, first: int) -> ValidationBatches:
        """The stream from `first` on."""
        if task.has_history:  # every row that is held out is predicted, after as many before it as in training
            known = min(length, first - 1) if first else 0
            start, size = max(0, first - 1 - known), VALIDATION_BATCH[task.unit]
            count = len(rows.stream()) - start - known - 1  # rows that are predicted
            numbers = [np.array([at]) for at in range(0, count, size)]
            found = HistoryExamples(rows, known + size, start, known)
        else:
            size = len(rows.stream()) - first
            width = min(length, size - 1)  # little text is measured in one piece
            starts = spans(size, width) if width > 0 else np.empty(0, int)
            numbers = [starts[at : at + STREAM_ROWS] for at in range(0, len(starts), STREAM_ROWS)]
            found = SpanExamples(rows, width, first)
        return ValidationBatches(task.without_augmentation(), found, numbers)

    def batches(tokens: int, accumulation: int) -> Batches:
        windows = StreamWindows(cut, length, max(1, tokens // length), seed, mixture)
        return Batches(task, examples, Steps(windows, accumulation), seed)

    validation = unlearned(train, cut) if splits.tail else unlearned(held, 0)
    test = () if splits.test is None else unlearned(stored("test", splits.test), 0)
    return EncodedDataset(batches, validation, read, rows, task.unit, test=test)


def mixture_of(splits: DataSplits, ends: np.ndarray) -> DataMixture | None:
    """What weights make of the rows of training, one for each record or document; `ends` is where the first n end."""
    weighted = splits.weighted
    if weighted is None:
        return None
    firsts = (record for record in splits.train() if not record.goes_on)
    runs = [(number, sum(1 for _ in records)) for number, records in groupby(firsts, weighted.number)]
    counts = np.cumsum([count for _, count in runs])
    return DataMixture(tuple(ends[counts].tolist()), tuple(weighted.weights[number] for number, _ in runs))


def encoded(task: RecordTask, records: Iterator[Record]) -> Iterator[list[list[int]]]:
    for some in batched(records, ENCODED_TOGETHER):
        try:
            rows = task.encode([record.handed for record in some])
        except UserError:  # one by one, to find the record
            rows = [row for record in some for row in encoded_record(task, record)]
        yield from rows


def encoded_record(task: RecordTask, record: Record) -> Sequence[list[list[int]]]:
    try:
        return task.encode([record.handed])
    except UserError as error:
        said = f"{record.file}:{record.line}: {error.said}"
        raise UserError(said, allowed=error.allowed, meant=error.meant, do=error.do) from None


def documents(task: StreamTask, records: Callable[[], Iterable[Record]]) -> Iterator[list[Iterable[int]]]:
    """Each document as one row."""
    return map(task.document, by_document(records()))


# ---- batches


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


class Batches:
    """`batches[step]` holds this `share` of the batches of a step, counted from 1: several with accumulation."""

    def __init__(self, task: Task, examples: Examples, steps: Steps, seed: int, share: StepShare = WHOLE):
        self.task, self.examples, self.steps, self.seed, self.share = task, examples, steps, seed, share

    def __getitem__(self, step: int) -> list[Any]:
        places = self.steps.at(step - 1)
        return [self.batch(place, places[self.share.number(at)]) for at, place in enumerate(self.share.of(places))]

    def batch(self, mine: BatchPosition, whole: BatchPosition) -> Any:
        random = random_for("batch", self.seed, whole.epoch, whole.batch, *self.share.key)
        if len(mine.rows) == 0:  # fewer rows than processes
            return UncountedBatch(self.task.collate(self.examples.rows(whole.rows[:1]), random))
        return self.task.collate(self.examples.rows(mine.rows), random)

    def of(self, share: StepShare) -> Batches:
        """Those of one of several processes."""
        return Batches(self.task, self.examples, self.steps, self.seed, share)

    def between(self, first: int, last: int, workers: int = 0) -> Iterator[list[Any]]:
        """The batches of steps `first` to `last` (exclusive), prefetched by a number of worker processes."""
        if workers == 0:
            return (self[step] for step in range(first, last))
        from torch.utils.data import DataLoader, Dataset

        from headway.training.interruption import deaf

        rows, steps = cast("Dataset[list[Any]]", self), range(first, last)  # of which it calls __getitem__ alone
        return iter(
            DataLoader(rows, None, sampler=steps, num_workers=workers, worker_init_fn=deaf, collate_fn=unchanged)
        )


def unchanged(batches: list[Any]) -> list[Any]:
    return batches


@dataclass(frozen=True, eq=False)
class ValidationBatches(Sequence[Any]):
    """Validation batches, one for each list of indices, with fixed random numbers.

    They are made on access: all of them together may not fit into memory.
    """

    task: Task
    examples: Examples
    numbers: Sequence[np.ndarray]

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, at: Any) -> Any:
        return self.task.collate(self.examples.rows(self.numbers[at]), random_for("validation", at))
