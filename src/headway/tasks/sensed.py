"""Classification of what is sensed: one of several classes for an image, a sound, a series or a set.

Axes:  B batch   K classes   R rows
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.data.transforms.mixing import Mixing, soft_targets
from headway.tasks.labels import named, number
from headway.tasks.senses import Read, Sense, Sensing, kept, size_of
from headway.tasks.task import Row


@dataclass(frozen=True, eq=False)
class SensedBatch:
    read: Read
    wanted: Tensor  # B
    shares: Tensor  # B K, of each class; they sum to one
    tokens: int

    @property
    def targets(self) -> int:
        return len(self.wanted)

    @property
    def lengths(self) -> tuple[int, ...]:
        return (1,) * len(self.wanted)

    def logits(self, model: nn.Module) -> Tensor:
        """B K"""
        return model(self.read.inputs, self.read.context)


@dataclass(frozen=True, eq=False)
class SensedLabels(Sensing[Sense]):
    """Say the class of a sample; `mixing` makes images of two, and asks for the share of each."""

    labels: tuple[str, ...]
    smoothing: float = 0.0
    mixing: Mixing | None = None
    columns: int = 3

    def encode(self, fields: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        return [[*kept(self.sense, *sample), [number(label, self.labels)]] for *sample, label in fields]

    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> SensedBatch:
        read = self.read(rows, random)
        wanted = torch.tensor([int(row[2][0]) for row in rows])
        shares = soft_targets(wanted, len(self.labels), self.smoothing)
        if self.mixing is not None:
            inputs, shares = self.mixing(read.inputs, shares, random)
            read = Read(inputs, read.context)
        return SensedBatch(read, wanted, shares, size_of(rows))

    def loss(self, model: nn.Module, batch: SensedBatch) -> Tensor:
        return F.cross_entropy(batch.logits(model), batch.shares, reduction="sum")

    def measured(self) -> SensedLabels:
        return replace(self, sense=self.sense.plain(), smoothing=0.0, mixing=None)

    def kept(self) -> Mapping[str, Any]:
        return named(self.labels)
