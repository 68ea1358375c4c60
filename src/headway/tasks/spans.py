"""Span corruption, as T5 does it: runs of tokens are taken out, and written in order by the decoder.

the quick brown fox jumps over  →  the <0> fox <1> over   and to write   <0> quick brown <1> jumps <2>

A run may also stand at either end.  (In T5's first code a row always ended with one: of a short row, which has but one
run, that would always be its end.)
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
from headway.tasks.task import Documents, Row, Said, ids, some


@dataclass(frozen=True, eq=False)
class Spans(Documents):
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

    def stride(self, context: int) -> int:
        return context - 1 - len(some(self.words.eos))  # marks are never more than the tokens they stand for

    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> PairBatch:
        whole = [row for (row,) in rows if len(row) > 1] or [rows[0][0]]
        return pair_batch([self.corrupted(row, random) for row in whole], self.begin)

    def corrupted(self, row: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """What is left, and what was taken out, each with the marks of the runs and the end."""
        gone = round(min(max(len(row) * self.share, 1), len(row) - 1))
        runs = round(min(max(gone / self.length, 1), gone, len(row) - gone, len(self.marks) - 1))
        sizes = np.zeros(2 * runs + 1, dtype=np.int64)  # what is left, taken out, left …: at the ends perhaps nothing
        sizes[0::2], sizes[1::2] = parts(len(row) - gone + 2, runs + 1, random), parts(gone, runs, random)
        sizes[0] -= 1
        sizes[-1] -= 1
        pieces, marks = np.split(row, np.cumsum(sizes)[:-1]), self.marks[: runs + 1]
        left = [part for pair in zip(pieces[0::2], marks, strict=True) for part in pair][:-1]
        out = [part for pair in zip(marks, pieces[1::2], strict=False) for part in pair]
        end = some(self.words.eos)
        return ids(*left, end), ids(*out, marks[-1], end)

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
