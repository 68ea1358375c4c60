"""Embeddings that shorten their input: frames (spectrograms, time series), and waveforms as in wav2vec 2.0.

A row of n frames becomes ⌈n / factor⌉ tokens, in a batch as by itself: the real frames of each row are moved to its
front, and what stands behind them is zero wherever a part looks sideways.  The convolutions over a waveform take no
padding, so a clip of n samples becomes as many tokens as it has windows.

Axes:  B batch   T frames or tokens   F features   C width   N samples, or frames of all packed rows   K channels
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import UserError
from headway.nn.block import Dropout, Identity
from headway.nn.context import EMPTY, Context, PackedLengths, packed, padded, to_front
from headway.nn.embed import NoPosition
from headway.nn.ffn import Activation

Count = TypeVar("Count", int, Tensor)


class Shortening(nn.Module):
    """B T F → B ⌈T / factor⌉ C.  What comes next is called with `shortened(ctx)`; padding then stands behind."""

    def __init__(self, factor: int):
        super().__init__()
        self.factor = factor

    def length(self, frames: Count) -> Count:
        """How many tokens so many frames become."""
        return (frames + self.factor - 1) // self.factor  # ONNX divides negative numbers toward zero

    def aligned(self, frames: Tensor, ctx: Context) -> tuple[Tensor, Tensor]:
        """Each row's real frames first, B T F, and how many they are, B|1."""
        x = padded(frames, ctx.rows)
        real = ctx.real(x.shape[1])
        if real is None:
            return x, torch.tensor([x.shape[1]], device=x.device)
        order = to_front(real)[..., None].expand(-1, -1, x.shape[2])  # torch exports no take_along_dim
        return x.gather(1, order), real.sum(1)

    def shortened(self, ctx: Context) -> Context:
        """The context of the shorter sequence: its padding, and no positions but the order."""
        if ctx.rows is not None:
            rows = PackedLengths.of([self.length(frames) for frames in ctx.rows.lengths], ctx.rows.slots.device)
            return replace(ctx, rows=rows, keep=None, positions=None)
        keep = ctx.keep
        if keep is not None:
            real = ctx.real(keep.shape[2])
            assert real is not None
            keep = length_mask(self.length(real.sum(1)), self.length(keep.shape[2]))[:, None]
        return replace(ctx, keep=keep, positions=None)

    def extra_repr(self) -> str:
        return f"factor={self.factor}"


class FrameEmbed(Shortening):
    """`factor` frames side by side, projected: spectrograms, time series, or any vectors one by one (factor 1).

    `position` is a part that adds a mark of each token's position.
    """

    emits = ("out",)

    def __init__(
        self, features: int, dim: int, *, factor: int = 1, position: nn.Module | None = None, dropout: float = 0.0
    ):
        super().__init__(factor)
        if factor < 1:
            raise UserError(f"FrameEmbed(factor={factor})", allowed="1 frame or more to a token")
        self.project, self.drop = nn.Linear(features * factor, dim), Dropout(dropout)
        self.position = position or NoPosition()

    def forward(self, frames: Tensor, ctx: Context = EMPTY) -> Tensor:
        x, count = self.aligned(frames, ctx)
        x = zero_padding(x, count, 1)
        x = F.pad(x, (0, 0, 0, -x.shape[1] % self.factor)).unflatten(1, (-1, self.factor))  # B T′ factor F
        inner = self.shortened(ctx)
        return ctx.emit(self, "out", self.drop(self.position(self.project(packed(x.flatten(2), inner.rows)), inner)))


