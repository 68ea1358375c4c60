"""Causal language modelling: say each token from those before it.

Texts are read as one long stream and cut into spans; where a document ends inside a span, the span is cut there too, so
that no token sees another document and positions begin anew.

Axes:  N tokens of all rows
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
from headway.tasks.task import Documents, Ragged, Row, Said, around, ids


@dataclass(frozen=True, eq=False)
class CausalBatch:
    read: Ragged
    wanted: Tensor  # N, the token after each; none, where no row has a second token

    @property
    def targets(self) -> int:
        return len(self.wanted)

    @property
    def tokens(self) -> int:
        return len(self.read)


@dataclass(frozen=True, eq=False)
class Causal(Documents):
    """Continue the text.  A document has `bos` before it and `eos` behind it, where the tokenizer has these."""

    words: Tokenizer

    @property
    def frame(self) -> tuple[list[int], list[int]]:
        return around(self.words)

    def stride(self, context: int) -> int:
        return context  # the last token of a span is said and not read

    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> CausalBatch:
        """The last token of a row has nothing to say; so a row of one token is left out."""
        whole = [row for (row,) in rows if len(row) > 1]
        if not whole:  # a model must read something, if only to learn nothing from it
            return CausalBatch(Ragged.of([rows[0][0]]), torch.empty(0, dtype=torch.int64))
        return CausalBatch(Ragged.of([row[:-1] for row in whole]), torch.from_numpy(ids(*(row[1:] for row in whole))))

    def loss(self, model: nn.Module, batch: CausalBatch) -> Tensor:
        return self.said(model, batch).loss()

    def said(self, model: nn.Module, batch: CausalBatch) -> Said:
        assert isinstance(model, Trunk)
        features = model.features(batch.read.ids, batch.read.context).flatten(0, 1)
        return Said(word_head(model.head), features[: batch.targets], batch.wanted)

    def measured(self) -> Causal:
        return self

    def kept(self) -> Mapping[str, Any]:
        return {"bos_token_id": self.words.bos, "eos_token_id": self.words.eos}
