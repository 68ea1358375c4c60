"""Learning from a teacher: a model in training is to give the probabilities that another one gives.

Distilling the knowledge in a neural network (Hinton, Vinyals and Dean, 2015).  With the logits z of the model, v of its
teacher and a temperature T, the loss of a target is

    (1 − α) · CE(z) + α · T² · KL(softmax(v / T) ‖ softmax(z / T))

T² keeps the gradient of the second term as large as that of the first, whatever T is.  The teacher reads the same batch
as the model, augmented as it is, without dropout and without a gradient.

Axes:  M targets   C width   V words or classes
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from headway.ops.losses import distillation_loss
from headway.tasks.base import Task
from headway.tasks.batches import MAX_LOGITS


class TargetLogits(Protocol):
    """What a model makes of the targets of a batch: their logits, M V, are `head(features)`."""

    @property
    def head(self) -> Callable[[Tensor], Tensor]: ...
    @property
    def features(self) -> Tensor:
        """M C"""
        ...

    def loss(self) -> Tensor:
        """The loss of all targets together, by what is right."""
        ...


class PredictsTargets(Task):
    """A task whose models give each target a logit for every word or every class: it can be learned from a teacher."""

    @property
    @abstractmethod
    def input_encoding(self) -> Mapping[str, object]:
        """What the numbers that its models read mean, by what it is called: a teacher has to read the same."""

    @abstractmethod
    def predicted(self, model: nn.Module, batch: Any) -> TargetLogits:
        """The targets of a batch, as a model predicts them."""

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return self.predicted(model, batch).loss()


@dataclass(frozen=True, eq=False)
class Distillation:
    """The loss of a task with a teacher; `weight` is α, `order` has the model's classes among the teacher's."""

    task: PredictsTargets
    teacher: nn.Module
    temperature: float
    weight: float
    order: Tensor | None = None

    def __call__(self, model: nn.Module, batch: Any) -> Tensor:
        """The loss of all targets of a batch together."""
        found = self.task.predicted(model, batch)
        with torch.no_grad():
            told = self.task.predicted(self.teacher, batch)
        return (1.0 - self.weight) * found.loss() + self.weight * self.soft_loss(found, told)

    def soft_loss(self, found: TargetLogits, told: TargetLogits) -> Tensor:
        """The second term; the logits of a part of many targets are computed again for the gradient.

        Of vocabularies that are padded to several sizes, the words count that both have.
        """

        def part(x: Tensor, y: Tensor) -> Tensor:
            ours, theirs = found.head(x), told.head(y)
            words = min(ours.shape[-1], theirs.shape[-1])
            theirs = theirs if self.order is None else theirs[:, self.order]
            return distillation_loss(ours[:, :words], theirs[:, :words], self.temperature)

        with torch.no_grad():
            rows = max(1, MAX_LOGITS // max(1, found.head(found.features[:1]).shape[-1]))
        if len(found.features) <= rows:
            return part(found.features, told.features)
        pairs = zip(found.features.split(rows), told.features.split(rows), strict=True)
        losses = [checkpoint(part, *pair, use_reentrant=False, preserve_rng_state=False) for pair in pairs]
        return torch.stack(cast(list[Tensor], losses)).sum()
