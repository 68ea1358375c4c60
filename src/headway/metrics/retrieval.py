"""Finding the text that belongs to an image, and the image that belongs to a text, by how alike their vectors are.

Recall at k is the share of queries that have a right answer among their k nearest; what ties with a right answer is
counted before it, so that vectors which are all the same find nothing.

Axes:  N images   M texts
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.errors import UserError
from headway.metrics.intervals import Numbers, Rows, Share, Statistic, alike
from headway.metrics.scores import Scores
from headway.ops.attend import shape_text

KS = (1, 5, 10)


def score_retrieval(similarity: Tensor, owners: Sequence[int], *, ks: Sequence[int] = KS) -> Scores:
    """Recall both ways, and the median rank of the first right answer: `similarity` is N M, `owners` each text's image.

    "texts_5" is how often an image finds one of its texts among five, "images_5" a text its image.
    """
    right = belonging(similarity, owners)
    found = {"texts": first_ranks(similarity, right), "images": first_ranks(similarity.mT, right.mT)}
    recalls = {f"{there}_{k}": recall(ranks, k) for there, ranks in found.items() for k in ks}
    middles = {f"{there}_rank": MedianRank(ranks.numpy()) for there, ranks in found.items()}
    several: dict[str, Statistic] = {**recalls, **middles}
    numbers = {name: one.value() for name, one in several.items()}
    return Scores(numbers, len(similarity), "images", statistics=several)


def first_ranks(similarity: Tensor, right: Tensor) -> Tensor:
    """The rank, from 1, of the best right answer to each query: N M, and which of these are right, N M → N."""
    best = similarity.masked_fill(~right, float("-inf")).amax(1, keepdim=True)  # N 1
    return 1 + ((similarity >= best) & ~right).sum(1)


def recall(ranks: Tensor, k: int) -> Share:
    """The share of queries whose first right answer is among the `k` nearest."""
    if k < 1:
        raise UserError(f"recall at {k}", allowed="the 1 nearest or more")
    return Share((ranks <= k).numpy())


@dataclass(frozen=True, eq=False)
class MedianRank(Statistic):
    """The median of the ranks of queries; of two in the middle their mean."""

    ranks: NDArray[np.int64]

    @property
    def count(self) -> int:
        return len(self.ranks)

    def value(self) -> float:
        return float(np.median(self.ranks))

    def subset(self, rows: Rows) -> Self:
        return replace(self, ranks=self.ranks[list(rows)])

    def joined(self, others: Sequence[Statistic]) -> Self:
        return replace(self, ranks=np.concatenate([one.ranks for one in alike(self, others)]))

    def resampled(self, counts: Numbers) -> Numbers:
        ranks, upto = np.sort(self.ranks), counts.cumsum(1)
        middles = ((self.count + 1) // 2, self.count // 2 + 1)
        return np.mean([ranks[(upto >= middle).argmax(1)] for middle in middles], 0)


def chance_recall(right: int, among: int, k: int) -> float:
    """Recall at k by chance, where so many answers among all are right: 1 − the chance that k drawn ones are wrong."""
    missed = 1.0
    for drawn in range(min(k, among)):
        missed *= max(0, among - right - drawn) / (among - drawn)
    return 1.0 - missed


def belonging(similarity: Tensor, owners: Sequence[int]) -> Tensor:
    """Which text belongs to which image, N M; what cannot be measured is told."""
    if similarity.dim() != 2 or similarity.shape[1] != len(owners) or not len(owners):
        said = f"similarities of {shape_text(similarity)} for {len(owners)} texts"
        raise UserError(said, allowed="N×M, images by texts, and the image of each text")
    images = len(similarity)
    if set(owners) != set(range(images)):
        said = f"the texts belong to {len(set(owners))} images of {images}"
        raise UserError(said, allowed=f"images 0 to {images - 1}, each with one text or more")
    if not similarity.isfinite().all():
        raise UserError("some similarities are not finite", do="look for NaN or ±∞ in the model's weights")
    return torch.arange(images, device=similarity.device)[:, None] == torch.tensor(owners, device=similarity.device)
