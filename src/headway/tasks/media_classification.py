"""Classification of media: one of several classes for an image, a sound, a series or a set.

Axes:  B batch   K classes   R rows
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from headway.data.order import batched
from headway.data.records import Record
from headway.data.splits import DataSplits, subsample
from headway.data.transforms.compose import CutMix, Mixing, Mixup, OneOf, soft_targets
from headway.distributed.sharing import shared
from headway.metrics.baselines import most_frequent, nearest_mean
from headway.metrics.intervals import Share
from headway.metrics.scores import Scores
from headway.metrics.scoring import score_classes
from headway.nn.head import Classifier
from headway.recipe import Recipe
from headway.tasks.base import TaskSetup
from headway.tasks.batches import Batch, ClassPrediction, Row
from headway.tasks.distillation import PredictsTargets
from headway.tasks.generation import GREEDY_OPTIONS, GenerationOptions
from headway.tasks.inputs import Input, ModelInput
from headway.tasks.media_samples import (
    ANSWERED_TOGETHER,
    BASELINE_SAMPLES,
    PREDICTED_TOGETHER,
    ReadsImages,
    ReadsSeries,
    ReadsSounds,
    ReadsVectors,
    SampleTask,
)
from headway.tasks.media_tasks import batch_size, stored_sample
from headway.tasks.model_parts import REGRESSION, ModelParts, labels_of, problem_of
from headway.tasks.results import (
    DEFAULT_EVALUATION,
    BaselineData,
    BaselineResult,
    ClassProbabilities,
    CollectedAnswers,
    EvalOptions,
    EvalResult,
    Sample,
)
from headway.tasks.text_classification import Classification
from headway.tasks.text_tasks import given
from headway.tasks.tracing import TracedRun, TraceOptions

TOP = 5  # classes among which the right one may be
MIXINGS: dict[str, Mixing] = {"mixup": Mixup(), "cutmix": CutMix()}


@dataclass(frozen=True, eq=False)
class MediaBatch(Batch):
    read: ModelInput
    wanted: Tensor  # B
    shares: Tensor  # B K, of each class; they sum to one
    tokens: int

    def logits(self, model: nn.Module) -> Tensor:
        """B K"""
        return model(self.read.inputs, self.read.context)


@dataclass(frozen=True, eq=False)
class MediaClassification(Classification, SampleTask, PredictsTargets):
    """Predict the class of a sample; `mixing` makes images of two, and asks for the share of each."""

    mixings = MIXINGS

    input: Input
    labels: tuple[str, ...]
    label_smoothing: float = 0.0
    mixing: Mixing | None = None
    class_weights: tuple[float, ...] = ()

    # ---- from data, and from a model

    @classmethod
    def from_data(cls, splits: DataSplits, recipe: Recipe, start: ModelParts | None) -> TaskSetup:
        input, chosen, config = cls.input_setup(splits, recipe, start)
        labels, smoothing = cls.all_labels(recipe, splits), given(recipe.train.label_smoothing, 0.0)
        mixings = tuple(mixing for name, mixing in MIXINGS.items() if name in chosen.get("data.augment", ()))
        weights = cls.weights(recipe, splits, labels)
        task = cls(input, labels, smoothing, OneOf(mixings) if mixings else None, weights)
        chosen = {**chosen, "train.label_smoothing": smoothing}
        chosen |= {"train.class_weights": recipe.train.class_weights} if weights else {}
        return TaskSetup(task, None, None, chosen, len(labels), config, cls.head, input.preprocess)

    @classmethod
    def from_model(cls, parts: ModelParts) -> Self | None:
        labels = labels_of(parts, Classifier)
        if labels is None or problem_of(parts, len(labels)) == REGRESSION:
            return None
        found = cls.input_from(parts)
        return None if found is None else cls(found, labels)

    # ---- learning

    def encode(self, fields: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        return [[*stored_sample(self.input, *sample), [self.class_index(label)]] for *sample, label in fields]

    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> MediaBatch:
        read = self.loaded(rows, random)
        wanted = torch.tensor([int(row[2][0]) for row in rows])
        shares = soft_targets(wanted, len(self.labels), self.label_smoothing)
        if self.mixing is not None:
            inputs, shares = self.mixing(read.inputs, shares, random)
            read = ModelInput(inputs, read.context)
        return MediaBatch(read, wanted, shares, batch_size(rows))

    @property
    def input_encoding(self) -> Mapping[str, object]:
        return {"preprocessing": self.input.preprocess}

    def predicted(self, model: nn.Module, batch: MediaBatch) -> ClassPrediction:
        return ClassPrediction(batch.logits(model), batch.shares, self.class_weights)

    def without_augmentation(self) -> Self:
        return replace(
            self, input=self.input.without_augmentation(), label_smoothing=0.0, mixing=None, class_weights=()
        )

    # ---- use

    @torch.inference_mode()
    def predict(
        self, model: nn.Module, inputs: Sequence[str], options: GenerationOptions = GREEDY_OPTIONS
    ) -> Iterator[ClassProbabilities]:
        for some in batched(inputs, PREDICTED_TOGETHER):
            for one, row in zip(some, model(*self.read(model, some)).softmax(-1), strict=True):  # K
                yield ranked_classes(one, self.labels, row)

    @torch.inference_mode()
    def evaluate(
        self, model: nn.Module, records: Iterable[Record], options: EvalOptions = DEFAULT_EVALUATION
    ) -> EvalResult:
        """Accuracy, also among the likeliest few where there are more classes than these."""
        answers, inside = CollectedAnswers(), list[bool]()

        def likeliest(some: Sequence[Record]) -> list[list[int]]:
            self.check(some)
            logits = self.batch(model, some).logits(model)
            return logits.topk(min(TOP, logits.shape[-1])).indices.tolist()

        for some, found in shared(likeliest, batched(records, ANSWERED_TOGETHER)):
            for record, best in zip(some, found, strict=True):
                names, right = [self.labels[pick] for pick in best], record.fields[1]
                answers.add([Sample(record.name, names[0], right)])
                inside.append(right in names)
        scores = self.scores(answers.answers, answers.wanted)
        if len(self.labels) > TOP:
            top = Share(np.array(inside))
            numbers, statistics = {**scores.numbers, "top5": top.value()}, {**scores.statistics, "top5": top}
            scores = replace(scores, numbers=numbers, statistics=statistics)
        return EvalResult(scores, answers.samples)

    def scores(self, answers: Sequence[str], wanted: Sequence[str]) -> Scores:
        return replace(score_classes(answers, wanted), things=self.things)

    def baselines(self, model: nn.Module, data: BaselineData, found: EvalResult) -> Iterator[BaselineResult]:
        train = subsample(data.train, BASELINE_SAMPLES)
        labels, wanted = ([record.fields[1] for record in some] for some in (train, data.validation))
        yield BaselineResult("majority class", self.scores([most_frequent(labels)] * len(wanted), wanted))
        known, asked = self.vectors(train), batched(data.validation, BASELINE_SAMPLES)  # of a test there may be many
        nearest = [one for some in asked for one in nearest_mean(known, labels, self.vectors(some))]
        yield BaselineResult("nearest class mean", self.scores(nearest, wanted))

    def trace(self, model: nn.Module, input: str, options: TraceOptions) -> TracedRun:
        shown = self.shown(model, input)
        return shown.run(model, lambda: model(*shown.read), self.class_choices())


class ImageClassification(ReadsImages, MediaClassification):
    """Predict the class of an image."""

    name = "image-classification"
    does = "names the class of an image"


class SoundClassification(ReadsSounds, MediaClassification):
    """Predict the class of a sound."""

    name = "sound-classification"
    does = "names the class of a sound"


@dataclass(frozen=True, eq=False)
class SeriesClassification(ReadsSeries, MediaClassification):
    """Predict the class of vectors in an order; rows of a table have `column_names`, and as many numbers."""

    name = "series-classification"
    does = "names the class of a series"


class SetClassification(ReadsVectors, MediaClassification):
    """Predict the class of vectors in no order."""

    name = "set-classification"
    does = "names the class of a set"
    order = "set"


def ranked_classes(input: str, labels: Sequence[str], probabilities: Tensor) -> ClassProbabilities:
    """Classes by their probabilities (K), the likeliest first."""
    order: list[int] = probabilities.argsort(descending=True).tolist()
    return ClassProbabilities(input, labels[order[0]], {labels[at]: probabilities[at].item() for at in order})
