"""One update: the gradients of a step's batches, and what the optimiser makes of them.

A step's loss is the sum over the targets of all its batches, divided by their count: several small batches are one
large one.  (Only routers' losses are each batch's own: how even a router is, the batches together cannot tell before
all are read.)  Random numbers (dropout) are keyed by the run's seed, the step and the batch, so that a step is the same
whatever ran before it.  Where a loss or gradient is not finite, nothing is changed: what batch norms had gathered comes
back too.  Where their weights are frozen, they gather nothing.  What a task remembers from batch to batch (`memory`)
is handed to its loss and comes back with it, and is part of what a checkpoint keeps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headway.data.keyed import keyed
from headway.nn.model import tensors_of
from headway.nn.moe import MoE
from headway.nn.trace import record
from headway.train.average import Average, fill
from headway.train.optimiser import Optimiser, clip
from headway.train.schedule import Schedule


@dataclass(frozen=True)
class Update:
    """What a step did; `skipped`: its numbers were not finite, and nothing was changed."""

    step: int
    loss: float  # the sum over targets
    targets: int
    tokens: int
    norm: float
    rate: float
    skipped: bool


class Learner:
    """A model, its optimiser and their average over time: all that a step changes."""

    def __init__(
        self,
        model: nn.Module,
        loss: Any,
        optimiser: Optimiser,
        schedule: Schedule,
        *,
        seed: int,
        most: float = 1.0,
        balance: float = 0.01,
        average: Average | None = None,
        memory: Mapping[str, Tensor] | None = None,
    ):
        """`loss(model, batch)` is a task's; `most` bounds the gradient's norm; `balance` weighs routers' losses.

        Of a task with a `memory` it is `loss(model, batch, memory)`, and gives the memory after the batch besides.
        """
        self.model, self.loss, self.optimiser, self.schedule = model, loss, optimiser, schedule
        self.seed, self.most, self.average, self.memory = seed, most, average, memory
        self.balance = balance if any(isinstance(part, MoE) for part in model.modules()) else 0.0
        set_training(model)

    def learn(self, step: int, batches: Sequence[Any]) -> Update:
        """The update of `step`, which counts from 1."""
        if not self.model.training:  # it was asked something; looking through all parts in each step takes its time
            set_training(self.model)
        before, memory = [gathered.clone() for gathered in self.model.buffers()], self.memory
        targets, tokens = sum(batch.targets for batch in batches), sum(batch.tokens for batch in batches)
        self.optimiser.zero_grad()
        loss = sum(self.backward(step, at, batch, targets) for at, batch in enumerate(batches))
        norm, rate = clip(self.optimiser.parameters, self.most), self.optimiser.set_rate(self.schedule.factor(step))
        skipped = not (math.isfinite(loss) and math.isfinite(norm))
        if skipped:
            for gathered, was in zip(self.model.buffers(), before, strict=True):
                gathered.copy_(was)
            self.memory = memory
        else:
            self.optimiser.step()
            if self.average is not None:
                self.average.update(self.model)
        self.optimiser.zero_grad()
        return Update(step, loss, targets, tokens, norm, rate, skipped)

    def backward(self, step: int, at: int, batch: Any, targets: int) -> float:
        """Adds a batch's share of the gradients; its loss, summed over its targets."""
        torch.manual_seed(keyed(self.seed, "step", step, at))
        with ExitStack() as stack:
            trace = stack.enter_context(record(self.model, "*.balance")) if self.balance else None
            loss = self.lost(batch)
        total = loss / max(1, targets)  # a text of unknown signs may leave nothing to say
        if trace is not None:
            routers = [value for name in trace.values for value in trace.all(name) if isinstance(value, Tensor)]
            total = total + self.balance * torch.stack(routers).mean() * (batch.targets / max(1, targets))
        total.backward()
        return loss.item()

    def lost(self, batch: Any) -> Tensor:
        """The loss of a batch, which the task may remember."""
        if self.memory is None:
            return self.loss(self.model, batch)
        loss, self.memory = self.loss(self.model, batch, self.memory)
        return loss

    def tensors(self) -> dict[str, Mapping[str, Tensor]]:
        """All that changes, by file."""
        kept: dict[str, Mapping[str, Tensor]] = {"model": tensors_of(self.model)}
        kept["optimiser"] = self.optimiser.state_tensors()
        if self.memory is not None:
            kept["memory"] = self.memory
        return kept if self.average is None else {**kept, "average": self.average.tensors()}

    def restore(self, tensors: Mapping[str, Mapping[str, Tensor]]) -> None:
        fill(self.model, tensors["model"])
        self.optimiser.load_state_tensors(tensors["optimiser"])
        if self.average is not None:
            self.average.load(tensors["average"])
        if self.memory is not None:
            self.memory = dict(tensors["memory"])


def set_training(model: nn.Module) -> None:
    """All parts learn, but batch norms whose weights are frozen: those stay what they were in every number."""
    model.train()
    for part in model.modules():
        own = list(part.parameters(recurse=False))
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and own:  # pyright: ignore[reportPrivateUsage]
            part.train(any(parameter.requires_grad for parameter in own))