class Subsample(Shortening):
    """Frames shortened by 2, 4, 8 …: stages of relu(conv 3×3, stride 2), then a projection."""

    emits = ("out",)

    def __init__(self, features: int, dim: int, *, factor: int = 4, channels: int | None = None, dropout: float = 0.0):
        super().__init__(factor)
        stages = factor.bit_length() - 1
        if stages < 1 or factor != 2**stages:
            raise UserError(f"Subsample(factor={factor})", allowed="2, 4, 8 …: each stage halves", do="try factor=4")
        channels = dim if channels is None else channels
        self.convs = nn.ModuleList(
            nn.Conv2d(channels if stage else 1, channels, 3, stride=2, padding=1) for stage in range(stages)
        )
        self.project, self.drop = nn.Linear(channels * -(-features // factor), dim), Dropout(dropout)

    def forward(self, frames: Tensor, ctx: Context = EMPTY) -> Tensor:
        x, count = self.aligned(frames, ctx)
        x = x[:, None]  # B 1 T F
        for conv in self.convs:
            x, count = F.relu(conv(zero_padding(x, count, 2))), (count + 1) // 2  # B channels T/2 F/2
        x = x.transpose(1, 2).flatten(2)  # B T′ (channels F′)
        return ctx.emit(self, "out", self.drop(self.project(packed(x, self.shortened(ctx).rows))))


class ConvEmbed(Shortening):
    """drop(position(act(conv(… act(conv(x)))))): convolutions over 3 frames, one for each of `strides`, then positions.

    Whisper has strides 1 and 2.  `position` is a part that adds a mark of each token's position.
    """

    emits = ("out",)

    def __init__(
        self,
        features: int,
        dim: int,
        *,
        strides: tuple[int, ...] = (1, 2),
        act: Activation = F.gelu,
        position: nn.Module | None = None,
        dropout: float = 0.0,
    ):
        super().__init__(prod(strides))
        if not strides or min(strides) < 1:
            raise UserError(f"ConvEmbed(strides={strides})", allowed="one stride or more, each of 1 frame or more")
        widths = (features, *[dim] * len(strides))
        self.convs = nn.ModuleList(
            nn.Conv1d(width, dim, 3, stride=stride, padding=1)
            for width, stride in zip(widths[:-1], strides, strict=True)
        )
        self.features, self.strides, self.act = features, strides, act
        self.position, self.drop = position or NoPosition(), Dropout(dropout)

    def forward(self, frames: Tensor, ctx: Context = EMPTY) -> Tensor:
        x, count = self.aligned(frames, ctx)
        x, inner = x.mT, self.shortened(ctx)  # B F T
        for conv, stride in zip(self.convs, self.strides, strict=True):
            x, count = self.act(conv(zero_padding(x, count, 2))), (count + stride - 1) // stride
        x = self.position(packed(x.mT, inner.rows), inner)  # B T′ C
        return ctx.emit(self, "out", self.drop(x))


class WaveEmbed(Shortening):
    """drop(project(norm(stages))), stages of act(norm(conv(x))): B N 1 → B T C.

    wav2vec 2.0 has then a `position`, the norm `after` it, and dropout once more.
    """

    emits = ("out",)
    reads_waveforms = True

    def __init__(
        self,
        dim: int,
        windows: Sequence[ConvWindow],
        *,
        act: Activation = F.gelu,
        bias: bool = False,
        eps: float = 1e-5,
        dropout: float = 0.0,
        position: nn.Module | None = None,
        after: nn.Module | None = None,
        last_dropout: float = 0.0,
    ):
        super().__init__(prod(window.stride for window in windows))
        if not windows or min(min(window[:3]) for window in windows) < 1:
            allowed = "one or more, with channels, kernel and stride of 1 or more"
            raise UserError(f"WaveEmbed with windows of {[window[:3] for window in windows]}", allowed=allowed)
        widths = [1, *(window.channels for window in windows)]
        self.convs = nn.ModuleList(
            nn.Conv1d(width, window.channels, window.kernel, window.stride, bias=bias)
            for width, window in zip(widths, windows, strict=False)
        )
        self.norms = nn.ModuleList(window.norm for window in windows)
        self.sizes, self.act = [(window.kernel, window.stride) for window in windows], act
        self.norm, self.project = nn.LayerNorm(widths[-1], eps=eps), nn.Linear(widths[-1], dim)
        self.drop, self.last_drop = Dropout(dropout), Dropout(last_dropout)
        self.position, self.after = position or NoPosition(), after or Identity()

    def forward(self, frames: Tensor, ctx: Context = EMPTY) -> Tensor:
        x, count = self.aligned(frames, ctx)
        self.length(x.shape[1])
        x = x.mT  # B 1 N
        for conv, norm, (kernel, stride) in zip(self.convs, self.norms, self.sizes, strict=True):
            count = (count - kernel) // stride + 1
            x = self.act(norm(conv(x), count))  # B K N′
        inner = self.shortened(ctx)
        x = self.drop(self.project(self.norm(packed(x.mT, inner.rows))))  # B T C
        return ctx.emit(self, "out", self.last_drop(self.after(self.position(x, inner))))

    def length(self, frames: Count) -> Count:
        for kernel, stride in self.sizes:
            frames = (frames - kernel) // stride + 1
        if isinstance(frames, int) and frames < 1:
            raise UserError("a clip is too short for one token", allowed=f"{self.least()} samples or more")
        return frames

    def least(self) -> int:
        """The samples that one token is made of."""
        samples = 1
        for kernel, stride in reversed(self.sizes):
            samples = (samples - 1) * stride + kernel
        return samples


class ConvWindow(NamedTuple):
    """A convolution over `kernel` places, every `stride` of them, to `channels`; `norm` is called with (x, count)."""

    channels: int
    kernel: int
    stride: int
    norm: nn.Module


class ChannelNorm(nn.LayerNorm):
    """Layer norm of each place over its channels.  B K T"""

    def forward(self, input: Tensor, count: Tensor | None = None) -> Tensor:
        return super().forward(input.mT).mT


class TimeNorm(nn.Module):
    """Each channel to mean 0 and variance 1 over the first `count` (B|1) places of its row.  B K T"""

    def __init__(self, channels: int, *, eps: float = 1e-5):
        super().__init__()
        self.eps = eps
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor, count: Tensor) -> Tensor:
        here = length_mask(count, x.shape[2])[:, None]  # B|1 1 T
        count = count[:, None, None]
        x = x - (x * here).sum(2, keepdim=True) / count
        x = x * ((x * here).square().sum(2, keepdim=True) / count + self.eps).rsqrt()
        return x * self.weight[:, None] + self.bias[:, None]


def zero_padding(x: Tensor, count: Tensor, axis: int) -> Tensor:
    """`x` with zeros behind the first `count` (B|1) frames along `axis`."""
    here = length_mask(count, x.shape[axis])  # B|1 T
    shape = [-1, *(x.shape[axis] if i == axis else 1 for i in range(1, x.dim()))]
    return x.masked_fill(~here.view(shape), 0.0)


def length_mask(count: Tensor, length: int) -> Tensor:
    """True at the first `count` (B) of `length` tokens, B T."""
    return torch.arange(length, device=count.device) < count[:, None]
