"""wav2vec 2.0's convolutional feature encoder, from a raw waveform to tokens.

They take no padding, so a clip of n samples becomes as many tokens as it has windows, in a batch as alone.

Axes:  B batch   N samples   T tokens   K channels   C width
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import UserError
from headway.nn.block import Dropout
from headway.nn.context import EMPTY, Context
from headway.nn.ffn import Activation
from headway.nn.frames import Count, Shortening, length_mask
from headway.nn.packed import packed


class ConvWindow(NamedTuple):
    """A convolution over `kernel` places, every `stride` of them, to `channels`; `norm` is called with (x, count)."""

    channels: int
    kernel: int
    stride: int
    norm: nn.Module


class WaveEmbed(Shortening):
    """drop(project(norm(stages))), stages of act(norm(conv(x))): B N 1 → B T C."""

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
        self.drop = Dropout(dropout)

    def forward(self, frames: Tensor, ctx: Context = EMPTY) -> Tensor:
        x, count = self.aligned(frames, ctx)
        self.length(x.shape[1])
        x = x.mT  # B 1 N
        for conv, norm, (kernel, stride) in zip(self.convs, self.norms, self.sizes, strict=True):
            count = (count - kernel) // stride + 1
            x = self.act(norm(conv(x), count))  # B K N′
        x = packed(x.mT, self.shortened(ctx).rows)  # B T K
        return ctx.emit(self, "out", self.drop(self.project(self.norm(x))))

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
