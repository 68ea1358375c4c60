"""LayerNorm as some courses define it."""

from __future__ import annotations

from torch import Tensor, nn


class UnbiasedLayerNorm(nn.LayerNorm):
    """(x − mean) / (s + ε) · weight + bias, s² being the sum of squares divided by C − 1: what some courses teach.

    torch's LayerNorm divides by C, and adds ε under the root.
    """

    def forward(self, input: Tensor) -> Tensor:
        centred = input - input.mean(-1, keepdim=True)
        return centred / (input.std(-1, correction=1, keepdim=True) + self.eps) * self.weight + self.bias
