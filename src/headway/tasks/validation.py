"""How a model in training is validated: by its loss, and by answers to held-out records.  Each task has one way."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import torch
from torch import nn

from headway.data.sources import Record
from headway.metrics.scores import Scores
from headway.tasks.base import Task
from headway.tasks.results import EvalResult

VALIDATION_ANSWERS = 200  # held-out records that are answered at each evaluation of a run
VALIDATION_CLASSES = 2000  # where an answer is a class, which takes no longer than the loss


class ValidatedByAnswers(Task):
    """Answers to `validation_records` of the held-out records decide, beside the loss."""

    validation_records: ClassVar[int] = VALIDATION_ANSWERS

    def validate(self, model: nn.Module, batches: Sequence[Any], records: Iterable[Record]) -> EvalResult:
        loss = validation_loss(self, model, batches)
        if not math.isfinite(loss):  # a model that has diverged answers nothing
            return EvalResult(Scores({"loss": loss}, 0, "targets"))
        found = self.without_augmentation().evaluate(model, records)
        return EvalResult(found.scores, found.samples, found.notes, found.extra, loss)


class ValidatedByLoss(Task):
    """The loss alone decides."""

    def validate(self, model: nn.Module, batches: Sequence[Any], records: Iterable[Record]) -> EvalResult:
        loss = validation_loss(self, model, batches)
        return EvalResult(Scores({"loss": loss}, sum(batch.targets for batch in batches), "targets"))


class ValidatedByPerplexity(Task):
    """The loss of a token decides; its exponential stands beside it."""

    def validate(self, model: nn.Module, batches: Sequence[Any], records: Iterable[Record]) -> EvalResult:
        loss = validation_loss(self, model, batches)
        count = sum(batch.targets for batch in batches)
        return EvalResult(Scores({"loss": loss, "perplexity": math.exp(min(loss, 700.0))}, count, "tokens"))


@torch.inference_mode()
def validation_loss(task: Task, model: nn.Module, batches: Sequence[Any]) -> float:
    """The loss of a target over validation batches."""
    task = task.without_augmentation()
    total = sum(task.loss(model, batch).item() for batch in batches)
    return total / max(1, sum(batch.targets for batch in batches))
