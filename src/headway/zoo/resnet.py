"""ResNet: convolutions around residual paths, batch norm after each, and attention between the stages where wanted.

He et al. 2015, with the stride in the 3×3 convolution of a bottleneck.  The attention blocks (Wang et al. 2018) are
global, over all cells of the grid, and add nothing at first: a trained ResNet goes on as it was.  Images of any size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from headway.errors import UserError
from headway.nn.block import Block, Identity, Residual, Stack
from headway.nn.convnet import GridConv, MaxPool, Normed, Stem, no_activation
from headway.nn.trunk import Trunk
from headway.nn.window_attention import PooledAttention
from headway.zoo.build import FROM_FIELDS
from headway.zoo.choices import check_stages, fan_out, named
from headway.zoo.swin import head


@dataclass(frozen=True)
class Config:
    image: int = 224  # the side of the images it is made for; others go too
    channels: int = 3
    dim: int = 64  # of the stem
    stem: str = "large"
    block: str = "bottleneck"
    layers: tuple[int, ...] = (3, 4, 6, 3)  # blocks of each stage
    widths: tuple[int, ...] = (256, 512, 1024, 2048)  # of each stage, and so the next
    attention: tuple[int, ...] = ()  # the stages, counted from 1, that end with an attention block
    heads: int = 8  # of the attention blocks
    classes: int = 1000  # 0: none, it gives its features, B Y X C


VOCABULARY = FROM_FIELDS


def build(c: Config) -> Trunk:
    check(c)
    block = named("block of a ResNet", c.block, BLOCKS)

    def stage(number: int) -> Block:
        width, before = c.widths[number], (c.dim, *c.widths)[number]
        first = residual(block, before, width, 2 if number else 1)
        others = [residual(block, width, width, 1) for _ in range(c.layers[number] - 1)]
        last = [attention(width, c.heads)] if number + 1 in c.attention else []
        return Block(stack=Stack([first, *others, *last]))

    embed = Stem(c.channels, *named("stem of a ResNet", c.stem, STEMS)(c))
    model = Trunk(embed, Stack([stage(number) for number in range(len(c.layers))]), head(c.widths[-1], c.classes))
    fan_out(model)
    return model


Body = Callable[[int, int, int], list[nn.Module]]  # (width before, width, stride)


def residual(body: Body, before: int, width: int, stride: int) -> Block:
    """The path is projected where its width or its grid changes."""
    straight = before == width and stride == 1
    skip = Identity() if straight else Normed(GridConv(before, width, 1, stride=stride), width, act=no_activation)
    return Block(conv=Residual(Stack(body(before, width, stride)), skip=skip, after=nn.ReLU()))


def basic(before: int, width: int, stride: int) -> list[nn.Module]:
    return [
        Normed(GridConv(before, width, 3, stride=stride), width),
        Normed(GridConv(width, width, 3), width, act=no_activation),
    ]


def bottleneck(before: int, width: int, stride: int) -> list[nn.Module]:
    narrow = width // 4
    return [
        Normed(GridConv(before, narrow, 1), narrow),
        Normed(GridConv(narrow, narrow, 3, stride=stride), narrow),
        Normed(GridConv(narrow, width, 1), width, act=no_activation),
    ]


BLOCKS: dict[str, Body] = {"basic": basic, "bottleneck": bottleneck}
STEMS: dict[str, Callable[[Config], list[nn.Module]]] = {
    "large": lambda c: [Normed(GridConv(c.channels, c.dim, 7, stride=2), c.dim), MaxPool()],
    "small": lambda c: [Normed(GridConv(c.channels, c.dim, 3), c.dim)],  # for images of 32 pixels or so
}


def attention(width: int, heads: int) -> Block:
    body = PooledAttention(width, heads, kernel=1)
    nn.init.zeros_(body.out.weight)
    nn.init.zeros_(body.out.bias)
    return Block(attn=Residual(body, before=nn.LayerNorm(width)))


def check(c: Config) -> None:
    check_stages(layers=c.layers, widths=c.widths)
    wrong = [number for number in c.attention if not 1 <= number <= len(c.layers)]
    if wrong:
        raise UserError(f"attention after stage {wrong[0]}", allowed=f"stages 1 to {len(c.layers)}")
