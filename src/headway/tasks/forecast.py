"""Forecasting: say each row of numbers from those before it.

A table is one long stream with a column for each of its numbers, and is cut into stretches as texts are.  Numbers are
kept on disk by their bits, and scaled when a batch is made.

Axes:  T rows of a stretch   F numbers of a row   M rows that are asked for
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from headway.data.numbers import vectors
from headway.tasks.senses import Read, Vectors
from headway.tasks.task import Row

Name = str | int  # of a column; its number from 1, where a table has no names


@dataclass(frozen=True, eq=False)
class ForecastBatch:
    read: Read
    asked: Tensor  # M, places among all rows that are read
    wanted: Tensor  # M F, the row after each

    @property
    def targets(self) -> int:
        return len(self.wanted)

    @property
    def tokens(self) -> int:
        return self.read.inputs.shape[:2].numel()

    def foreseen(self, model: nn.Module) -> Tensor:
        """What a model says in the place of the wanted rows, M F."""
        return model(*self.read).flatten(0, 1)[self.asked]

    def before(self) -> Tensor:
        """The row before each wanted one, M F."""
        return self.read.inputs.flatten(0, 1)[self.asked]


@dataclass(frozen=True, eq=False)
class Forecasting:
    """Say the next row; the loss of a row is the mean of its squared errors, in units of each column's deviation."""

    sense: Vectors
    names: tuple[Name, ...]
    unit: str = "vectors"
    vocab: int = 2**32  # what the bits of a number may be

    @property
    def columns(self) -> int:
        return len(self.names)

    def stride(self, context: int) -> int:
        return context  # the last row of a stretch is said and not read

    def document(self, pieces: Iterable[str]) -> list[Iterable[int]]:
        """A table whose rows come as texts, column by column."""
        return list(bits(vectors(";".join(pieces))).T)

    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> ForecastBatch:
        """Of each row of `Ahead` the columns of a stretch, and how many of its first rows are not asked for."""
        return self.batch([(numbers(columns), int(known[0])) for *columns, known in rows])

    def batch(self, stretches: Sequence[tuple[NDArray[np.float32], int]]) -> ForecastBatch:
        """Of stretches, T F, from each of which all rows are asked for but the first and as many more as it says."""
        whole = [(self.sense.scaled(torch.from_numpy(rows)), known) for rows, known in stretches if len(rows) > 1]
        if not whole:  # a model must read something, if only to learn nothing from it
            lone = self.sense.scaled(torch.from_numpy(stretches[0][0]))
            return ForecastBatch(self.sense.together([lone]), torch.empty(0, dtype=torch.long), lone[:0])
        starts = np.cumsum([0, *(len(rows) - 1 for rows, _ in whole)]).tolist()
        asked = [
            torch.arange(start + known, end)
            for start, end, (_, known) in zip(starts[:-1], starts[1:], whole, strict=True)
        ]
        wanted = [rows[1 + known :] for rows, known in whole]
        return ForecastBatch(self.sense.together([rows[:-1] for rows, _ in whole]), torch.cat(asked), torch.cat(wanted))

    def loss(self, model: nn.Module, batch: ForecastBatch) -> Tensor:
        return (batch.foreseen(model) - batch.wanted).square().mean(-1).sum()

    def measured(self) -> Forecasting:
        return self

    def kept(self) -> Mapping[str, Any]:
        return {"columns": list(self.names)}


def bits(rows: NDArray[np.float32]) -> NDArray[np.uint32]:
    """Numbers as whole ones, by their bits."""
    return np.ascontiguousarray(rows).view(np.uint32)


def numbers(columns: Sequence[np.ndarray]) -> NDArray[np.float32]:
    """The rows, T F, of columns of bits."""
    return np.ascontiguousarray(np.stack(columns, 1).astype(np.uint32)).view(np.float32)
