"""Contrastive learning from images alone: two views of an image shall have like vectors, and other images others.

A view is the image as chance changes it; the random numbers come from outside.  The batch is what an image is told
apart from, so its loss is no sum over images that stand alone, only over pairs of views.

Axes:  B batch   Ch channels   H height   W width   P width of the vectors that are compared
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headway.data.transforms.chain import generators
from headway.ops.contrastive import nt_xent
from headway.tasks.senses import Nameless, told_by
from headway.tasks.task import Row


@dataclass(frozen=True, eq=False)
class ViewBatch:
    """Both views of each image, in the same order."""

    one: Tensor  # B Ch H W
    other: Tensor

    @property
    def targets(self) -> int:
        return len(self.one)

    @property
    def tokens(self) -> int:
        return len(self.one)


@dataclass(frozen=True, eq=False)
class TwoViews(Nameless):
    """Tell by one view of an image which the other one is, among all of the batch."""

    temperature: float = 0.5
    columns: int = 2

    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> ViewBatch:
        streams = generators(random, len(rows))
        views = [
            tuple(islice(self.sense.looks(told_by(row[0]), stream), 2))
            for row, stream in zip(rows, streams, strict=True)
        ]
        return ViewBatch(*(torch.stack(side) for side in zip(*views, strict=True)))

    def loss(self, model: nn.Module, batch: ViewBatch) -> Tensor:
        # in one call: batch norms see both views of all images
        one, other = model(torch.cat([batch.one, batch.other])).chunk(2)
        return nt_xent(one, other, self.temperature)

    def measured(self) -> TwoViews:
        """As it is: without chance both views were the same image."""
        return self

    def kept(self) -> Mapping[str, Any]:
        return {}
