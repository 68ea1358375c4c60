"""Regression: a number for a sample, whatever a sample is.

The model's one output is a number in standard deviations from the mean of the training data; both stand in config.json
as target_mean and target_std.  A model of another library has neither, so that its output is the number itself.

Axes:  B batch
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from headway.data.records import Record, as_number
from headway.data.splits import DataSplits
from headway.errors import UserError
from headway.metrics.scores import Scores
from headway.metrics.structured import score_numbers
from headway.nn.head import Classifier
from headway.tasks.base import VALIDATION_CLASSES, RecordTask
from headway.tasks.model_parts import (
    PROBLEM,
    REGRESSION,
    TARGET_MEAN,
    TARGET_STD,
    ModelParts,
    labels_of,
    named_classes,
    problem_of,
)
from headway.tasks.results import CollectedAnswers, Prediction, Sample
from headway.tasks.tracing import NumericOutcome


@dataclass(frozen=True)
class NumberPrediction(Prediction):
    """A number for a sample."""

    output: float

    def to_dict(self) -> dict[str, Any]:
        return {"input": self.input, "output": self.output}

    def to_text(self) -> str:
        return f"{self.output:.6g}"


class NumberTargets(Protocol):
    """A batch with the numbers that are right, B, in standard deviations from the mean."""

    @property
    def wanted(self) -> Tensor: ...

    def numbers(self, model: nn.Module) -> Tensor:
        """What a model says, B, in the same unit."""
        ...


class Regression(RecordTask):
    """Predict a number, by the square of its error in standard deviations."""

    graded = False
    validation_records = VALIDATION_CLASSES
    max_id = 255  # a number is kept as the eight bytes of a double

    mean: float
    std: float

    @classmethod
    def scale(cls, splits: DataSplits, start: ModelParts | None) -> tuple[float, float]:
        """The mean and the standard deviation of the training data, or those that a model to start from knows."""
        numbers = np.array([float(record.fields[1]) for record in splits.train()])
        if len(numbers) == 0 or numbers.min() == numbers.max():
            said = f"every number in {splits.name} is {numbers[0]:g}" if len(numbers) else f"{splits.name} is empty"
            raise UserError(said, do="give data with different numbers")
        before = cls.from_model(start) if start is not None else None
        return (before.mean, before.std) if before else (float(numbers.mean()), float(numbers.std()))

    def extra_config(self) -> Mapping[str, Any]:
        names = named_classes(["number"])
        return {**names, PROBLEM: REGRESSION, TARGET_MEAN: self.mean, TARGET_STD: self.std}

    def check(self, records: Sequence[Record]) -> None:
        for record in records:
            if as_number(record.fields[1]) is None:
                said = f"{record.file}:{record.line}: {record.fields[1][:40]!r} is no number"
                raise UserError(said, do=f"give a number for each {self.target}")

    # ---- learning

    def scaled(self, columns: Sequence[np.ndarray]) -> Tensor:
        """Numbers that rows keep as bytes, B, as a model is to say them."""
        numbers = np.concatenate(columns).astype(np.uint8).view(np.float64)
        return torch.from_numpy((numbers - self.mean) / self.std).to(torch.get_default_dtype())

    def loss(self, model: nn.Module, batch: NumberTargets) -> Tensor:
        return (batch.numbers(model).float() - batch.wanted.float()).square().sum()

    # ---- use

    def unscaled(self, said: Tensor) -> list[float]:
        """What a model says, in the unit of the data."""
        return [self.mean + self.std * number for number in said.flatten().double().tolist()]

    def number_scores(self, answers: CollectedAnswers, lengths: Sequence[int] | None = None) -> Scores:
        found, wanted = (list(map(float, several)) for several in (answers.answers, answers.wanted))
        return score_numbers(found, wanted, lengths)

    def constants(self, numbers: Sequence[float], count: int) -> dict[str, list[float]]:
        """The answers of simple methods that know nothing of the inputs."""
        return {"mean": [math.fsum(numbers) / len(numbers)] * count, "median": [median(numbers)] * count}

    def outcome_reader(self) -> NumericOutcome:
        """The number of a sample, to be traced."""
        return NumericOutcome(lambda found: f"{self.unscaled(found)[0]:.6g}")


def scale_of(parts: ModelParts) -> tuple[float, float] | None:
    """The mean and the deviation of the numbers that a model says; None where it is not for regression."""
    labels = labels_of(parts, Classifier)
    if labels is None or len(labels) != 1 or problem_of(parts, 1) != REGRESSION:
        return None
    mean, std = (parts.extra_config.get(key, usual) for key, usual in ((TARGET_MEAN, 0.0), (TARGET_STD, 1.0)))
    for key, value in ((TARGET_MEAN, mean), (TARGET_STD, std)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise UserError(f"config.json: {key} is {value!r:.40}", allowed="a number")
    return float(mean), float(std)


def rounded(sample: Sample) -> Sample:
    """A sample as a report shows it."""
    return sample._replace(answer=f"{float(sample.answer):.6g}")


def number_bytes(number: str) -> list[int]:
    """The bytes of a double: files of rows hold whole numbers."""
    return np.array([float(number)]).view(np.uint8).tolist()
