"""Causal language modelling: say each token from those before it.

Texts are read as one long stream and cut into spans; where a document ends inside a span, the span is cut there too, so
that no token sees another document and positions begin anew.

Axes:  N tokens of all rows   C width
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headway.data.tokenizer import Tokenizer
from headway.nn.head import word_head
from headway.nn.model import Trunk
from headway.tasks.task import Ragged, Row, ids, some


@dataclass(frozen=True, eq=False)
class CausalBatch:
    read: Ragged
    wanted: Tensor  # N, the token after each

    @property
    def targets(self) -> int:
        return len(self.wanted)

    @property
    def tokens(self) -> int:
        return len(self.read)


@dataclass(frozen=True, eq=False)
class Causal:
    """Continue the text.  A document has `bos` before it and `eos` behind it, where the tokenizer has these."""

    words: Tokenizer

    @property
    def frame(self) -> tuple[list[int], list[int]]:
        return some(self.words.bos), some(self.words.eos)

    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> CausalBatch:
        whole = [row for (row,) in rows if len(row) > 1]
        return CausalBatch(Ragged.of([row[:-1] for row in whole]), torch.from_numpy(ids(*(row[1:] for row in whole))))

    def loss(self, model: nn.Module, batch: CausalBatch) -> Tensor:
        assert isinstance(model, Trunk)
        features = model.features(batch.read.ids, batch.read.context)
        return word_head(model.head).loss(features.flatten(0, 1), batch.wanted)

    def measured(self) -> Causal:
        return self

    def kept(self) -> Mapping[str, Any]:
        return {"bos_token_id": self.words.bos, "eos_token_id": self.words.eos}
