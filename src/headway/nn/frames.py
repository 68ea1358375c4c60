"""From frames to tokens: anything that comes as vectors in order, made shorter before an encoder sees it.

A row of n frames becomes ⌈n / factor⌉ tokens, in a batch as by itself: the real frames of each row are moved to its
front, and what stands behind them is zero wherever a part looks sideways.

Axes:  B batch   T frames   F features   C width   N frames of all packed rows
"""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import UserError
from headway.nn.context import EMPTY, Context
from headway.nn.rows import Rows, packed, padded, to_front


class Shortening(nn.Module):
    """B T F → B ⌈T / factor⌉ C.  What comes next is called with `shortened(ctx)`; padding then stands behind."""

    def __init__(self, factor: int):
        super().__init__()
        self.factor = factor

    def aligned(self, frames: Tensor, ctx: Context) -> tuple[Tensor, Tensor]:
        """Each row's real frames first, B T F, and how many they are, B|1."""
        x = padded(frames, ctx.rows)
        real = ctx.real(x.shape[1])
        if real is None:
            return x, torch.tensor([x.shape[1]], device=x.device)
        return x.take_along_dim(to_front(real)[..., None], 1), real.sum(1)

    def shortened(self, ctx: Context) -> Context:
        """The context of the shorter sequence: its padding, and no positions but the order."""
        if ctx.rows is not None:
            rows = Rows.of([-(-length // self.factor) for length in ctx.rows.lengths], ctx.rows.slots.device)
            return replace(ctx, rows=rows, keep=None, positions=None)
        keep = ctx.keep
        if keep is not None:
            real = ctx.real(keep.shape[2])
            assert real is not None
            keep = first(-(-real.sum(1) // self.factor), -(-keep.shape[2] // self.factor))[:, None]
        return replace(ctx, keep=keep, positions=None)

    def extra_repr(self) -> str:
        return f"factor={self.factor}"


class FrameEmbed(Shortening):
    """`factor` frames side by side, projected: spectrograms, time series, or any vectors one by one (factor 1)."""

    def __init__(self, features: int, dim: int, *, factor: int = 1):
        super().__init__(factor)
        if factor < 1:
            raise UserError(f"FrameEmbed(factor={factor})", allowed="1 frame or more to a token")
        self.project = nn.Linear(features * factor, dim)

    def forward(self, frames: Tensor, ctx: Context = EMPTY) -> Tensor:
        x, count = self.aligned(frames, ctx)
        x = silenced(x, count, 1)
        x = F.pad(x, (0, 0, 0, -x.shape[1] % self.factor)).unflatten(1, (-1, self.factor))  # B T′ factor F
        return self.project(packed(x.flatten(2), self.shortened(ctx).rows))


class Subsample(Shortening):
    """Frames shortened by 2, 4, 8 …: stages of relu(conv 3×3, stride 2), then a projection."""

    def __init__(self, features: int, dim: int, *, factor: int = 4, channels: int | None = None):
        super().__init__(factor)
        stages = factor.bit_length() - 1
        if stages < 1 or factor != 2**stages:
            raise UserError(f"Subsample(factor={factor})", allowed="2, 4, 8 …: each stage halves", do="try factor=4")
        channels = dim if channels is None else channels
        self.convs = nn.ModuleList(
            nn.Conv2d(channels if stage else 1, channels, 3, stride=2, padding=1) for stage in range(stages)
        )
        self.project = nn.Linear(channels * -(-features // factor), dim)

    def forward(self, frames: Tensor, ctx: Context = EMPTY) -> Tensor:
        x, count = self.aligned(frames, ctx)
        x = x[:, None]  # B 1 T F
        for conv in self.convs:
            x, count = F.relu(conv(silenced(x, count, 2))), (count + 1) // 2  # B channels T/2 F/2
        x = x.transpose(1, 2).flatten(2)  # B T′ (channels F′)
        return self.project(packed(x, self.shortened(ctx).rows))


def silenced(x: Tensor, count: Tensor, axis: int) -> Tensor:
    """`x` with zeros behind the first `count` (B|1) frames along `axis`."""
    here = first(count, x.shape[axis])  # B|1 T
    shape = [-1, *(x.shape[axis] if i == axis else 1 for i in range(1, x.dim()))]
    return x.masked_fill(~here.view(shape), 0.0)


def first(count: Tensor, length: int) -> Tensor:
    """True at the first `count` (B) of `length` tokens, B T."""
    return torch.arange(length, device=count.device) < count[:, None]
