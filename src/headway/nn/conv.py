"""The Conformer's convolution module, and batch norm over real frames.

A convolution mixes frames, so padding is set to zero before it: a row gives the same result in a batch as alone,
wherever its padding stands.

Axes:  B batch   T frames   C width   N frames of all packed rows
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import UserError
from headway.nn.context import EMPTY, Context
from headway.nn.ffn import Activation
from headway.nn.packed import packed, padded


class BatchNorm(nn.BatchNorm1d):
    """Batch norm of each channel whose statistics see real frames only.  B T C, or packed 1 N C."""

    def __init__(self, dim: int, *, eps: float = 1e-5, momentum: float = 0.1):
        super().__init__(dim, eps, momentum)

    def forward(self, input: Tensor, ctx: Context = EMPTY) -> Tensor:
        real = None if ctx.rows is not None else ctx.real(input.shape[1])
        if has_single_values(input):
            return normalise_by_running_statistics(self, input.flatten(0, -2)).view_as(input)
        if real is None or not self.training:
            return super().forward(input.flatten(0, -2)).view_as(input)
        weight = real.expand(input.shape[:2])[..., None].to(input.dtype)  # B T 1
        count = weight.sum()
        mean = (input * weight).sum((0, 1)) / count  # C
        variance = ((input - mean).square() * weight).sum((0, 1)) / count
        self.track(mean, variance * count / (count - 1).clamp(min=1))
        return (input - mean) * (variance + self.eps).rsqrt() * self.weight + self.bias

    @torch.no_grad()
    def track(self, mean: Tensor, variance: Tensor) -> None:
        """Moves the running statistics, as torch does, towards the mean and the unbiased variance of this batch."""
        for kept, now in ((self.running_mean, mean), (self.running_var, variance)):
            assert kept is not None
            kept.lerp_(now.to(kept.dtype), self.momentum or 0.0)
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)


def has_single_values(x: Tensor) -> bool:
    """Whether each channel of … C has a single value, which has no spread: it is normed as outside of training."""
    return x.numel() == x.shape[-1]


def normalise_by_running_statistics(norm: nn.BatchNorm1d | nn.BatchNorm2d, x: Tensor) -> Tensor:
    """Normed by the statistics gathered so far, B C …; nothing is gathered."""
    return F.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps)


class ConvModule(nn.Module):
    """out(act(norm(depthwise(glu(expand(x)))))): the Conformer's convolution over `kernel` frames.  B T C → B T C

    `norm` makes a part of (x, ctx) from the width; for one of x alone give `lambda dim: Plain(nn.LayerNorm(dim))`.
    """

    tokenwise = False

    def __init__(
        self,
        dim: int,
        *,
        kernel: int = 31,
        norm: Callable[[int], nn.Module] = BatchNorm,
        act: Activation = F.silu,
        bias: bool = True,
    ):
        super().__init__()
        if kernel < 1 or kernel % 2 == 0:
            do = f"try kernel={max(kernel, 0) + 1}"
            raise UserError(
                f"ConvModule(kernel={kernel}) has no middle frame", allowed="an odd number of frames", do=do
            )
        self.expand, self.out = nn.Linear(dim, 2 * dim, bias), nn.Linear(dim, dim, bias)
        self.depthwise = nn.Conv1d(dim, dim, kernel, padding=kernel // 2, groups=dim, bias=bias)
        self.norm, self.act = norm(dim), act

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        if ctx.state is not None:
            raise UserError("a convolution that looks ahead cannot be called in chunks", do="call it without a state")
        x = padded(F.glu(self.expand(x)), ctx.rows)
        real = ctx.real(x.shape[1])
        x = x if real is None else x.masked_fill(~real[..., None], 0.0)
        x = packed(self.depthwise(x.mT).mT, ctx.rows)
        return self.out(self.act(self.norm(x, ctx)))
