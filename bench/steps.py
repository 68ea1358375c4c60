"""Training steps of a model on one batch, for scripts that time, profile or measure the memory of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from headway.nn.head import word_head
from headway.nn.trunk import Trunk
from headway.tasks.causal_lm import CausalBatch
from headway.tasks.masked_lm import MaskedBatch
from headway.training.groups import groups
from headway.training.learner import Learner
from headway.training.optimiser import AdamW, Constant, Optimiser


def learner_of(
    model: nn.Module, loss: Callable[[nn.Module, Any], Tensor], dtype: torch.dtype = torch.float32
) -> Learner:
    return Learner(model, loss, Optimiser(AdamW(), groups(model)), Constant(), seed=0, dtype=dtype)


def step_on(learner: Learner, batch: Any) -> Callable[[], object]:
    """A function that takes one more step."""
    numbers: Iterator[int] = iter(range(1, 10**9))
    return lambda: learner.learn(next(numbers), [batch])


def causal_loss(model: nn.Module, batch: CausalBatch) -> Tensor:
    assert isinstance(model, Trunk)
    return word_head(model.head).loss(model.features(batch.read.ids).flatten(0, 1), batch.wanted)


def masked_loss(model: nn.Module, batch: MaskedBatch) -> Tensor:
    assert isinstance(model, Trunk)
    return word_head(model.head).loss(model.features(batch.read.ids).flatten(0, 1)[batch.chosen], batch.wanted)
