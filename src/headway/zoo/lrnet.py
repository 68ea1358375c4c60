"""LR-Net: ResNet's bottlenecks with local attention in the place of their 3×3 convolutions, and in the stem.

Hu et al. 2019.  Eight channels share one query, one key and one map over 7×7 neighbours.  The published count of
parameters leaves out the prior, a number for each of these neighbours' places: `prior` adds it.  Images of any size.

LR-Net-50 has 4.36·10⁹ multiply–adds in matrices, 4.53 with the products of 49 neighbours a query, and 4.72 as it is
evaluated and `headway cost` counts it: a tile of queries meets all keys around it.  4.3 is published.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from headway.nn.block import Block, Stack
from headway.nn.convnet import GridConv, MaxPool, Normed, Stem, no_activation
from headway.nn.trunk import Trunk
from headway.nn.window_attention import LocalRelation
from headway.zoo.build import FROM_FIELDS
from headway.zoo.choices import check_stages, fan_out, named
from headway.zoo.resnet import residual
from headway.zoo.swin import head


@dataclass(frozen=True)
class Config:
    image: int = 224  # the side of the images it is made for; others go too
    channels: int = 3
    dim: int = 64  # of the stem
    stem: str = "large"
    layers: tuple[int, ...] = (3, 4, 6, 3)  # bottlenecks of each stage
    hidden: tuple[int, ...] = (100, 200, 400, 800)  # the narrow widths, where attention is
    widths: tuple[int, ...] = (256, 512, 1024, 2048)
    size: int = 7  # neighbours each way
    share: int = 8  # channels to a map
    prior: bool = False
    classes: int = 1000  # 0: none, it gives its features, B Y X C


VOCABULARY = FROM_FIELDS


def build(c: Config) -> Trunk:
    check_stages(layers=c.layers, hidden=c.hidden, widths=c.widths)

    def stage(number: int) -> Block:
        def bottleneck(before: int, width: int, stride: int) -> list[nn.Module]:
            narrow = c.hidden[number]
            return [
                Normed(GridConv(before, narrow, 1), narrow),
                Normed(relation(c, narrow, stride), narrow),
                Normed(GridConv(narrow, width, 1), width, act=no_activation),
            ]

        width, before = c.widths[number], (c.dim, *c.widths)[number]
        first = residual(bottleneck, before, width, 2 if number else 1)
        others = [residual(bottleneck, width, width, 1) for _ in range(c.layers[number] - 1)]
        return Block(stack=Stack([first, *others]))

    embed = Stem(c.channels, *named("stem of an LR-Net", c.stem, STEMS)(c))
    model = Trunk(embed, Stack([stage(number) for number in range(len(c.layers))]), head(c.widths[-1], c.classes))
    fan_out(model)
    return model


def relation(c: Config, dim: int, stride: int) -> LocalRelation:
    return LocalRelation(dim, c.size, share=c.share, stride=stride, prior=c.prior)


def widened(c: Config) -> Normed:
    return Normed(GridConv(c.channels, c.dim, 1), c.dim)


STEMS: dict[str, Callable[[Config], list[nn.Module]]] = {
    "large": lambda c: [*STEMS["small"](c), MaxPool()],
    "small": lambda c: [widened(c), Normed(relation(c, c.dim, 2), c.dim)],  # for images of 32 pixels or so
}
