"""Norms that torch does not have.

Axes:  B batch   H heads   T tokens   D head width
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class UnbiasedLayerNorm(nn.LayerNorm):
    """(x − mean) / (s + ε) · weight + bias, s² being the sum of squares divided by C − 1: what some courses teach.

    torch's LayerNorm divides by C, and adds ε under the root.
    """

    def forward(self, input: Tensor) -> Tensor:
        centred = input - input.mean(-1, keepdim=True)
        return centred / (input.std(-1, correction=1, keepdim=True) + self.eps) * self.weight + self.bias


class OffsetRMSNorm(nn.RMSNorm):
    """x / rms(x) · (1 + weight): Gemma's, whose weights begin at 0 and decay to 1."""

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, 1 + self.weight, self.eps)


class JointRMSNorm(nn.RMSNorm):
    """RMSNorm over all heads of a token together, B H T D: OLMo 2's norm of queries and keys."""

    def __init__(self, heads: int, head_dim: int, eps: float | None = None):
        super().__init__(heads * head_dim, eps=eps)
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x.transpose(1, 2).flatten(2))  # B T (H D)
        return y.unflatten(-1, (self.heads, -1)).transpose(1, 2)
