"""Convolutions: on grids (ResNet, attention-augmented ResNet), the Conformer's over time, and over tokens; batch norm.

A grid keeps the order in memory that it comes in, channel by channel as images or cell by cell as attention's: one
step of ResNet-18 takes a fifth longer where each part is made to lie cell by cell.  Over time, padding is set to zero
before the convolution, and batch norm sees real frames alone: a row gives the same result in a batch as by itself,
wherever its padding stands.

Axes:  B batch   Ch channels   H W pixels   Y X rows and columns of the grid   C width   T frames
       N frames of all packed rows
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import UserError
from headway.nn.context import EMPTY, Context, packed, padded
from headway.nn.ffn import Activation
from headway.nn.recurrent import load_hidden, real_steps, store_hidden
from headway.ops.attend import divisors, shape_text


class Stem(nn.Module):
    """Parts in turn on the pixels of an image: B Ch H W → B Y X C."""

    emits = ("out",)

    def __init__(self, channels: int, *parts: nn.Module):
        super().__init__()
        self.channels, self.blocks = channels, nn.ModuleList(parts)

    def forward(self, images: Tensor, ctx: Context = EMPTY) -> Tensor:
        if images.dim() != 4 or images.shape[1] != self.channels or 0 in images.shape:
            allowed = f"B {self.channels} H W, of one pixel or more"
            raise UserError(f"images are {shape_text(images)}", allowed=allowed)
        x = images.movedim(1, -1)
        for part in self.blocks:
            x = part(x, ctx)
        return ctx.emit(self, "out", x)


class GridConv(nn.Conv2d):
    """A convolution over the grid, B Y X C → B ⌈Y / stride⌉ ⌈X / stride⌉ C′, with zeros around it."""

    def __init__(self, dim: int, out_dim: int, kernel: int, *, stride: int = 1, bias: bool = False, groups: int = 1):
        if kernel < 1 or kernel % 2 == 0 or stride < 1:
            said = f"GridConv(kernel={kernel}, stride={stride})"
            raise UserError(said, allowed="an odd kernel and a stride of 1 or more")
        super().__init__(dim, out_dim, kernel, stride, kernel // 2, groups=groups, bias=bias)
        # torch 2.13's gradient of 1×1 with a stride writes beyond its memory, where cells of fewer than 8 channels lie
        # one by one; so the cells are picked first
        self.picked = stride if kernel == 1 else 1

    def forward(self, input: Tensor, ctx: Context = EMPTY) -> Tensor:
        image = input[:, :: self.picked, :: self.picked].permute(0, 3, 1, 2)  # B C Y X
        stride = 1 if self.picked > 1 else self.stride
        return F.conv2d(image, self.weight, self.bias, stride, self.padding, groups=self.groups).permute(0, 2, 3, 1)


class HalvedGrid(nn.Module):
    """conv(norm(x)) over squares of 2×2 cells: B Y X C → B ⌊Y / 2⌋ ⌊X / 2⌋ C′ (ConvNeXt).

    What is left at the right and the bottom is not seen; a side of one cell is filled up with zeros.
    """

    tokenwise = False

    def __init__(self, dim: int, out_dim: int, norm: nn.Module):
        super().__init__()
        self.norm, self.conv = norm, nn.Conv2d(dim, out_dim, 2, stride=2)

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        rows, cols = x.shape[1:3]
        x = F.pad(self.norm(x), (0, 0, 0, cols == 1, 0, rows == 1))
        return self.conv(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


class MaxPool(nn.MaxPool2d):
    """The largest of 3×3 cells at every second: B Y X C → B ⌈Y / 2⌉ ⌈X / 2⌉ C."""

    def __init__(self) -> None:
        super().__init__(3, stride=2, padding=1)

    def forward(self, input: Tensor, ctx: Context = EMPTY) -> Tensor:
        pooled = F.max_pool2d(input.permute(0, 3, 1, 2), self.kernel_size, self.stride, self.padding)
        return pooled.permute(0, 2, 3, 1)


class Normed(nn.Module):
    """act(norm(body(x))): a convolution, or what stands in its place, with batch norm.  B Y X C → B Y′ X′ `dim`"""

    tokenwise = False

    def __init__(self, body: nn.Module, dim: int, *, act: Activation = F.relu):
        super().__init__()
        self.body, self.norm, self.act = body, GridNorm(dim), act

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        return self.act(self.norm(self.body(x, ctx)))


class GridNorm(nn.BatchNorm2d):
    """Batch norm of each channel over all cells, B Y X C."""

    def forward(self, input: Tensor) -> Tensor:
        x = input.permute(0, 3, 1, 2)  # B C Y X
        return (normalise_by_running_statistics(self, x) if has_single_values(input) else super().forward(x)).permute(
            0, 2, 3, 1
        )


def no_activation(x: Tensor) -> Tensor:
    """No activation."""
    return x


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
        x = only_real(padded(F.glu(self.expand(x)), ctx.rows), ctx.real)
        x = packed(self.depthwise(x.mT).mT, ctx.rows)
        return self.out(self.act(self.norm(x, ctx)))


class SequenceConv(nn.Module):
    """Each token from `kernel` tokens around it, `dilation` apart: Σ_j W_j x_{t+j} + b, and zeros beyond the ends.

    B T C → B T C
    """

    tokenwise = False
    shares_memory = False  # its state belongs to a row

    def __init__(self, dim: int, kernel: int, dilation: int = 1):
        super().__init__()
        self.conv = nn.Conv1d(dim, dim, kernel, dilation=dilation)

    @property
    def others(self) -> int:
        """How many tokens beside its own each token reaches over."""
        return (self.conv.kernel_size[0] - 1) * self.conv.dilation[0]

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        if ctx.state is not None:
            raise UserError("a convolution that looks ahead cannot be called in chunks", do="call it without a state")
        x = only_real(padded(x, ctx.rows), ctx.real)
        x = F.pad(x, (0, 0, self.others // 2, self.others - self.others // 2))
        return packed(self.conv(x.mT).mT, ctx.rows)


class ConvPosition(nn.Module):
    """x + gelu(conv(x)), over `kernel` tokens around each, in groups of channels: wav2vec 2.0's positions.

    Its weight is g · v / ‖v‖, a length g for each of the kernel's places.  B T C → B T C
    """

    tokenwise = False
    weight_decay = True

    def __init__(self, dim: int, kernel: int, groups: int):
        super().__init__()
        if dim % groups:
            raise UserError(f"groups={groups} of dim={dim} channels", allowed=f"groups of {divisors(dim)}")
        conv = nn.Conv1d(dim, dim, kernel, groups=groups)
        assert conv.bias is not None
        self.groups, self.kernel = groups, kernel
        self.v, self.bias = conv.weight, conv.bias
        self.g = nn.Parameter(self.lengths().detach().clone())

    def lengths(self) -> Tensor:
        return self.v.norm(dim=(0, 1), keepdim=True)

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        y = only_real(padded(x, ctx.rows), ctx.real)
        before = self.kernel // 2
        y = F.pad(y, (0, 0, before, self.kernel - 1 - before))
        y = F.conv1d(y.mT, self.g * self.v / self.lengths(), self.bias, groups=self.groups)
        return x + packed(F.gelu(y).mT, ctx.rows)


class CausalConv(SequenceConv):
    """Each token from itself and those before it, `kernel` in all.  A state lets it go on."""

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        x = padded(x, ctx.rows)
        (before,), seen = load_hidden(self, ctx, lambda: (x.new_zeros(x.shape[0], self.others, x.shape[2]),))
        whole = torch.cat([before, only_real(x, partial(real_steps, ctx, seen))], 1)
        store_hidden(self, ctx, (whole[:, x.shape[1] :].contiguous(),), seen + x.shape[1])
        return packed(self.conv(whole.mT).mT, ctx.rows)


def only_real(x: Tensor, real: Callable[[int], Tensor | None]) -> Tensor:
    """x, B T C, with zeros at padding."""
    found = real(x.shape[1])
    return x if found is None else x.masked_fill(~found[..., None], 0.0)


def has_single_values(x: Tensor) -> bool:
    """Whether each channel of … C has a single value, which has no spread: it is normed as outside of training."""
    return x.numel() == x.shape[-1]


def normalise_by_running_statistics(norm: nn.BatchNorm1d | nn.BatchNorm2d, x: Tensor) -> Tensor:
    """Normed by the statistics gathered so far, B C …; nothing is gathered."""
    return F.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps)
