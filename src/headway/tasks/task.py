"""What a model learns from: records become rows of ids, rows a batch, a batch a loss.

A task is a frozen value.  `encode` is done once and kept on disk; `collate` draws what is drawn anew each time (masks)
from the random numbers it is handed; `loss` is a sum over targets, so that a step over several batches divides by the
count of all of them and equals one large batch.

Axes:  B batch   T tokens   N tokens of all rows   M targets   C width   V vocabulary
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from headway.data.shards import Shards
from headway.data.tokenizer import Tokenizer
from headway.nn.context import Context
from headway.nn.head import WordHead
from headway.nn.rows import Rows

Row = tuple[np.ndarray, ...]  # ids by column: the source, and where there is one the target


class Batch(Protocol):
    """Tensors for one call of a model."""

    @property
    def targets(self) -> int:
        """What the loss sums over: words to predict, or rows to classify."""
        ...

    @property
    def tokens(self) -> int:
        """Tokens that the model reads."""
        ...


class Task(Protocol):
    """Frozen, and cheap to pickle: it goes to whoever prepares batches."""

    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> Any:
        """One batch of rows."""
        ...

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """The loss of all targets together."""
        ...

    def measured(self) -> Task:
        """The task as validation measures it: without what only helps learning."""
        ...

    def kept(self) -> Mapping[str, Any]:
        """What the model folder remembers: special tokens by their parts, names of classes."""
        ...


@runtime_checkable
class Remembering(Protocol):
    """A task that may remember something from batch to batch: tensors, which travel with the run."""

    def memory(self, model: nn.Module) -> Mapping[str, Tensor] | None:
        """What it begins with; None where nothing is remembered for this model."""
        ...

    def loss_after(
        self, model: nn.Module, batch: Any, memory: Mapping[str, Tensor]
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        """The loss after the batches that are remembered, and what is remembered then."""
        ...


class RecordTask(Task, Protocol):
    """A task whose rows are records: `columns` lists of ids each."""

    @property
    def columns(self) -> int: ...

    @property
    def unit(self) -> str:
        """What batches are counted in."""
        ...

    def sizes(self, rows: Shards) -> np.ndarray:
        """How much each row counts for in a batch, R or R C."""
        ...

    def encode(self, fields: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        """The ids of records, column by column."""
        ...


class StreamTask(Task, Protocol):
    """A task whose rows are spans of documents, which all stand in one long stream, `columns` numbers wide."""

    @property
    def columns(self) -> int: ...

    @property
    def vocab(self) -> int:
        """What no number of the stream reaches."""
        ...

    @property
    def unit(self) -> str:
        """What places of the stream are called when some are counted."""
        ...

    def document(self, pieces: Iterable[str]) -> list[Iterable[int]]:
        """A document that comes in pieces, column by column."""
        ...

    def stride(self, context: int) -> int:
        """How far apart spans begin, each of which has one token more, for a model that reads `context` tokens."""
        ...


class Documents:
    """Texts whose tokens stand in one long stream."""

    words: Tokenizer
    columns = 1
    unit = "tokens"

    @property
    def vocab(self) -> int:
        return self.words.vocab

    @property
    def frame(self) -> tuple[list[int], list[int]]:
        """The ids that stand before and behind each document in the stream: none, where spans are framed anew."""
        return [], []

    def document(self, pieces: Iterable[str]) -> list[Iterable[int]]:
        """The ids of a text, which come as its pieces are read."""
        before, after = self.frame
        return [chain(before, (id for piece in pieces for id in self.words.plain(piece)), after)]


class Tokens:
    """Rows of token ids in every column, which count as many as they are."""

    unit = "tokens"

    def sizes(self, rows: Shards) -> np.ndarray:
        return np.stack([rows.lengths(column) for column in range(rows.columns)], 1)


@dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of any lengths, ready for a model: packed, 1 N; or B T where all are equally long."""

    ids: Tensor
    rows: Rows | None

    @staticmethod
    def of(rows: Sequence[np.ndarray]) -> Ragged:
        lengths = [len(row) for row in rows]
        ids = torch.from_numpy(np.concatenate(rows).astype(np.int64))
        if len(set(lengths)) == 1:
            return Ragged(ids.view(len(rows), -1), None)
        return Ragged(ids[None], Rows.of(lengths))

    @property
    def context(self) -> Context:
        return Context(rows=self.rows)

    def __len__(self) -> int:
        return self.ids.numel()


LOGITS = 2**23  # that are held at once


class Said(NamedTuple):
    """Words that a model is to say: its head, what that reads for each (M C), and what is right (M)."""

    head: WordHead
    features: Tensor
    wanted: Tensor

    def loss(self, smoothing: float = 0.0) -> Tensor:
        """The cross-entropy of all words together."""
        return self.head.loss(self.features, self.wanted, smoothing)

    def losses(self) -> Tensor:
        """The cross-entropy of each word, M, without a gradient."""
        return self.head.losses(self.features, self.wanted)

    @torch.no_grad()
    def right(self) -> Tensor:
        """Whether the likeliest word is the right one, M."""
        if len(self.wanted) == 0:
            return self.wanted.bool()
        vocab = self.head(self.features[:1]).shape[-1]
        some = self.features.split(max(1, LOGITS // vocab))
        return torch.cat([self.head(x).argmax(-1) for x in some]) == self.wanted


def ids(*parts: int | Sequence[int] | np.ndarray) -> np.ndarray:
    """Numbers and lists of numbers, one after the other."""
    return np.concatenate([np.atleast_1d(np.asarray(part, dtype=np.int64)) for part in parts])


def some(id: int | None) -> list[int]:
    """A special token where there is one."""
    return [] if id is None else [id]


def around(words: Tokenizer) -> tuple[list[int], list[int]]:
    """The tokens that begin and end every text, as `encode` puts them around people's texts."""
    return some(words.bos), some(words.eos)


def cut(row: list[int], longest: int) -> list[int]:
    """At most `longest` ids of a text; the last one, which ends it, stays."""
    return row if len(row) <= longest else [*row[: longest - 1], row[-1]]
