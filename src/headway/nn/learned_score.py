"""Learned attention scores: the formulas of `ops.attend` with parameters.

Bilinear and cosine scores stay dot products, so the fused kernel evaluates them too.

Axes:  B batch   H heads   T queries   S keys   D width of queries   K width of keys   A width of the additive score
"""

from __future__ import annotations

from math import log

import torch
from torch import Tensor, nn

from headway.errors import UserError
from headway.ops.attend import Additive, Bilinear, Cosine, DotScore


class AdditiveScore(nn.Module):
    """v · tanh(q + k) for each pair: Bahdanau's score, whose two matrices are the projections of query and key.

    B H T A, B H S A → B H T S
    """

    def __init__(self, width: int):
        super().__init__()
        at_least_one("AdditiveScore", width=width)
        # not zeros: then nothing but v itself would have a gradient at first
        self.v = nn.Parameter(torch.empty(width).uniform_(-(width**-0.5), width**-0.5))

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return Additive(self.v)(q, k)


class BilinearScore(DotScore, nn.Module):
    """q W kᵀ, Luong's general score, one W for all heads.  B H T D, B H S K → B H T S"""

    weight_decay = True

    def __init__(self, dim: int, key_dim: int | None = None):
        super().__init__()
        key_dim = dim if key_dim is None else key_dim
        at_least_one("BilinearScore", dim=dim, key_dim=key_dim)
        # queries and keys of variance 1 then give logits of variance 1, as the scaled dot product does
        self.weight = nn.Parameter(torch.randn(dim, key_dim) * (dim * key_dim) ** -0.5)

    def dotted(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float]:
        return Bilinear(self.weight).dotted(q, k)


class CosineScore(DotScore, nn.Module):
    """The angle's cosine times a learned factor per head: `start` at first, never above `most`.

    B H T D, B H S D → B H T S.  Swin-V2 learns its logarithm, `log_factor` (H 1 1).
    """

    weight_decay = True

    def __init__(self, heads: int, most: float = 100.0, start: float = 10.0):
        super().__init__()
        at_least_one("CosineScore", heads=heads)
        if not 0 < start <= most:
            raise UserError(f"CosineScore(start={start:g}, most={most:g}) could not learn", allowed="0 < start ≤ most")
        self.most = most
        self.log_factor = nn.Parameter(torch.full((heads, 1, 1), log(start)))

    def dotted(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float]:
        return Cosine(self.log_factor, self.most).dotted(q, k)


def at_least_one(part: str, **sizes: int) -> None:
    if any(size < 1 for size in sizes.values()):
        given = ", ".join(f"{name}={size}" for name, size in sizes.items())
        raise UserError(f"{part}({given}) is empty", allowed="sizes of 1 or more")
