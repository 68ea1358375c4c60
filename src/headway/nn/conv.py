"""Convolution beside attention: the Conformer's module, and the shortening of frames before an encoder.

A convolution looks sideways, so padding is made zero before each: a row then sees at its ends what it would see by
itself, wherever its padding stands.

Axes:  B batch   T frames   F features   C width   N frames of all packed rows
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import UserError
from headway.nn.context import EMPTY, Context
from headway.nn.rows import Rows, packed, padded
from headway.ops.attend import shown
from headway.ops.pattern import both


class BatchNorm(nn.BatchNorm1d):
    """Batch norm of each channel whose statistics see real frames only.  B T C, or packed 1 N C."""

    def __init__(self, dim: int, *, eps: float = 1e-5, momentum: float = 0.1):
        super().__init__(dim, eps, momentum)

    def forward(self, input: Tensor, ctx: Context = EMPTY) -> Tensor:
        real = None if ctx.rows is not None else real_tokens(ctx, input.shape[1])
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


class ConvModule(nn.Module):
    """out(silu(norm(depthwise(glu(expand(x)))))): the Conformer's convolution over `kernel` frames.  B T C → B T C

    `norm` makes a part of (x, ctx) from the width; for one of x alone give `lambda dim: Plain(nn.LayerNorm(dim))`.
    """

    def __init__(self, dim: int, *, kernel: int = 31, norm: Callable[[int], nn.Module] = BatchNorm):
        super().__init__()
        if kernel < 1 or kernel % 2 == 0:
            do = f"try kernel={max(kernel, 0) + 1}"
            raise UserError(
                f"ConvModule(kernel={kernel}) has no middle frame", allowed="an odd number of frames", do=do
            )
        self.expand, self.out = nn.Linear(dim, 2 * dim), nn.Linear(dim, dim)
        self.depthwise = nn.Conv1d(dim, dim, kernel, padding=kernel // 2, groups=dim)
        self.norm = norm(dim)

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        if ctx.state is not None:
            raise UserError("a convolution that looks ahead cannot be called in chunks", do="call it without a state")
        x = padded(F.glu(self.expand(x)), ctx.rows)
        real = real_tokens(ctx, x.shape[1])
        x = x if real is None else x.masked_fill(~real[..., None], 0.0)
        x = packed(self.depthwise(x.mT).mT, ctx.rows)
        return self.out(F.silu(self.norm(x, ctx)))


class Subsample(nn.Module):
    """Frames shortened by `factor` = 2, 4, 8 …: stages of relu(conv 3×3, stride 2), then a projection.

    B T F → B ⌈T / factor⌉ C.  A row of n frames becomes ⌈n / factor⌉, as it would by itself; its padding, on whatever
    side it was, stands behind it.  What comes next is called with `shortened(ctx)`.
    """

    def __init__(self, features: int, dim: int, *, factor: int = 4, channels: int | None = None):
        super().__init__()
        stages = factor.bit_length() - 1
        if stages < 1 or factor != 2**stages:
            raise UserError(f"Subsample(factor={factor})", allowed="2, 4, 8 …: each stage halves", do="try factor=4")
        channels = dim if channels is None else channels
        self.factor = factor
        self.convs = nn.ModuleList(
            nn.Conv2d(channels if stage else 1, channels, 3, stride=2, padding=1) for stage in range(stages)
        )
        self.project = nn.Linear(channels * -(-features // factor), dim)

    def forward(self, frames: Tensor, ctx: Context = EMPTY) -> Tensor:
        x = padded(frames, ctx.rows)  # B T F
        real = real_tokens(ctx, x.shape[1])
        if real is None:
            real = x.new_ones(1, x.shape[1], dtype=torch.bool)
        else:
            x = x.take_along_dim(to_front(real)[..., None], 1)
        x, count = x[:, None], real.sum(1)
        for conv in self.convs:
            padding = ~first(count, x.shape[2])[:, None, :, None]
            x, count = F.relu(conv(x.masked_fill(padding, 0.0))), (count + 1) // 2  # B channels T/2 F/2
        x = x.transpose(1, 2).flatten(2)  # B T′ (channels F′)
        return self.project(packed(x, self.shortened(ctx).rows))

    def shortened(self, ctx: Context) -> Context:
        """The context of the shorter sequence: its padding, and no positions but the order."""
        if ctx.rows is not None:
            rows = Rows.of([-(-length // self.factor) for length in ctx.rows.lengths], ctx.rows.slots.device)
            return replace(ctx, rows=rows, keep=None, positions=None)
        keep = ctx.keep
        if keep is not None:
            real = real_tokens(ctx, keep.shape[2])
            assert real is not None
            keep = first(-(-real.sum(1) // self.factor), -(-keep.shape[2] // self.factor))[:, None]
        return replace(ctx, keep=keep, positions=None)

    def extra_repr(self) -> str:
        return f"factor={self.factor}"


def real_tokens(ctx: Context, length: int) -> Tensor | None:
    """Which of the `length` tokens of the padded view are real, B|1 T; None: all."""
    keep = both(ctx.keep, None if ctx.rows is None else ctx.rows.keep)
    if keep is None:
        return None
    if keep.shape[1:] != (1, length):
        do = "this part sees all real tokens: what each query may see is for attention alone"
        raise UserError(
            f"keep is {shown(keep)} for {length} tokens", allowed=f"B 1 {length}, True at real tokens", do=do
        )
    return keep[:, 0]


def to_front(real: Tensor) -> Tensor:
    """The order, B T, in which the real tokens of each row come first."""
    return (~real).to(torch.uint8).argsort(dim=1, stable=True)


def first(count: Tensor, length: int) -> Tensor:
    """True at the first `count` (B) of `length` tokens, B T."""
    return torch.arange(length, device=count.device) < count[:, None]
