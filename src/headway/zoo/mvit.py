"""MViT: a pyramid of grids by pooled queries, pooled keys and values, a learned position for each patch.

Fan et al. 2021, in its form for images, whose position is that of space alone; it averages all cells where the
published one has a class token.  The last block of a stage doubles the width in its feed-forward layer, the first of
the next halves the grid.  Images of any size: positions are resampled, and a side that cannot be halved is rounded up.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torch import nn

from headway.nn.block import Block, Identity, IgnoreContext, Residual, Stack, StochasticDepth
from headway.nn.convnet import GridConv, MaxPool, Stem
from headway.nn.ffn import FFN
from headway.nn.image import LearnedGridPosition
from headway.nn.trunk import Trunk
from headway.nn.window_attention import PooledAttention
from headway.ops.patches import bicubic
from headway.zoo.build import FROM_FIELDS
from headway.zoo.choices import check_stages, normal
from headway.zoo.swin import head, rising


@dataclass(frozen=True)
class Config:
    image: int = 224  # the side of the images that its positions are made for; others go too
    channels: int = 3
    patch: int = 4  # pixels from patch to patch, which overlap
    dim: int = 96  # of the first stage, and twice as much in each further one
    layers: tuple[int, ...] = (1, 2, 11, 2)  # of each stage, and so the next
    heads: tuple[int, ...] = (1, 2, 4, 8)
    stride: int = 4  # of the first stage's keys and values, and half as much in each further one, down to 1
    ratio: float = 4.0  # hidden / width
    eps: float = 1e-6
    classes: int = 1000  # 0: none, it gives its features, B Y X C
    depth_dropout: float = 0.1  # how often the last layer is left out; those before it less, the first never


VOCABULARY = FROM_FIELDS


def build(c: Config) -> Trunk:
    check_stages(layers=c.layers, heads=c.heads)
    norm, rates = partial(nn.LayerNorm, eps=c.eps), rising(c.depth_dropout, sum(c.layers))

    def block(number: int, halves: bool, widens: bool) -> Block:
        width, rate = c.dim * 2**number, next(rates)
        skip = MaxPool() if halves else Identity()
        attn = Residual(pooled(c, number, halves), before=norm(width), skip=skip, drop=StochasticDepth(rate))
        ffn = FFN(width, int(c.ratio * width), out_dim=2 * width if widens else width)
        if not widens:
            return Block(attn=attn, ffn=Residual(ffn, before=norm(width), drop=StochasticDepth(rate)))
        # the path goes on from the normed input, as it was published
        widened = Residual(ffn, skip=nn.Linear(width, 2 * width), drop=StochasticDepth(rate))
        return Block(attn=attn, norm=IgnoreContext(norm(width)), ffn=widened)

    def stage(number: int) -> Block:
        layers, ends = c.layers[number], number + 1 < len(c.layers)
        blocks = [block(number, number > 0 and at == 0, ends and at == layers - 1) for at in range(layers)]
        return Block(stack=Stack(blocks))

    side, width = -(-c.image // c.patch), c.dim * 2 ** (len(c.layers) - 1)
    patches = GridConv(c.channels, c.dim, 2 * c.patch - 1, stride=c.patch, bias=True)
    embed = Stem(c.channels, patches, LearnedGridPosition(side, side, c.dim, resample=bicubic))
    stages = [stage(number) for number in range(len(c.layers))]
    model = Trunk(embed, Stack(stages, norm(width)), head(width, c.classes))
    normal(model, 0.02)
    return model


def pooled(c: Config, number: int, halves: bool) -> PooledAttention:
    """Queries are pooled only where the grid is halved, keys and values everywhere."""
    return PooledAttention(
        c.dim * 2**number,
        c.heads[number],
        stride_q=2 if halves else 1,
        stride_kv=max(c.stride // 2**number, 1),
        kernel_q=3 if halves else 1,
        norm=partial(nn.LayerNorm, eps=c.eps),
    )
