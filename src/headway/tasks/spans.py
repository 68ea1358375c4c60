"""Span corruption, as T5 does it: runs of tokens are taken out, and written in order by the decoder.

the quick brown fox jumps over  →  the <0> fox <1>   and to write   <0> quick brown <1> jumps over <2>

A row always begins with what is left and ends with what was taken out, as in T5's own code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

from headway.data.tokenizer import Tokenizer
from headway.errors import UserError
from headway.tasks.pairs import PairBatch, pair_batch, said_after
from headway.tasks.task import Row, Said, ids, some


@dataclass(frozen=True, eq=False)
class Spans:
    """Write the runs that were taken out: a `share` of the tokens, in runs of `length` on average.

    `marks` are the ids of the tokens that stand for the runs, in their order.
    """

    words: Tokenizer
    begin: int
    marks: tuple[int, ...]
    share: float = 0.15
    length: float = 3.0

    def __post_init__(self) -> None:
        if len(self.marks) < 2:
            raise UserError(f"{len(self.marks)} tokens to mark spans with", allowed="2 or more, such as <extra_id_0>")

    @property
    def frame(self) -> tuple[list[int], list[int]]:
        return [], []

    def stride(self, context: int) -> int:
        return context - 1 - len(some(self.words.eos))  # marks are never more than the tokens they stand for

    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> PairBatch:
        whole = [row for (row,) in rows if len(row) > 1] or [rows[0][0]]
        return pair_batch([self.corrupted(row, random) for row in whole], self.begin)

    def corrupted(self, row: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """What is left, and what was taken out, each with the marks of the runs and the end."""
        gone = round(min(max(len(row) * self.share, 1), len(row) - 1)) if len(row) > 1 else 0
        runs = round(min(max(gone / self.length, 1), gone, len(row) - gone, len(self.marks) - 1)) if gone else 0
        cuts = np.cumsum(np.stack([parts(len(row) - gone, runs, random), parts(gone, runs, random)], 1).ravel())
        pieces = np.split(row, cuts[:-1]) if runs else [row]
        left = [part for run in range(runs) for part in (pieces[2 * run], self.marks[run])]
        out = [part for run in range(runs) for part in (self.marks[run], pieces[2 * run + 1])]
        end = some(self.words.eos)
        return ids(*(left or [row]), end), ids(*out, self.marks[runs], end)

    def loss(self, model: nn.Module, batch: PairBatch) -> Tensor:
        return self.said(model, batch).loss()

    def said(self, model: nn.Module, batch: PairBatch) -> Said:
        return said_after(model, batch)

    def measured(self) -> Spans:
        return self

    def kept(self) -> Mapping[str, Any]:
        return {"decoder_start_token_id": self.begin, "eos_token_id": self.words.eos}


def parts(total: int, count: int, random: np.random.Generator) -> np.ndarray:
    """`total` in `count` parts of 1 or more, every way equally likely."""
    if count == 0:
        return np.zeros(0, dtype=np.int64)
    cuts = np.sort(random.choice(total - 1, count - 1, replace=False)) + 1
    return np.diff(np.concatenate([[0], cuts, [total]]))
