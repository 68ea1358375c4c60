"""Speech: say what was said in a recording, where nobody has told when (CTC).

The symbols are the tokens of a text, each counted one higher: symbol 0 is the blank.

Axes:  B batch   T tokens of frames   U symbols of a text   V symbols
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headway.data.tokenizer import Tokenizer
from headway.errors import UserError
from headway.nn.model import Trunk
from headway.nn.rows import padded
from headway.ops.ctc import ctc_loss, frames_needed
from headway.tasks.senses import Hearing, Read, Sense, Sensing, kept, size_of
from headway.tasks.task import Row

FACTORS = (8, 4, 2, 1)  # frames to a token that models are made for


@dataclass(frozen=True, eq=False)
class SpokenBatch:
    read: Read
    wanted: Tensor  # B U, padded
    lengths: Tensor  # B
    tokens: int

    @property
    def targets(self) -> int:
        return int(self.lengths.sum())


@dataclass(frozen=True, eq=False)
class Spoken(Sensing[Sense]):
    """Write the transcript of a sound; `factor` frames are one token of the model."""

    words: Tokenizer
    factor: int
    columns: int = 3

    def encode(self, fields: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        sounds = [(kept(self.sense, *sample), text) for *sample, text in fields]
        return [[*sound, self.symbols(text, sound.size[0])] for sound, text in sounds]

    def symbols(self, text: str, frames: int) -> list[int]:
        """The symbols of a text, which must have room in the frames of its sound."""
        found = [1 + id for id in self.words.plain(text)]
        if frames_needed(found) > (room := tokens_of(frames, self.factor)):
            said = f"{text[:60]!r} has {len(found)} symbols, and its sound is {room} tokens long"
            raise UserError(said, do=self.advice(frames_needed(found), frames))
        return found

    def advice(self, needed: int, frames: int) -> str:
        """What helps where a sound of so many frames has fewer tokens than its transcript needs."""
        fits = [factor for factor in FACTORS if factor < self.factor and tokens_of(frames, factor) >= needed]
        if fits and isinstance(self.sense, Hearing):  # models of bare samples have a factor of their own
            return f"check the transcript, or let fewer frames be a token with --model.factor {fits[0]}"
        return "shorten the transcript, or leave the recording out"

    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> SpokenBatch:
        read = self.read(rows, random)
        wanted = [torch.from_numpy(row[2]) for row in rows]
        lengths = torch.tensor([len(row) for row in wanted])
        padded_rows = nn.utils.rnn.pad_sequence(wanted, batch_first=True)
        return SpokenBatch(read, padded_rows, lengths, size_of(rows))

    def loss(self, model: nn.Module, batch: SpokenBatch) -> Tensor:
        log_probs, frames = heard(model, batch.read)
        return ctc_loss(log_probs, torch.tensor(frames), batch.wanted, batch.lengths).sum()

    def measured(self) -> Spoken:
        return replace(self, sense=self.sense.plain())

    def kept(self) -> Mapping[str, Any]:
        return {}


def first_word(words: Tokenizer, head: nn.Linear) -> int:
    """The symbol of CTC that is word 0: 1, behind the blank, or 0 where published words count the blank among them."""
    return 0 if words.vocab >= head.out_features else 1


def tokens_of(frames: int, factor: int) -> int:
    """How many tokens so many frames are."""
    return -(-frames // factor)


def heard(model: nn.Module, read: Read) -> tuple[Tensor, list[int]]:
    """The logarithm of each symbol's probability, B T V, and how many of T are real in each row."""
    assert isinstance(model, Trunk)
    found, inner = model(*read), model.inner(read.context)
    if inner.rows is None:
        return found, [found.shape[1]] * found.shape[0]
    return padded(found, inner.rows), list(inner.rows.lengths)
