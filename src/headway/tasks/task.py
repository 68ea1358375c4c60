"""What a model learns from: records become rows of ids, rows a batch, a batch a loss.

A task is a frozen value.  `encode` is done once and kept on disk; `collate` draws what is drawn anew each time (masks)
from the random numbers it is handed; `loss` is a sum over targets, so that a step over several batches divides by the
count of all of them and equals one large batch.

Axes:  B batch   T tokens   N tokens of all rows
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from headway.data.tokenizer import Tokenizer
from headway.nn.context import Context
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


class RecordTask(Task, Protocol):
    """A task whose rows are records: `columns` lists of ids each."""

    @property
    def columns(self) -> int: ...

    def encode(self, fields: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        """The ids of records, column by column."""
        ...


class TextTask(Task, Protocol):
    """A task whose rows are spans of documents, which all stand in one long stream."""

    @property
    def words(self) -> Tokenizer: ...

    @property
    def frame(self) -> tuple[list[int], list[int]]:
        """The ids that stand before and behind each document in the stream."""
        ...


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


def ids(*parts: int | Sequence[int] | np.ndarray) -> np.ndarray:
    """Numbers and lists of numbers, one after the other."""
    return np.concatenate([np.atleast_1d(np.asarray(part, dtype=np.int64)) for part in parts])


def some(id: int | None) -> list[int]:
    """A special token where there is one."""
    return [] if id is None else [id]
