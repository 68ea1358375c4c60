"""Masked language modelling, as BERT does it: of the tokens that are chosen, most are masked, and all are to be said.

Only the chosen tokens go through the output layer.

Axes:  N tokens of all rows   M chosen tokens   C width
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headway.data.tokenizer import Tokenizer
from headway.errors import UserError
from headway.nn.head import word_head
from headway.nn.model import Trunk
from headway.tasks.task import Ragged, Row, ids, some


@dataclass(frozen=True, eq=False)
class MaskedBatch:
    read: Ragged
    chosen: Tensor  # M, places among the N
    wanted: Tensor  # M, what stood there

    @property
    def targets(self) -> int:
        return len(self.wanted)

    @property
    def tokens(self) -> int:
        return len(self.read)


@dataclass(frozen=True, eq=False)
class Masked:
    """Say what stood at a `share` of the places: 80 % of them show the mask, 10 % a random token, 10 % what it was."""

    words: Tokenizer
    share: float = 0.15
    shown: tuple[float, float] = (0.8, 0.1)  # as the mask, as a random token

    def __post_init__(self) -> None:
        if self.words.mask is None:
            raise UserError("this tokenizer has no mask token", do="train one here, or use --objective causal")

    @property
    def frame(self) -> tuple[list[int], list[int]]:
        return [], []  # spans of documents are framed anew each time

    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> MaskedBatch:
        framed = [self.framed(row) for (row,) in rows]
        flat, places = ids(*framed), np.concatenate([self.inner(row) for row in framed])
        chosen = np.flatnonzero(places & (random.random(len(flat)) < self.share))
        if len(chosen) == 0:  # so that there is something to learn from the shortest batch
            chosen = np.flatnonzero(places)[:1]
        wanted, draw = flat[chosen], random.random(len(chosen))
        mask, other = self.shown
        flat[chosen[draw < mask]] = self.words.mask
        replaced = chosen[(draw >= mask) & (draw < mask + other)]
        flat[replaced] = random.integers(0, self.words.vocab, len(replaced))
        read = Ragged.of(np.split(flat, np.cumsum([len(row) for row in framed])[:-1]))
        return MaskedBatch(read, torch.from_numpy(chosen), torch.from_numpy(wanted))

    def framed(self, row: np.ndarray) -> np.ndarray:
        """A row between the tokens that begin and end every text, as `encode` gives them to people's texts."""
        return ids(some(self.words.bos), row, some(self.words.eos))

    def inner(self, row: np.ndarray) -> np.ndarray:
        """Which places of a framed row may be chosen: all but its frame."""
        inner = np.ones(len(row), dtype=bool)
        inner[: len(some(self.words.bos))] = False
        inner[len(row) - len(some(self.words.eos)) :] = False
        return inner

    def loss(self, model: nn.Module, batch: MaskedBatch) -> Tensor:
        assert isinstance(model, Trunk)
        features = model.features(batch.read.ids, batch.read.context)
        return word_head(model.head).loss(features.flatten(0, 1)[batch.chosen], batch.wanted)

    def measured(self) -> Masked:
        return self

    def kept(self) -> Mapping[str, Any]:
        return {}
