"""Regression of texts: a number for a text, or for two that are read together, such as how similar they are.

Axes:  B batch
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from headway.data.records import Record
from headway.data.splits import DataSplits
from headway.data.tokenizer import Tokenizer
from headway.metrics.baselines import line_through, mean_of_words
from headway.metrics.scores import Scores
from headway.recipe import Recipe
from headway.tasks.base import TaskSetup
from headway.tasks.batches import PackedBatch, Row, TextBatch
from headway.tasks.generation import GREEDY_OPTIONS, GenerationOptions
from headway.tasks.model_parts import ModelParts, is_foreign, reads_media, required_tokenizer
from headway.tasks.regression import NumberPrediction, Regression, number_bytes, rounded, scale_of
from headway.tasks.results import CollectedAnswers, Sample
from headway.tasks.text_classification import TextClassification, TextLabelTask
from headway.tasks.text_pairs import ReadsPairs, overlap
from headway.tasks.text_rows import TextRows
from headway.tasks.text_tasks import MAX_LENGTH, Framing, context_for, given, one_tokenizer
from headway.tasks.tracing import TracedRun, TraceOptions


@dataclass(frozen=True, eq=False)
class TextNumberBatch(TextBatch):
    read: PackedBatch
    wanted: Tensor  # B, in standard deviations from the mean

    def numbers(self, model: nn.Module) -> Tensor:
        return self.read.output(model)[..., 0]


@dataclass(frozen=True, eq=False)
class TextRegression(Regression, TextRows):
    """Predict the number of a text, which is cut to `max_length` tokens."""

    name = "text-regression"
    does = "says a number for a text"
    target = "text"
    architectures = TextClassification.architectures
    presets_by_size = TextClassification.presets_by_size
    max_epochs = TextClassification.max_epochs
    min_vocab = TextClassification.min_vocab

    tokenizer: Tokenizer
    mean: float = 0.0
    std: float = 1.0
    max_length: int = MAX_LENGTH
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    may_read_pairs: bool = False

    @classmethod
    def from_data(cls, splits: DataSplits, recipe: Recipe, start: ModelParts | None) -> TaskSetup:
        mean, std = cls.scale(splits, start)
        tokenizer, chosen = one_tokenizer(
            recipe, splits, start, "wordpiece", Framing(bos=True, eos=True), cls.min_vocab
        )
        longest = given(recipe.data.max_length, MAX_LENGTH)
        task, chosen = cls(tokenizer, mean, std, longest), {**chosen, "data.max_length": longest}
        return TaskSetup(task, tokenizer, tokenizer, chosen, 1, head="rows")

    @classmethod
    def from_model(cls, parts: ModelParts) -> Self | None:
        scale = scale_of(parts)
        if scale is None or reads_media(parts):
            return None
        tokenizer, longest, foreign = required_tokenizer(parts), context_for(parts), is_foreign(parts)
        return cls(tokenizer, *scale, longest, parts.extra_config, foreign)

    # ---- learning

    def encode(self, fields: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        return self.targeted([text for text, _ in fields], [number_bytes(number) for _, number in fields])

    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> TextNumberBatch:
        return TextNumberBatch(self.packed(rows), self.scaled([row[1] for row in rows]))

    # ---- use

    def said(self, model: nn.Module, read: PackedBatch) -> list[float]:
        """Numbers in the unit of the data."""
        return self.unscaled(read.output(model)[..., 0])

    def answers_of(self, model: nn.Module, records: Sequence[Record]) -> list[str]:
        self.check(records)
        rows = self.input_rows([record.fields[0] for record in records])
        return list(map(repr, self.said(model, PackedBatch.of_texts(model, rows, self.tokenizer))))

    def scores(self, answers: CollectedAnswers) -> Scores:
        return replace(self.number_scores(answers, answers.words), unit="words")

    def shown(self, sample: Sample) -> Sample:
        return rounded(sample)

    def simple_answers(self, train: Sequence[Sequence[str]], samples: Sequence[Sample]) -> dict[str, list[str]]:
        texts, numbers = [text for text, _ in train], [float(number) for _, number in train]
        asked = [one.source for one in samples]
        found = {**self.constants(numbers, len(samples)), **self.counted_answers(texts, numbers, asked)}
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
        return self.traced_row(model, input, options, self.outcome_reader())


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
