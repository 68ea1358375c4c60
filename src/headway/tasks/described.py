"""Texts about what is sensed: a captioner writes them of images, an encoder–decoder writes down speech.

A row holds a sample and all texts about it, so that a sample is opened and encoded once for all of them.

Axes:  B texts   M words of all texts
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headway.data.tokenizer import Tokenizer
from headway.data.transforms.chain import generators
from headway.nn.captioner import Captioner
from headway.ops.glimpse import Baseline
from headway.tasks.captioning import (
    CaptionBatch,
    caption_batch,
    hard_loss,
    looks_by_chance,
    looks_softly,
    said_of,
    soft_loss,
)
from headway.tasks.senses import Read, Sense, Sensing, kept, size_of, told_by
from headway.tasks.task import Row, cut


@dataclass(frozen=True, eq=False)
class Described(Sensing[Sense]):
    """Samples with texts: `words` frame a text as the model wants it, with an end at least, cut to `longest`."""

    words: Tokenizer
    longest: int

    columns = 4  # where the sample is, its size, the ids of all texts, and how long each of these is

    def encode(self, fields: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        return [[*kept(self.sense, place, extent), *self.written(texts)] for place, extent, *texts in fields]

    def written(self, texts: list[str]) -> tuple[list[int], list[int]]:
        rows = [cut(row, self.longest) for row in self.words.encode_batch(texts)]
        return [id for row in rows for id in row], [len(row) for row in rows]


@dataclass(frozen=True, eq=False)
class Captions(Described):
    """Write each text about a sample, after `begin`.

    A recurrent captioner learns besides where to look: with soft attention to look everywhere in the end (weighed by
    `evenness`), with hard attention by trial, where what is remembered is how good its captions have been of late.
    """

    begin: int
    smoothing: float = 0.1
    evenness: float = 1.0

    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> CaptionBatch:
        seen, owners = opened_once(self.sense, rows, random)
        texts = [texts_of(row) for row in rows]
        each = [owner for owner, known in zip(owners, texts, strict=True) for _ in known]
        return caption_batch(seen, each, [text for known in texts for text in known], self.begin, size_of(rows))

    def loss(self, model: nn.Module, batch: CaptionBatch) -> Tensor:
        if self.evenness and looks_softly(model):
            assert isinstance(model, Captioner)
            return soft_loss(model, batch, smoothing=self.smoothing, evenness=self.evenness)
        return said_of(model, batch).loss(self.smoothing)

    def memory(self, model: nn.Module) -> Mapping[str, Tensor] | None:
        return told(Baseline()) if looks_by_chance(model) else None

    def loss_after(
        self, model: nn.Module, batch: CaptionBatch, memory: Mapping[str, Tensor]
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        assert isinstance(model, Captioner)
        before = Baseline(memory["value"].item(), batches=int(memory["batches"]))
        loss, after = hard_loss(model, batch, before, smoothing=self.smoothing)
        return loss, told(after)

    def measured(self) -> Captions:
        return replace(self, sense=self.sense.plain(), smoothing=0.0, evenness=0.0)

    def kept(self) -> Mapping[str, Any]:
        return {"decoder_start_token_id": self.begin, "eos_token_id": self.words.eos}


def told(baseline: Baseline) -> dict[str, Tensor]:
    """A baseline as tensors, every bit of it."""
    return {"value": torch.tensor(baseline.value, dtype=torch.float64), "batches": torch.tensor(baseline.batches)}


def opened_once(sense: Sense, rows: Sequence[Row], random: np.random.Generator) -> tuple[Read, list[int]]:
    """The samples of some rows, each opened once, and the number of each row's."""
    places = [told_by(row[0]) for row in rows]
    numbers = {place: at for at, place in enumerate(dict.fromkeys(places))}
    draws = generators(random, len(numbers))
    samples = [sense.look(place, draw) for place, draw in zip(numbers, draws, strict=True)]
    return sense.together(samples), [numbers[place] for place in places]


def texts_of(row: Row) -> list[np.ndarray]:
    """The ids of each text about a sample."""
    return np.split(row[2], np.cumsum(row[3])[:-1])
