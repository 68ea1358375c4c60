"""MViT-v2: a pyramid of grids by pooled queries, pooled keys and values, positions relative along each axis.

Li et al. 2022.  Each stage from the second on begins with a block that halves the grid and doubles the width.  What
queries pooled to goes on beside what they attended to.  Images of any size: tables of offsets are stretched, and a side
that cannot be halved is rounded up.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torch import nn

from headway.nn.attention import share
from headway.nn.bias import DecomposedBias
from headway.nn.block import Block, IgnoreContext, Residual, Stack, StochasticDepth
from headway.nn.convnet import GridConv, MaxPool, Stem
from headway.nn.ffn import FFN
from headway.nn.trunk import Trunk
from headway.nn.window_attention import PooledAttention, add_queries
from headway.zoo.build import FROM_FIELDS
from headway.zoo.choices import check_stages, normal
from headway.zoo.swin import head, rising


@dataclass(frozen=True)
class Config:
    image: int = 224  # the side of the images that its tables are made for; others go too
    channels: int = 3
    patch: int = 4  # pixels from patch to patch, which overlap
    dim: int = 96  # of the first stage, and twice as much in each further one
    layers: tuple[int, ...] = (2, 3, 16, 3)  # of each stage, and so the next
    heads: tuple[int, ...] = (1, 2, 4, 8)
    stride: int = 4  # of the first stage's keys and values, and half as much in each further one, down to 1
    ratio: float = 4.0  # hidden / width
    eps: float = 1e-6
    classes: int = 1000  # 0: none, it gives its features, B Y X C
    depth_dropout: float = 0.3  # how often the last layer is left out; those before it less, the first never


VOCABULARY = FROM_FIELDS


def build(c: Config) -> Trunk:
    check_stages(layers=c.layers, heads=c.heads)
    norm, rates = partial(nn.LayerNorm, eps=c.eps), rising(c.depth_dropout, sum(c.layers))

    def block(number: int, first: bool) -> Block:
        width, stride, rate = c.dim * 2**number, 2 if first and number else 1, next(rates)
        before = width // stride
        attention = pooled(c, number, before, stride)
        ffn = Residual(FFN(width, int(c.ratio * width)), before=norm(width), drop=StochasticDepth(rate))
        if before == width:
            return Block(attn=Residual(attention, before=norm(width), drop=StochasticDepth(rate)), ffn=ffn)
        # the path goes on from the normed input, as it was published
        skip = nn.Sequential(nn.Linear(before, width), MaxPool())
        return Block(
            norm=IgnoreContext(norm(before)), attn=Residual(attention, skip=skip, drop=StochasticDepth(rate)), ffn=ffn
        )

    def stage(number: int) -> Block:
        return Block(stack=Stack([block(number, not layer) for layer in range(c.layers[number])]))

    width = c.dim * 2 ** (len(c.layers) - 1)
    stages = [stage(number) for number in range(len(c.layers))]
    model = Trunk(Stem(c.channels, patches(c)), Stack(stages, norm(width)), head(width, c.classes))
    normal(model, 0.02)
    return model


def patches(c: Config) -> GridConv:
    return GridConv(c.channels, c.dim, 2 * c.patch - 1, stride=c.patch, bias=True)


def pooled(c: Config, number: int, before: int, stride: int) -> PooledAttention:
    """The attention of a block of stage `number`, whose input is `before` wide and whose queries are `stride` apart."""
    width, heads = c.dim * 2**number, c.heads[number]
    stride_kv = max(c.stride // 2**number, 1)
    side = -(-c.image // (c.patch * width // c.dim))  # of the queries' grid
    entered = -(-c.image // (c.patch * before // c.dim))
    keys = -(-entered // stride_kv)
    return PooledAttention(
        before,
        heads,
        out_dim=width,
        stride_q=stride,
        stride_kv=stride_kv,
        norm=partial(nn.LayerNorm, eps=c.eps),
        grid_bias=DecomposedBias(share(width, heads), (side, side), (keys, keys)),
        residual=add_queries,
    )
