"""The parts on grids that laws are tried on, and what their tests share.

Axes:  B batch   Y X rows and columns of the grid   C width
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from headway.nn.attention import SelfAttention, merge, split
from headway.nn.bias import ContinuousBias, DecomposedBias, NeighbourBias, WindowBias
from headway.nn.context import EMPTY, Context
from headway.nn.learned_score import CosineScore
from headway.nn.trace import Trace
from headway.nn.window_attention import LocalAttention, LocalRelation, PooledAttention, Windowed, add_queries
from headway.ops.attend import attend
from headway.ops.attention_map import Readable
from headway.ops.window import Windows
from headway.zoo import mae, simmim, vit

DIM, HEADS = 8, 2
Grid = tuple[int, int]


PARTS: dict[str, Callable[[], nn.Module]] = {
    "windowed": lambda: Windowed(SelfAttention(DIM, HEADS, logit_bias=WindowBias(HEADS, 3, 3)), Windows(3, 3)),
    "shifted": lambda: Windowed(SelfAttention(DIM, HEADS, logit_bias=WindowBias(HEADS, 3, 3)), Windows(3, 3, 1, 2)),
    "swin-v2": lambda: Windowed(
        SelfAttention(DIM, HEADS, score=CosineScore(HEADS), logit_bias=ContinuousBias(HEADS, 2, 3, hidden=4)),
        Windows(2, 3, 1, 1),
    ),
    "local": lambda: LocalAttention(DIM, HEADS, 3),
    "local with prior": lambda: LocalAttention(DIM, HEADS, 3, grid_bias=NeighbourBias(HEADS, 3)),
    "local with stride": lambda: LocalAttention(DIM, HEADS, 3, stride=2, grid_bias=NeighbourBias(HEADS, 3, stride=2)),
    "local relation": lambda: LocalRelation(DIM, 3, share=3, stride=2, prior=True),
    "pooled": lambda: PooledAttention(DIM, HEADS, stride_q=2, stride_kv=2),
    "pooled with bias": lambda: PooledAttention(
        DIM, HEADS, stride_kv=2, grid_bias=DecomposedBias(4, (4, 5), (2, 3)), residual=add_queries
    ),
}
SMALL = {"image": 4, "channels": DIM, "patch": 1, "dim": 4, "layers": 1, "heads": HEADS, "hidden": 4}
PYRAMID = {"image": 4, "channels": DIM, "patch": 1, "dim": 4, "layers": (1,), "heads": (HEADS,), "windows": (8,)}


class Pictured(nn.Module):
    """A model of images among parts on grids: channels come last, each cell is a pixel, and it gives a grid.

    `mark` makes of the cells' numbers (B N) what the model takes besides.
    """

    def __init__(self, model: nn.Module, mark: Callable[[Tensor], Tensor] | None = None):
        super().__init__()
        self.model, self.mark = model, mark

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        numbers = torch.arange(x.shape[1] * x.shape[2]).expand(len(x), -1)
        marks = () if self.mark is None else (self.mark(numbers),)
        y = self.model(x.movedim(-1, 1), *marks, ctx)
        return y[:, -numbers.shape[1] :].unflatten(1, x.shape[1:3])  # no class token


PARTS |= {
    "vit": lambda: Pictured(vit.build(vit.Config(**SMALL, top="none"))),
    "mae": lambda: Pictured(
        mae.build(mae.Config(**SMALL, decoder_dim=4, decoder_layers=1, decoder_heads=1, decoder_hidden=4)),
        lambda numbers: numbers[:, 1::2],
    ),
    "simmim": lambda: Pictured(simmim.build(simmim.Config(simmim.Vit(**SMALL))), lambda numbers: numbers % 3 == 0),
    "simmim over swin": lambda: Pictured(
        simmim.build(simmim.Config(simmim.Swin(**PYRAMID, ratio=1.0, depth_dropout=0.0))),
        lambda numbers: numbers % 3 == 0,
    ),
}
every_part = pytest.mark.parametrize("make", PARTS.values(), ids=PARTS)


def image(batch: int = 2) -> Tensor:
    return torch.randn(batch, 4, 5, DIM)


def seen(model: nn.Module, x: Tensor, glob: str = "*weights") -> Readable:
    trace = Trace(model, glob)
    model(x, Context(trace=trace))
    [name] = trace.values
    value = trace[name]
    assert isinstance(value, Readable)
    return value


def cells(grid: Grid) -> list[Grid]:
    return [(y, x) for y in range(grid[0]) for x in range(grid[1])]


def brute_local(model: LocalAttention, x: Tensor) -> Tensor:
    """The definition: all cells attend, each to those within size // 2 rows and columns."""
    grid, r = (x.shape[1], x.shape[2]), model.size // 2
    y, z = torch.tensor(cells(grid)).unbind(-1)
    dy, dx = y[None] - y[:, None], z[None] - z[:, None]  # key minus query
    keep = (dy.abs() <= r) & (dx.abs() <= r)
    bias = None
    if isinstance(model.grid_bias, NeighbourBias):
        index = ((dy + r) * model.size + dx + r).clamp(0, model.size**2 - 1)
        bias = model.grid_bias.table[index].permute(2, 0, 1)[None]
    x = x.flatten(1, 2)
    q, k = model.q_norm(split(model.q(x), model.heads)), model.k_norm(split(model.k(x), model.kv_heads))
    y = attend(q, k, split(model.v(x), model.kv_heads), keep=keep[None], bias=bias, score=model.score)
    return model.out(merge(y)).unflatten(1, grid)[:, :: model.stride, :: model.stride]
