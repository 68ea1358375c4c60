"""Regression: a number for a text, or for two that are read together, such as how similar they are.

The model's one output is a number in standard deviations from the mean of the training data; both stand in config.json
as target_mean and target_std.  A model of another library has neither, so that its output is the number itself.

Axes:  B batch
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from headway.data.records import Record
from headway.data.splits import DataSplits
from headway.data.table import as_number
from headway.data.tokenizer import Tokenizer
from headway.errors import UserError
from headway.metrics.baselines import line_through, mean_of_words
from headway.metrics.scores import Scores
from headway.metrics.structured import score_numbers
from headway.nn.head import Classifier
from headway.recipe import Recipe
from headway.tasks.base import VALIDATION_CLASSES, TaskSetup
from headway.tasks.batches import PackedBatch, Row, TextBatch
from headway.tasks.generation import GREEDY_OPTIONS, GenerationOptions
from headway.tasks.model_parts import (
    PROBLEM,
    REGRESSION,
    TARGET_MEAN,
    TARGET_STD,
    ModelParts,
    is_foreign,
    labels_of,
    named_classes,
    problem_of,
    reads_media,
    required_tokenizer,
)
from headway.tasks.results import CollectedAnswers, Prediction, Sample
from headway.tasks.text_classification import TextClassification, TextLabelTask
from headway.tasks.text_pairs import ReadsPairs, overlap
from headway.tasks.text_rows import TextRows
from headway.tasks.text_tasks import MAX_LENGTH, Framing, context_for, given, one_tokenizer
from headway.tasks.tracing import NumericOutcome, TracedRun, TraceOptions


@dataclass(frozen=True)
class NumberPrediction(Prediction):
    """A number for a text."""

    output: float

    def to_dict(self) -> dict[str, Any]:
        return {"input": self.input, "output": self.output}

    def to_text(self) -> str:
        return f"{self.output:.6g}"


@dataclass(frozen=True, eq=False)
class NumberBatch(TextBatch):
    read: PackedBatch
    wanted: Tensor  # B, in standard deviations from the mean

    def numbers(self, model: nn.Module) -> Tensor:
        """What a model says, B, in the same unit."""
        return self.read.output(model)[..., 0]


@dataclass(frozen=True, eq=False)
class TextRegression(TextRows):
    """Predict the number of a text, which is cut to `max_length` tokens."""

    name = "text-regression"
    does = "says a number for a text"
    target = "text"
    architectures = TextClassification.architectures
    presets_by_size = TextClassification.presets_by_size
    max_epochs = TextClassification.max_epochs
    graded = False
    validation_records = VALIDATION_CLASSES
    max_id = 255  # a number is kept as the eight bytes of a double
    min_vocab = TextClassification.min_vocab

    tokenizer: Tokenizer
    mean: float = 0.0
    std: float = 1.0
    max_length: int = MAX_LENGTH
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    may_read_pairs: bool = False

    @classmethod
    def from_data(cls, splits: DataSplits, recipe: Recipe, start: ModelParts | None) -> TaskSetup:
        numbers = np.array([float(record.fields[1]) for record in splits.train()])
        if len(numbers) == 0 or numbers.min() == numbers.max():
            said = f"every number in {splits.name} is {numbers[0]:g}" if len(numbers) else f"{splits.name} is empty"
            raise UserError(said, do="give data with different numbers")
        tokenizer, chosen = one_tokenizer(
            recipe, splits, start, "wordpiece", Framing(bos=True, eos=True), cls.min_vocab
        )
        longest = given(recipe.data.max_length, MAX_LENGTH)
        before = cls.from_model(start) if start is not None else None
        mean, std = (before.mean, before.std) if before else (float(numbers.mean()), float(numbers.std()))
        return TaskSetup(
            cls(tokenizer, mean, std, longest),
            tokenizer,
            tokenizer,
            {**chosen, "data.max_length": longest},
            1,
            head="rows",
        )

    @classmethod
    def from_model(cls, parts: ModelParts) -> Self | None:
        labels = labels_of(parts, Classifier)
        if labels is None or len(labels) != 1 or problem_of(parts, 1) != REGRESSION or reads_media(parts):
            return None
        mean, std = (parts.extra_config.get(key, usual) for key, usual in ((TARGET_MEAN, 0.0), (TARGET_STD, 1.0)))
        for key, value in ((TARGET_MEAN, mean), (TARGET_STD, std)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise UserError(f"config.json: {key} is {value!r:.40}", allowed="a number")
        tokenizer, longest, foreign = required_tokenizer(parts), context_for(parts), is_foreign(parts)
        return cls(tokenizer, float(mean), float(std), longest, parts.extra_config, foreign)

    def extra_config(self) -> Mapping[str, Any]:
        names = named_classes(["number"])
        return {**names, PROBLEM: REGRESSION, TARGET_MEAN: self.mean, TARGET_STD: self.std}

    # ---- learning

    def encode(self, fields: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        return self.targeted([text for text, _ in fields], [bytes_of(float(number)) for _, number in fields])

    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> NumberBatch:
        numbers = np.concatenate([row[1] for row in rows]).astype(np.uint8).view(np.float64)
        wanted = torch.from_numpy((numbers - self.mean) / self.std)
        return NumberBatch(self.packed(rows), wanted.to(torch.get_default_dtype()))

    def loss(self, model: nn.Module, batch: NumberBatch) -> Tensor:
        return (batch.numbers(model).float() - batch.wanted.float()).square().sum()

    # ---- use

    def said(self, model: nn.Module, read: PackedBatch) -> list[float]:
        """Numbers in the unit of the data."""
        return [self.mean + self.std * number for number in read.output(model)[..., 0].double().tolist()]

    def answers_of(self, model: nn.Module, records: Sequence[Record]) -> list[str]:
        for record in records:
            if as_number(record.fields[1]) is None:
                said = f"{record.file}:{record.line}: {record.fields[1][:40]!r} is no number"
                raise UserError(said, do="give a number for each text")
        rows = self.input_rows([record.fields[0] for record in records])
        return list(map(repr, self.said(model, PackedBatch.of_texts(model, rows, self.tokenizer))))

    def scores(self, answers: CollectedAnswers) -> Scores:
        found, wanted = (list(map(float, several)) for several in (answers.answers, answers.wanted))
        return replace(score_numbers(found, wanted, answers.words), unit="words")

    def shown(self, sample: Sample) -> Sample:
        return sample._replace(answer=f"{float(sample.answer):.6g}")

    def simple_answers(self, train: Sequence[Sequence[str]], samples: Sequence[Sample]) -> dict[str, list[str]]:
        texts, numbers = [text for text, _ in train], [float(number) for _, number in train]
        asked, count = [one.source for one in samples], len(samples)
        found = {
            "mean": [math.fsum(numbers) / len(numbers)] * count,
            "median": [median(numbers)] * count,
            **self.counted_answers(texts, numbers, asked),
        }
        return {name: list(map(repr, several)) for name, several in found.items()}

    def counted_answers(
        self, texts: Sequence[str], numbers: Sequence[float], asked: Sequence[str]
    ) -> dict[str, list[float]]:
        """A simple method that reads the inputs."""
        return {"mean number of the words": mean_of_words(texts, numbers, asked)}

    @torch.inference_mode()
    def predict(
        self, model: nn.Module, inputs: Sequence[str], options: GenerationOptions = GREEDY_OPTIONS
    ) -> Iterator[NumberPrediction]:
        rows = self.input_rows(inputs)
        numbers = self.said(model, PackedBatch.of_texts(model, rows, self.tokenizer))
        for text, row, number in zip(inputs, rows, numbers, strict=True):
            yield NumberPrediction(text, number, cut=row.cut)

    def trace(self, model: nn.Module, input: str, options: TraceOptions) -> TracedRun:
        def describe(found: Tensor) -> str:
            return f"{self.mean + self.std * float(found.flatten()[0]):.6g}"

        return self.traced_row(model, input, options, NumericOutcome(describe))


class TextPairRegression(ReadsPairs, TextRegression):
    """Predict the number of two texts, such as how similar they are."""

    name = "text-pair-regression"
    does = "says a number for two texts"
    target = "pair"
    architectures = TextLabelTask.architectures
    presets_by_size = TextLabelTask.presets_by_size

    def counted_answers(
        self, texts: Sequence[str], numbers: Sequence[float], asked: Sequence[str]
    ) -> dict[str, list[float]]:
        return {"overlap of words": line_through(list(map(overlap, texts)), numbers, list(map(overlap, asked)))}


def bytes_of(number: float) -> list[int]:
    """The bytes of a double: files of rows hold whole numbers."""
    return np.array([number]).view(np.uint8).tolist()
