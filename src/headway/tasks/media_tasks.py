"""Tasks on images, sounds and numbers: how their models read a sample, and how rows on disk keep where it is.

Axes:  B batch   C width
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.data.archives import MediaLocation
from headway.data.kinds import DataKind
from headway.data.order import batched
from headway.data.rng import random_for
from headway.data.transforms.compose import generators
from headway.nn.head import MeanPool
from headway.nn.trunk import encoder_of
from headway.tasks.base import GivesVectors, RecordTask, Row, Task, ids
from headway.tasks.inspection import ENCODED_TOGETHER, UNKNOWN_TOKENS, DataRow, EncoderInput
from headway.tasks.outcome import OutcomeReader, Vector
from headway.tasks.report_details import NextCommand, ReportDetails, TracedInput, example_of
from headway.tasks.tracing import TracedRun, TraceOptions
from headway.tasks.validation import ValidatedByLoss

if TYPE_CHECKING:
    from headway.data.shards import Shards
    from headway.data.sources import Record
    from headway.data.splits import DataSplits
    from headway.tasks.inputs import ImageInput, Input, ModelInput, ShownInput
    from headway.tasks.results import EvalResult, Sample


class MediaReader(Task):
    """A task whose models read images, sounds or numbers."""

    input: Input
    series_columns: Sequence[str | int] | None = None  # of a table, where a model knows its columns by name

    @property
    def takes_files(self) -> bool:
        return self.input.noun != "numbers"

    def sample_input(self, folder: Path, context: int | None) -> str:
        return self.input.sample(folder)

    def example(self, splits: DataSplits, samples: Sequence[Sample]) -> str:
        return example_of(samples) or next(splits.train()).name

    def read(self, inputs: Sequence[str]) -> ModelInput:
        """What a model is called with for some files, or texts of numbers."""
        return self.opened([self.locate(one) for one in inputs])

    def opened(self, stored: Sequence[str]) -> ModelInput:
        never = random_for("unused")
        plain = self.input.without_augmentation()
        return plain.collate([plain.load(one, never) for one in stored])

    @property
    def noun(self) -> str:
        return self.input.noun

    def locate(self, given: str) -> str:
        return self.input.locate(given, self.series_columns)

    def encoder_rows(self, model: nn.Module, inputs: Sequence[str]) -> Iterator[DataRow]:
        """Images have one size; others are read one at a time, without padding."""
        for at, one in enumerate(inputs):
            name = one if self.noun == "numbers" else MediaLocation.parsed(one).path.name
            yield DataRow((0 if self.noun == "images" else at,), UNKNOWN_TOKENS, one, name, at)

    def encoder_input(self, model: nn.Module, rows: Sequence[DataRow]) -> EncoderInput:
        return EncoderInput(*self.opened([one.row for one in rows]))

    @torch.inference_mode()
    def embed(self, model: nn.Module, inputs: Sequence[str]) -> Tensor:
        return self.pooled(model, self.read(inputs))

    def pooled(self, model: nn.Module, read: ModelInput) -> Tensor:
        """The mean of each sample's features, of length 1, B C."""
        encoder = encoder_of(model)
        features = encoder.features(*read)
        features = features.flatten(1, 2) if features.dim() == 4 else features
        return F.normalize(MeanPool()(features, encoder.inner(read.context)), dim=-1)

    def shown(self, model: nn.Module, given: str) -> ShownInput:
        """One sample, opened to be traced."""
        stored = self.locate(given)
        return self.input.shown(model, given, stored, self.opened([stored]))

    def traced_vector(self, model: nn.Module, given: str) -> TracedRun:
        """A vector for all of a sample."""
        shown = self.shown(model, given)
        return shown.traced(TracedRun(model, lambda: self.pooled(model, shown.read)[0], Vector(), shown.axes))

    def traced_call(self, model: nn.Module, given: str, reader: OutcomeReader) -> TracedRun:
        """What the model gives for all of a sample."""
        shown = self.shown(model, given)
        return shown.traced(TracedRun(model, lambda: model(*shown.read), reader, shown.axes))


class MediaTask(MediaReader, RecordTask):
    """A task on samples.  The first columns of its rows are those of `StoredSample`."""

    @property
    def unit(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.input.unit

    def sizes(self, rows: Shards) -> np.ndarray:
        return rows.stream(1)[:]

    def loaded(self, rows: Sequence[Row], random: np.random.Generator) -> ModelInput:
        """The samples of some rows, each augmented by random numbers of its own."""
        samples = zip(rows, generators(random, len(rows)), strict=True)
        return self.input.collate([self.input.load(stored_text(row[0]), draw) for row, draw in samples])

    def loss_rows(self, model: nn.Module, records: Iterable[Record]) -> Iterator[DataRow]:
        """Rows whose files are opened later: their sizes are known."""
        for part in batched(records, ENCODED_TOGETHER):
            self.check(part)
            for record, row in zip(part, self.encode([record.handed[:3] for record in part]), strict=True):
                size, text = row[1][0], self.text_length(row)
                tokens = self.input.tokens(model, size) or UNKNOWN_TOKENS
                yield DataRow((size, text), tokens + text, tuple(map(ids, row)), self.row_name(record))

    def text_length(self, row: list[list[int]]) -> int:
        """Tokens of a row that stand for a text about its sample, and must be as many in all rows of a batch."""
        return 0

    def row_name(self, record: Record) -> str:
        """What a person knows a sample by."""
        return record.name if record.place is None else Path(record.name).name

    def without_augmentation(self) -> Self:
        return replace(self, input=self.input.without_augmentation())  # pyright: ignore[reportArgumentType, reportCallIssue]


class StoredSample(NamedTuple):
    """The columns of a row in which a sample is kept on disk."""

    text: list[int]  # its bytes
    size: list[int]


def stored_sample(input: Input, stored: str, *extent: str) -> StoredSample:
    numbers = [int(number) for part in extent for number in part.split()]
    return StoredSample(list(stored.encode()), [input.size(stored, numbers)])


def stored_text(column: np.ndarray) -> str:
    """The text of which a row keeps the bytes."""
    return bytes(np.asarray(column, np.uint8)).decode()


def batch_size(rows: Sequence[Row]) -> int:
    """What the samples of some rows count for in a batch."""
    return sum(int(row[1][0]) for row in rows)


class ImagesAlone(GivesVectors, ValidatedByLoss, MediaTask):
    """A task on images without labels: their encoder is what is learned, and a vector is all that it answers."""

    kind = "images"
    data_kind = DataKind.IMAGES
    target = "image"
    needs_labels = False

    input: ImageInput  # pyright: ignore[reportIncompatibleVariableOverride]

    def encode(self, fields: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        return [[*stored_sample(self.input, place, extent)] for place, extent, *_ in fields]

    def has_loss(self, model: nn.Module, described: bool) -> bool:
        return False

    def trace(self, model: nn.Module, input: str, options: TraceOptions) -> TracedRun:
        return self.traced_vector(model, input)

    def report_details(
        self, model: nn.Module, batches: Sequence[Any], records: Sequence[Record], found: EvalResult
    ) -> ReportDetails:
        """Some images to trace."""
        traced = [TracedInput(record.name, record.name) for record in records]
        return ReportDetails(replace(found.scores, things="images"), traced=traced)

    @classmethod
    def next_commands(cls, folder: str, example: str) -> list[NextCommand]:
        """A linear probe says what its encoder is good for."""
        probe = f"headway train DATA --from {folder} --freeze encoder"
        return [
            NextCommand(f"headway run {folder} {example}", "use the model"),
            NextCommand(probe, "train a linear classifier on its features"),
        ]
