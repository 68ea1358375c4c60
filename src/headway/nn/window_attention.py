"""Attention on image grids: in windows, among neighbours, and over pooled grids.

The three differ in how a grid is laid out as rows of tokens.  Each then is an attention map like any other, so it
can be read and edited, and is evaluated by the same kernel.

Axes:  B batch   Y X rows and columns of the grid   C width   H heads   G kv-heads   D head width
       N tiles of a grid   T queries   S keys
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import UserError
from headway.nn.attention import BIASED, UNBIASED, Attention, Biases, SelfAttention, merge, share, split
from headway.nn.context import EMPTY, Context
from headway.nn.ffn import Shared
from headway.ops.attend import DOT, Score, shape_text
from headway.ops.attention_map import AttentionMap, Bias
from headway.ops.pattern import Positions

if TYPE_CHECKING:
    from headway.nn.bias import Grid, GridBias
    from headway.ops.window import Halo, Windows


class Windowed(nn.Module):
    """Attention within each window of the grid.  B Y X C → B Y X C

    The map is that of the attention inside, (B·N) H T T.  Positions are cells of the window as it was made,
    y · cols + x, also where a small grid shrinks it, so that a `WindowBias` stays right.
    """

    tokenwise = False

    emits = ("input",)

    def __init__(self, attention: SelfAttention, windows: Windows):
        super().__init__()
        self.attention, self.windows = attention, windows

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        grid = grid_of(x, self.attention.kv_dim, ctx)
        x = ctx.emit(self, "input", x)
        windows = self.windows.fit(*grid)
        keep = windows.keep(*grid, x.device)
        keep = None if keep is None else keep.repeat(x.shape[0], 1, 1)  # (B·N) T T
        inner = replace(ctx, keep=keep, positions=self.cells(windows, x.device))
        return windows.merge(self.attention(windows.partition(x), inner), grid)

    def cells(self, fitted: Windows, device: torch.device) -> Tensor:
        """The cells of the whole window that a fitted one has, 1 T."""
        y, x = (torch.arange(n, device=device) for n in (fitted.rows, fitted.cols))
        return (y[:, None] * self.windows.cols + x).reshape(1, -1)

    def extra_repr(self) -> str:
        return repr(self.windows)


class LocalAttention(Attention):
    """Each cell attends to the size × size cells around it.  B Y X C → B Y X C

    It equals attention over all cells with a mask of |Δy|, |Δx| ≤ size // 2, but a tile of queries meets only the
    keys of its neighbourhoods: the map is (B·N) H T S.  Positions are cells of the tile and of its keys; a `grid_bias`
    (as `NeighbourBias`) is bound to these two grids.  Values may be wider or narrower than keys: replace `v` and `out`.
    With a `stride` only every stride-th cell asks, both ways, and the grid becomes smaller.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        size: int = 7,
        *,
        stride: int = 1,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        bias: Biases = BIASED,
        qk_norm: Callable[[int], nn.Module] = nn.Identity,
        grid_bias: GridBias | None = None,
        score: Score = DOT,
        dropout: float = 0.0,
    ):
        super().__init__(
            dim, heads, kv_heads=kv_heads, head_dim=head_dim, bias=bias, qk_norm=qk_norm, score=score, dropout=dropout
        )
        from headway.ops.window import Halo  # late: to know a window from other attention needs no tiles

        Halo(size, 1, stride)  # a size without a middle is told here
        self.size, self.stride, self.grid_bias = size, stride, grid_bias

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        grid = grid_of(x, self.kv_dim, ctx)
        x = ctx.emit(self, "input", x)
        v = self.v(x)  # B Y X (G E)
        halo = cheapest_tile(self.size, grid, self.stride, self.head_dim + v.shape[3] // self.kv_heads)
        q = self.q_norm(split(halo.queries(self.q(x)), self.heads))  # (B·N) H T D
        k = self.k_norm(split(halo.keys(self.k(x)), self.kv_heads))  # (B·N) G S D
        v = split(halo.keys(v), self.kv_heads)  # (B·N) G S E
        keep = halo.keep(*grid, x.device).repeat(x.shape[0], 1, 1)  # (B·N) T S
        bias = bind_bias(self.grid_bias, (halo.tile, halo.tile), (halo.span, halo.span))
        y = self.weigh(AttentionMap(q, k, *positions_in_order(q, k), self.pattern, keep, bias, self.score), v, ctx)
        return self.out(halo.merge(merge(y), halo.strided(*grid)))

    def extra_repr(self) -> str:
        return f"size={self.size}" if self.stride == 1 else f"size={self.size}, stride={self.stride}"


class PooledAttention(Attention):
    """out(residual(softmax(score(q, k) + bias) v, q)), q, k and v each norm(pool(projected)).  B Y X C → B Y′ X′ C′

    Multiscale attention: queries pooled by `stride_q` make the grid smaller, keys and values pooled by `stride_kv`
    make it cheap.  C′ is `out_dim`.  Where kernel and stride are 1 there is neither pool nor norm; `kernel_q` is
    `kernel` unless given.  `grid_bias` (as `DecomposedBias`) is bound to the pooled grids; MViT-v2 gives `add_queries`
    as `residual`.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        out_dim: int | None = None,
        stride_q: int = 1,
        stride_kv: int = 1,
        kernel: int = 3,
        kernel_q: int | None = None,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
        bias: Biases = BIASED,
        grid_bias: GridBias | None = None,
        residual: Callable[[Tensor, Tensor], Tensor] | None = None,
        score: Score = DOT,
        dropout: float = 0.0,
    ):
        out_dim = dim if out_dim is None else out_dim
        width = share(out_dim, heads)
        super().__init__(dim, heads, head_dim=width, bias=bias, score=score, dropout=dropout)
        self.out = nn.Linear(out_dim, out_dim, bias.out)
        self.q_pool, self.q_norm = pool(heads, width, kernel if kernel_q is None else kernel_q, stride_q, norm)
        self.k_pool, self.k_norm = pool(heads, width, kernel, stride_kv, norm)
        self.v_pool, self.v_norm = pool(heads, width, kernel, stride_kv, norm)
        self.grid_bias, self.residual = grid_bias, residual or without_queries

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        grid_of(x, self.kv_dim, ctx)
        x = ctx.emit(self, "input", x)
        q, k, v = self.q_pool(self.q(x)), self.k_pool(self.k(x)), self.v_pool(self.v(x))  # B Y′ X′ (H D)
        q_grid, k_grid = size_of(q), size_of(k)
        q, k, v = (split(y.flatten(1, 2), self.heads) for y in (q, k, v))  # B H T D
        q, k, v = self.q_norm(q), self.k_norm(k), self.v_norm(v)
        bias = bind_bias(self.grid_bias, q_grid, k_grid)
        y = self.weigh(AttentionMap(q, k, *positions_in_order(q, k), self.pattern, None, bias, self.score), v, ctx)
        return self.out(merge(self.residual(y, q)).unflatten(1, q_grid))


class HeadConv(nn.Conv2d):
    """A depthwise convolution over the grid, the same for every head.  B Y X (H D) → B Y′ X′ (H D)"""

    def __init__(self, heads: int, width: int, kernel: int, stride: int):
        super().__init__(width, width, kernel, stride, kernel // 2, groups=width, bias=False)
        self.heads = heads

    def forward(self, input: Tensor) -> Tensor:
        # the kernel repeated, not the heads folded into the batch: two to four times as fast, being spared the copies
        kernel = self.weight.repeat(self.heads, 1, 1, 1)
        x = input.permute(0, 3, 1, 2)
        return F.conv2d(x, kernel, None, self.stride, self.padding, groups=len(kernel)).permute(0, 2, 3, 1)


def pool(
    heads: int, width: int, kernel: int, stride: int, norm: Callable[[int], nn.Module]
) -> tuple[nn.Module, nn.Module]:
    """The convolution that pools a projection, and the norm of each head after it."""
    if kernel < 1 or kernel % 2 == 0 or stride < 1:
        said = f"a pool with kernel={kernel} and stride={stride}"
        raise UserError(said, allowed="an odd kernel and a stride of 1 or more")
    if kernel == stride == 1:
        return nn.Identity(), nn.Identity()
    return HeadConv(heads, width, kernel, stride), norm(width)


def without_queries(y: Tensor, q: Tensor) -> Tensor:
    """MViT: what was attended to."""
    return y


def add_queries(y: Tensor, q: Tensor) -> Tensor:
    """MViT-v2's residual pooling: the pooled queries go on beside what they attended to."""
    return y + q


def cheapest_tile(size: int, grid: Grid, stride: int = 1, copied: int = 64) -> Halo:
    """The tiles that cost least on this grid.

    Copying a tile's keys and values costs about as much as one query at them for each number `copied` for a head.
    Measured on 7² to 56² cells: tiles of 16 take 2.5 times as long as of 8; with 9 numbers (a key of one, a value of 8)
    tiles of 8 take 3 times as long as of 4.  A loop over the neighbours instead takes twice as long forward and four
    times backward where there are 7×7, and about as long where there are 3×3.
    """
    from headway.ops.window import Halo

    best = Halo(size, 1, stride)
    for tile in range(2, 9):  # a loop, since compiled code knows no min with a key
        other = Halo(size, tile, stride)
        best = other if cost(other, grid, copied) < cost(best, grid, copied) else best
    return best


def cost(halo: Halo, grid: Grid, copied: int) -> int:
    rows, cols = halo.strided(*grid)
    tiles = -(-rows // halo.tile) * -(-cols // halo.tile)
    return tiles * halo.span**2 * (halo.tile**2 + copied)


def bind_bias(bias: GridBias | None, q_grid: Grid, k_grid: Grid) -> Bias | None:
    return None if bias is None else bias.on(q_grid, k_grid)


def positions_in_order(q: Tensor, k: Tensor) -> tuple[Positions, Positions]:
    """Queries and keys in order, each from the first cell of its grid."""
    return Positions.run(0, q.shape[2], q.device), Positions.run(0, k.shape[2], k.device)


def size_of(x: Tensor) -> Grid:
    return x.shape[1], x.shape[2]


def grid_of(x: Tensor, width: int, ctx: Context) -> Grid:
    """The size of the grid that `x` is; what cannot be one is told to the person."""
    if x.dim() != 4 or x.shape[3] != width or 0 in x.shape[1:3]:
        do = "an image as B C Y X goes in as x.permute(0, 2, 3, 1), tokens as x.unflatten(1, (Y, X))"
        raise UserError(f"attention on a grid was given {shape_text(x)}", allowed=f"B Y X {width}", do=do)
    given = [name for name in ("keep", "positions", "state", "rows") if getattr(ctx, name) is not None]
    if given:
        said = f"attention on a grid was given {' and '.join(given)} in its context"
        raise UserError(said, do="these are for sequences: call it with Context(trace=ctx.trace)")
    return size_of(x)


class LocalRelation(LocalAttention):
    """Local attention in which `share` channels have one number as their query, one as their key, and one map.

    B Y X C → B Y′ X′ C.  Nothing is projected afterwards: in its network a convolution of 1×1 follows.  Where `share`
    does not divide C, the last channels are fewer.  With a prior (`NeighbourBias`) the neighbours differ by their
    place too, and not by what they hold alone.
    """

    def __init__(self, dim: int, size: int = 7, *, share: int = 8, stride: int = 1, prior: bool = False):
        heads = -(-dim // share)
        bias = None
        if prior:
            from headway.nn.bias import NeighbourBias

            bias = NeighbourBias(heads, size, stride=stride)
        super().__init__(dim, heads, size, stride=stride, head_dim=1, bias=UNBIASED, grid_bias=bias)
        self.v = Shared(dim, heads * share)
        self.add_module("out", First(dim))


class First(nn.Module):
    """The first `dim` channels."""

    def __init__(self, dim: int):
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        return x[..., : self.dim]
