"""Masked language modelling, as BERT does it: of the tokens that are chosen, most are masked, and all are to be said.

Only the chosen tokens go through the output layer.

Axes:  N tokens of all rows   M chosen tokens
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from headway.data.tokenizer import Tokenizer
from headway.errors import UserError
from headway.nn.head import word_head
from headway.nn.model import Trunk
from headway.tasks.task import Documents, Ragged, Row, Said, around, ids


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


class Hidden(NamedTuple):
    """A row with some of its tokens hidden."""

    read: np.ndarray
    chosen: np.ndarray  # places in it
    wanted: np.ndarray  # what stood there


def masked_batch(rows: Sequence[Hidden]) -> MaskedBatch:
    starts = np.cumsum([0, *(len(row.read) for row in rows)])
    chosen = ids(*(start + row.chosen for start, row in zip(starts, rows, strict=False)))
    wanted = ids(*(row.wanted for row in rows))
    return MaskedBatch(Ragged.of([row.read for row in rows]), torch.from_numpy(chosen), torch.from_numpy(wanted))


@dataclass(frozen=True, eq=False)
class Masked(Documents):
    """Say what stood at a `share` of the places: 80 % of them show the mask, 10 % a random token, 10 % what it was."""

    words: Tokenizer
    share: float = 0.15
    shown: tuple[float, float] = (0.8, 0.1)  # as the mask, as a random token

    def __post_init__(self) -> None:
        if self.words.mask is None:
            raise UserError("this tokenizer has no mask token", do="train one here, or use --objective causal")

    def stride(self, context: int) -> int:
        return context - 1 - sum(map(len, around(self.words)))

    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> MaskedBatch:
        return masked_batch([self.hidden(row, random) for (row,) in rows])

    def hidden(self, row: np.ndarray, random: np.random.Generator) -> Hidden:
        """A row between its frame, of which nothing is chosen; of each row one token is, at least."""
        chosen = np.flatnonzero(random.random(len(row)) < self.share)
        if len(chosen) == 0:
            chosen = random.integers(0, len(row), 1)
        inside, draw, (mask, other) = row.copy(), random.random(len(chosen)), self.shown
        inside[chosen[draw < mask]] = self.words.mask
        replaced = chosen[(draw >= mask) & (draw < mask + other)]
        inside[replaced] = random.integers(0, self.words.vocab, len(replaced))
        before, after = around(self.words)
        return Hidden(ids(before, inside, after), len(before) + chosen, row[chosen])

    def loss(self, model: nn.Module, batch: MaskedBatch) -> Tensor:
        return self.said(model, batch).loss()

    def said(self, model: nn.Module, batch: MaskedBatch) -> Said:
        assert isinstance(model, Trunk)
        features = model.features_at(batch.chosen, batch.read.ids, batch.read.context)
        return Said(word_head(model.head), features, batch.wanted)

    def measured(self) -> Masked:
        return self

    def kept(self) -> Mapping[str, Any]:
        return {}
