"""Regression of media: a number for an image, a sound or a series.

Axes:  B batch
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from headway.data.order import batched
from headway.data.records import Record
from headway.data.splits import DataSplits, subsample
from headway.distributed.sharing import shared
from headway.metrics.baselines import mean_of_nearest
from headway.metrics.scores import Scores
from headway.recipe import Recipe
from headway.tasks.base import TaskSetup
from headway.tasks.batches import Batch, Row
from headway.tasks.generation import GREEDY_OPTIONS, GenerationOptions
from headway.tasks.inputs import Input, ModelInput
from headway.tasks.media_samples import (
    ANSWERED_TOGETHER,
    BASELINE_SAMPLES,
    PREDICTED_TOGETHER,
    ReadsImages,
    ReadsSeries,
    ReadsSounds,
    SampleTask,
)
from headway.tasks.media_tasks import batch_size, stored_sample
from headway.tasks.model_parts import ModelParts
from headway.tasks.regression import NumberPrediction, Regression, number_bytes, rounded, scale_of
from headway.tasks.results import (
    DEFAULT_EVALUATION,
    BaselineData,
    BaselineResult,
    CollectedAnswers,
    EvalOptions,
    EvalResult,
    Sample,
)
from headway.tasks.tracing import TracedRun, TraceOptions

NEIGHBOURS = 5  # samples whose numbers are averaged


@dataclass(frozen=True, eq=False)
class MediaNumberBatch(Batch):
    read: ModelInput
    wanted: Tensor  # B, in standard deviations from the mean
    tokens: int

    def numbers(self, model: nn.Module) -> Tensor:
        return model(*self.read)[..., 0]


@dataclass(frozen=True, eq=False)
class MediaRegression(Regression, SampleTask):
    """Predict the number of a sample."""

    input: Input
    mean: float = 0.0
    std: float = 1.0

    @classmethod
    def from_data(cls, splits: DataSplits, recipe: Recipe, start: ModelParts | None) -> TaskSetup:
        mean, std = cls.scale(splits, start)
        input, chosen, config = cls.input_setup(splits, recipe, start)
        return TaskSetup(cls(input, mean, std), None, None, chosen, 1, config, cls.head, input.preprocess)

    @classmethod
    def from_model(cls, parts: ModelParts) -> Self | None:
        scale = scale_of(parts)
        found = None if scale is None else cls.input_from(parts)
        return None if scale is None or found is None else cls(found, *scale)

    # ---- learning

    def encode(self, fields: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        return [[*stored_sample(self.input, *sample), number_bytes(number)] for *sample, number in fields]

    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> MediaNumberBatch:
        return MediaNumberBatch(self.loaded(rows, random), self.scaled([row[2] for row in rows]), batch_size(rows))

    # ---- use

    @torch.inference_mode()
    def predict(
        self, model: nn.Module, inputs: Sequence[str], options: GenerationOptions = GREEDY_OPTIONS
    ) -> Iterator[NumberPrediction]:
        for some in batched(inputs, PREDICTED_TOGETHER):
            numbers = self.unscaled(model(*self.read(model, some))[..., 0])
            yield from map(NumberPrediction, some, numbers)

    @torch.inference_mode()
    def evaluate(
        self, model: nn.Module, records: Iterable[Record], options: EvalOptions = DEFAULT_EVALUATION
    ) -> EvalResult:
        answers = CollectedAnswers()
        for some, found in shared(partial(self.answers_of, model), batched(records, ANSWERED_TOGETHER)):
            pairs = zip(some, found, strict=True)
            answers.add(Sample(record.name, answer, record.fields[1]) for record, answer in pairs)
        return EvalResult(self.scores(answers), list(map(rounded, answers.samples)))

    def answers_of(self, model: nn.Module, records: Sequence[Record]) -> list[str]:
        """What a model says of records, as their second field says it."""
        self.check(records)
        return list(map(repr, self.unscaled(self.batch(model, records).numbers(model))))

    def scores(self, answers: CollectedAnswers) -> Scores:
        return replace(self.number_scores(answers), things=self.things)

    def baselines(self, model: nn.Module, data: BaselineData, found: EvalResult) -> Iterator[BaselineResult]:
        train = subsample(data.train, BASELINE_SAMPLES)
        numbers, known = [float(record.fields[1]) for record in train], self.vectors(train)
        asked = batched(data.validation, BASELINE_SAMPLES)  # of a test there may be many
        near = [one for some in asked for one in mean_of_nearest(known, numbers, self.vectors(some), NEIGHBOURS)]
        simple = self.constants(numbers, len(near)) | {f"mean of the {NEIGHBOURS} nearest": near}
        for name, several in simple.items():
            answers = CollectedAnswers()
            pairs = zip(data.validation, map(repr, several), strict=True)
            answers.add(Sample(record.name, answer, record.fields[1]) for record, answer in pairs)
            yield BaselineResult(name, self.scores(answers))

    def trace(self, model: nn.Module, input: str, options: TraceOptions) -> TracedRun:
        shown = self.shown(model, input)
        return shown.run(model, lambda: model(*shown.read), self.outcome_reader())


class ImageRegression(ReadsImages, MediaRegression):
    """Predict the number of an image."""

    name = "image-regression"
    does = "says a number for an image"


class SoundRegression(ReadsSounds, MediaRegression):
    """Predict the number of a sound."""

    name = "sound-regression"
    does = "says a number for a sound"


@dataclass(frozen=True, eq=False)
class SeriesRegression(ReadsSeries, MediaRegression):
    """Predict the number of vectors in an order; rows of a table have `column_names`, and as many numbers."""

    name = "series-regression"
    does = "says a number for a series"
