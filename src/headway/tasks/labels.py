"""Classification: one of several classes for a whole text, or for each of its words.

Axes:  B batch   N tokens of all rows   K classes
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.data.tokenizer import Tokenizer
from headway.errors import UserError, listed, nearest
from headway.tasks.task import Ragged, Row, Tokens, around, cut, ids, some

NONE = -100  # no target here; the number that torch's cross-entropy leaves out


@dataclass(frozen=True, eq=False)
class LabelBatch:
    read: Ragged
    wanted: Tensor  # B, or N with NONE where a token has no class of its own
    lengths: tuple[int, ...]  # of each row's share of these

    @property
    def targets(self) -> int:
        return int((self.wanted != NONE).sum())

    @property
    def tokens(self) -> int:
        return len(self.read)

    def logits(self, model: nn.Module) -> Tensor:
        """B K, or N K where tokens have classes."""
        return model(self.read.ids, self.read.context).flatten(0, -2)


class Asking(Protocol):
    """A batch of things whose classes are asked for."""

    @property
    def wanted(self) -> Tensor: ...

    @property
    def lengths(self) -> tuple[int, ...]: ...

    def logits(self, model: nn.Module) -> Tensor: ...


def class_loss(model: nn.Module, batch: LabelBatch, smoothing: float) -> Tensor:
    logits = batch.logits(model)
    return F.cross_entropy(logits, batch.wanted, reduction="sum", label_smoothing=smoothing, ignore_index=NONE)


def likeliest(model: nn.Module, batch: Asking) -> list[list[int]]:
    """The class that a model gives each thing that has one, row by row."""
    picks = batch.logits(model).argmax(-1).split(batch.lengths)
    return [row[wanted != NONE].tolist() for row, wanted in zip(picks, batch.wanted.split(batch.lengths), strict=True)]


@dataclass(frozen=True, eq=False)
class Naming(Tokens):
    """Say classes out of `labels`; texts are cut to `longest` tokens."""

    words: Tokenizer
    labels: tuple[str, ...]
    smoothing: float = 0.0
    longest: int = 256
    columns: int = 2

    def loss(self, model: nn.Module, batch: LabelBatch) -> Tensor:
        return class_loss(model, batch, self.smoothing)

    def measured(self) -> Self:
        return replace(self, smoothing=0.0)

    def kept(self) -> Mapping[str, Any]:
        return named(self.labels)


class Labels(Naming):
    """Say the class of a text.  The tokenizer frames it as the model wants it."""

    def encode(self, fields: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        rows = self.words.encode_batch([text for text, _ in fields])
        classes = [number(label, self.labels) for _, label in fields]
        return [[cut(row, self.longest), [label]] for row, label in zip(rows, classes, strict=True)]

    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> LabelBatch:
        read, wanted = Ragged.of([row[0] for row in rows]), torch.from_numpy(ids(*(row[1] for row in rows)))
        return LabelBatch(read, wanted, (1,) * len(rows))


class Tags(Naming):
    """Say the class of each word, at its first piece.  Fields are words and tags, separated by spaces.

    The tokens that begin and end every text count, and it is cut between pieces.
    """

    def encode(self, fields: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        return [list(self.encoded(text.split(" "), tags.split(" "))) for text, tags in fields]

    def encoded(self, words: list[str], tags: list[str]) -> tuple[list[int], list[int]]:
        """Ids, and for each one more than its class, or 0 where it has none (files hold no negative numbers)."""
        _, after = around(self.words)
        read = spelled(words, self.words)
        told = [0] * len(read.ids)
        for first, tag in zip(read.firsts, tags, strict=True):
            told[first] = 1 + number(tag, self.labels)
        end = min(self.longest, len(read.ids)) - len(after)
        return [*read.ids[:end], *after], [*told[:end], *[0] * len(after)]

    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> LabelBatch:
        classes = ids(*(row[1] for row in rows)) - 1
        wanted = torch.from_numpy(np.where(classes < 0, NONE, classes))
        return LabelBatch(Ragged.of([row[0] for row in rows]), wanted, tuple(len(row[1]) for row in rows))


class Spelled(NamedTuple):
    """Words as a model reads them, framed, and where each begins."""

    ids: list[int]
    firsts: list[int]


def spelled(words: Sequence[str], tokenizer: Tokenizer) -> Spelled:
    # a space before each but the first, as it has in running text, which byte-level pieces spell
    pieces = tokenizer.plain_batch([word if at == 0 else f" {word}" for at, word in enumerate(words)])
    before, after = around(tokenizer)
    nothing = some(tokenizer.unk) or after or some(tokenizer.pad)
    found = [piece or nothing for piece in pieces]  # a word of signs that the tokenizer drops is a word all the same
    *firsts, _ = accumulate(map(len, found), initial=len(before))
    return Spelled([*before, *chain(*found), *after], firsts)


def number(label: str, labels: Sequence[str]) -> int:
    if label not in labels:
        said = f"the class {label!r} is not one of the {len(labels)} that the model knows"
        raise UserError(said, allowed=listed(labels), meant=nearest(label, labels))
    return labels.index(label)


def named(labels: Sequence[str]) -> dict[str, Any]:
    """The names of classes as model folders keep them."""
    return {
        "id2label": {str(at): name for at, name in enumerate(labels)},
        "label2id": {name: at for at, name in enumerate(labels)},
    }
