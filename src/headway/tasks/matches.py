"""Contrastive learning from images and texts: a text shall be nearer to its image than to the others of the batch.

Of several texts about an image one is drawn each time.  The batch is what a pair is told apart from, so its loss is no
sum over pairs that stand alone.

Axes:  N images   B pairs   P width of the vectors that are compared
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headway.nn.towers import TwoTowers
from headway.ops.contrastive import info_nce
from headway.tasks.described import Described, opened_once, size_of, texts_of
from headway.tasks.senses import Read
from headway.tasks.task import Ragged, Row


@dataclass(frozen=True, eq=False)
class MatchBatch:
    seen: Read  # N images
    owners: Tensor  # B, the image of each text
    texts: Ragged  # B
    tokens: int

    @property
    def targets(self) -> int:
        return len(self.owners)


@dataclass(frozen=True, eq=False)
class Matches(Described):
    """Tell which text belongs to an image, and which image to a text, among all of the batch."""

    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> MatchBatch:
        seen, owners = opened_once(self.sense, rows, random)
        texts = [known[int(random.integers(len(known)))] for known in map(texts_of, rows)]
        return MatchBatch(seen, torch.tensor(owners), Ragged.of(texts), size_of(rows))

    def loss(self, model: nn.Module, batch: MatchBatch) -> Tensor:
        assert isinstance(model, TwoTowers)
        images = model.image(*batch.seen)[batch.owners]
        texts = model.text(batch.texts.ids, batch.texts.context)
        return info_nce(images, texts, model.scale, batch.owners)

    def measured(self) -> Matches:
        return replace(self, sense=self.sense.plain())

    def kept(self) -> Mapping[str, Any]:
        return {"bos_token_id": self.words.bos, "eos_token_id": self.words.eos}
