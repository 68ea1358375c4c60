"""Rows of tokens: texts as ids, packed into batches, and the tokens that a model is to predict.

Axes:  R rows   N tokens of all rows   M targets   C width   V vocabulary
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.generate.session import context_of
from headway.nn.context import Context
from headway.nn.head import MeanPool, WordHead
from headway.nn.packed import PackedLengths
from headway.nn.trunk import encoder_of
from headway.tasks.base import RecordTask, StreamTask, Task, ids
from headway.tasks.inspection import DataRow, EncoderInput
from headway.tasks.sample_inputs import sample_text

if TYPE_CHECKING:
    from headway.data.shards import Shards
    from headway.data.tokenizer import Tokenizer

MAX_LOGITS = 2**23  # that are held at once


class DocumentStream(StreamTask):
    """Texts whose tokens stand in one long stream."""

    tokenizer: Tokenizer
    columns = 1
    unit = "tokens"

    @property
    def vocab(self) -> int:
        return self.tokenizer.vocab

    @property
    def frame(self) -> tuple[list[int], list[int]]:
        """The ids that stand before and behind each document in the stream: none, where spans are framed anew."""
        return [], []

    def document(self, pieces: Iterable[str]) -> list[Iterable[int]]:
        """The ids of a text, which come as its pieces are read."""
        before, after = self.frame
        return [chain(before, (id for piece in pieces for id in self.tokenizer.plain(piece)), after)]


class TokenRows(RecordTask):
    """Rows of token ids in every column, which count as many as they are."""

    unit = "tokens"

    def sizes(self, rows: Shards) -> np.ndarray:
        return np.stack([rows.lengths(column) for column in range(rows.columns)], 1)


@dataclass(frozen=True, eq=False)
class PackedBatch:
    """Rows of any lengths, ready for a model: packed, 1 N; or B T where all are equally long."""

    ids: Tensor
    rows: PackedLengths | None

    @staticmethod
    def of(rows: Sequence[np.ndarray]) -> PackedBatch:
        lengths = [len(row) for row in rows]
        ids = torch.from_numpy(np.concatenate(rows).astype(np.int64))
        if len(set(lengths)) == 1:
            return PackedBatch(ids.view(len(rows), -1), None)
        return PackedBatch(ids[None], PackedLengths.of(lengths))

    @staticmethod
    def of_texts(texts: Sequence[str], tokenizer: Tokenizer) -> PackedBatch:
        """Texts as a model reads them; one without tokens is a token of padding."""
        return PackedBatch.of([np.array(row or [tokenizer.pad or 0]) for row in tokenizer.encode_batch(texts)])

    @property
    def context(self) -> Context:
        return Context(rows=self.rows)

    @property
    def lengths(self) -> list[int]:
        """How long each row is."""
        return [self.ids.shape[1]] * len(self.ids) if self.rows is None else list(self.rows.lengths)

    def split(self) -> list[Tensor]:
        """The ids of each row."""
        return list(self.ids.flatten().split(self.lengths))

    def __len__(self) -> int:
        return self.ids.numel()


class TokenPrediction(NamedTuple):
    """Tokens that a model is to predict: its head, what that reads for each (M C), and what is right (M)."""

    head: WordHead
    features: Tensor
    wanted: Tensor

    def loss(self, smoothing: float = 0.0) -> Tensor:
        """The cross-entropy of all tokens together."""
        return self.head.loss(self.features, self.wanted, smoothing)

    def losses(self) -> Tensor:
        """The cross-entropy of each token, M, without a gradient."""
        return self.head.losses(self.features, self.wanted)

    @torch.no_grad()
    def right(self) -> Tensor:
        """Whether the likeliest token is the right one, M."""
        if len(self.wanted) == 0:
            return self.wanted.bool()
        vocab = self.head(self.features[:1]).shape[-1]
        some = self.features.split(max(1, MAX_LOGITS // vocab))
        return torch.cat([self.head(x).argmax(-1) for x in some]) == self.wanted


def some(id: int | None) -> list[int]:
    """A special token where there is one."""
    return [] if id is None else [id]


def around(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """The tokens that begin and end every text, as `encode` puts them around people's texts."""
    return some(tokenizer.bos), some(tokenizer.eos)


def cut(row: list[int], max_length: int) -> list[int]:
    """At most so many ids of a text; the last one, which ends it, stays."""
    return row if len(row) <= max_length else [*row[: max_length - 1], row[-1]]


class ReadsText(Task):
    """A task whose models read texts with `tokenizer`."""

    tokenizer: Tokenizer

    @torch.inference_mode()
    def embed(self, model: nn.Module, inputs: Sequence[str]) -> Tensor:
        """The mean of each text's features, on packed rows, so that padding costs nothing."""
        read = PackedBatch.of_texts(inputs, self.tokenizer)
        return F.normalize(MeanPool()(encoder_of(model).features(read.ids, read.context), read.context), dim=-1)

    def sample_input(self, folder: Path, context: int | None) -> str:
        return sample_text(self.tokenizer, context)

    def sources(self, texts: Sequence[str]) -> list[list[int]]:
        """What the encoder reads."""
        return self.tokenizer.encode_batch(texts)

    def encoder_input(self, model: nn.Module, rows: Sequence[DataRow]) -> EncoderInput:
        """Texts cut to the model's context, as they are in training."""
        context, pad = context_of(encoder_of(model)), self.tokenizer.pad or 0
        texts = [row or [pad] for row in self.sources([one.row for one in rows])]
        read = PackedBatch.of([ids(row if context is None else cut(row, context)) for row in texts])
        return EncoderInput(read.ids, read.context)
