"""Sequence to sequence: translation, spelling to sound, text to text.  Any encoder–decoder learns it.

Axes:  N tokens of all sources   M tokens of all targets   C width
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headway.data.tokenizer import Tokenizer
from headway.nn.head import word_head
from headway.nn.model import EncoderDecoder
from headway.tasks.task import Ragged, Row, Said, Tokens, cut, ids


@dataclass(frozen=True, eq=False)
class PairBatch:
    source: Ragged
    read: Ragged  # by the decoder: the beginning, then the target without its end
    wanted: Tensor  # M, what it should say after each of these

    @property
    def targets(self) -> int:
        return len(self.wanted)

    @property
    def tokens(self) -> int:
        return len(self.source) + len(self.read)


def pair_batch(pairs: Sequence[tuple[np.ndarray, np.ndarray]], begin: int) -> PairBatch:
    """Sources and the targets that are to be written from them, after `begin`."""
    read = Ragged.of([ids(begin, target[:-1]) for _, target in pairs])
    return PairBatch(Ragged.of([source for source, _ in pairs]), read, torch.from_numpy(ids(*(t for _, t in pairs))))


def said_after(model: nn.Module, batch: PairBatch) -> Said:
    """What the decoder is to say, with the source before its eyes."""
    assert isinstance(model, EncoderDecoder)
    ctx = model.remember(batch.source.ids, batch.source.context, batch.read.context)
    features = model.decoder.features(batch.read.ids, ctx)
    return Said(word_head(model.decoder.head), features.flatten(0, 1), batch.wanted)


@dataclass(frozen=True, eq=False)
class Pairs(Tokens):
    """Write the target from the source; `prefix` stands before each source and says what is to be done, as in T5.

    The tokenizers frame a text as the model wants it: with an end, at least.  Longer sides are cut to `longest`.
    """

    reader: Tokenizer
    writer: Tokenizer
    begin: int
    smoothing: float = 0.1
    longest: int = 256
    prefix: str = ""
    columns: int = 2

    def encode(self, fields: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        sources = self.reader.encode_batch([self.prefix + source for source, _ in fields])
        targets = self.writer.encode_batch([target for _, target in fields])
        return [[cut(side, self.longest) for side in pair] for pair in zip(sources, targets, strict=True)]

    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> PairBatch:
        return pair_batch([(row[0], row[1]) for row in rows], self.begin)

    def loss(self, model: nn.Module, batch: PairBatch) -> Tensor:
        return said_after(model, batch).loss(self.smoothing)

    def measured(self) -> Pairs:
        return replace(self, smoothing=0.0)

    def kept(self) -> Mapping[str, Any]:
        told = {"decoder_start_token_id": self.begin, "eos_token_id": self.writer.eos}
        return {**told, "prefix": self.prefix} if self.prefix else told
