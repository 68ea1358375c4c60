"""Attention scores of query and key (dot product, additive, bilinear, cosine), before bias, mask and softmax.

Three of the four scores are dot products once query and key are prepared (`dotted`), so the fused kernel evaluates
them too; only the additive score has to be written out.

Axes:  B batch   H heads   T queries   S keys   D head width   A width of the additive score
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import log
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor


class Score(Protocol):
    """score(q, k): B H T D, B H S D → B H T S"""

    def __call__(self, q: Tensor, k: Tensor) -> Tensor: ...


class DotScore(ABC):
    """A score that is a dot product of prepared queries and keys."""

    @abstractmethod
    def dotted(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float]:
        """(q′, k′, scale) with score(q, k) = scale · q′ k′ᵀ.  Query and key may differ in their number of heads."""

    def __call__(self, q: Tensor, k: Tensor) -> Tensor:
        q, k, scale = self.dotted(q, k)
        return (q * scale) @ k.mT


@dataclass(frozen=True)
class Dot(DotScore):
    """Scaled dot product, q kᵀ / √D; another `scale` may be given (T5 takes 1)."""

    scale: float | None = None

    def dotted(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float]:
        return q, k, q.shape[-1] ** -0.5 if self.scale is None else self.scale


DOT = Dot()


@dataclass(frozen=True, eq=False)
class Additive:
    """v · tanh(q + k) for each pair: Bahdanau's score, its two matrices already applied.  `v` is (A,)."""

    v: Tensor

    def __call__(self, q: Tensor, k: Tensor) -> Tensor:
        return torch.tanh(q[:, :, :, None] + k[:, :, None]) @ self.v


@dataclass(frozen=True, eq=False)
class Bilinear(DotScore):
    """q W kᵀ, Luong's general score.  `weight` is (D, D′) for keys of width D′, or (H, D, D′)."""

    weight: Tensor

    def dotted(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float]:
        return q @ self.weight, k, 1.0


@dataclass(frozen=True, eq=False)
class Cosine(DotScore):
    """The cosine of the angle times a factor per head, exp(log_factor) (H 1 1), held at `most` (Swin-V2: 100)."""

    log_factor: Tensor
    most: float = 100.0

    def dotted(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float]:
        factor = self.log_factor.clamp(max=log(self.most)).exp()
        return F.normalize(q, dim=-1) * factor, F.normalize(k, dim=-1), 1.0
