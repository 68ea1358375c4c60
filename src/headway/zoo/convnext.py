"""ConvNeXt: a ResNet built like a Swin: depthwise 7×7 convolutions instead of windows, then a feed-forward layer.

Liu et al. 2022; V2, with channels that compete instead of scaled changes: Woo et al. 2023.  Images of any size; what is
left at an edge, where a side does not divide, is not seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import nn

from headway.nn.block import Block, Identity, IgnoreContext, LayerScale, Residual, Stack, StochasticDepth
from headway.nn.convnet import GridConv, HalvedGrid
from headway.nn.ffn import FFN, ResponseNormFFN
from headway.nn.head import AuxHeads, Classifier, MeanPool, Pooler
from headway.nn.image import CoveredPatches
from headway.nn.trunk import Trunk
from headway.zoo.build import FROM_FIELDS
from headway.zoo.choices import activation, check_stages, named, normal
from headway.zoo.swin import rising


@dataclass(frozen=True)
class Config:
    image: int = 224  # the side of the images it is made for; others go too
    channels: int = 3
    patch: int = 4
    layers: tuple[int, ...] = (3, 3, 9, 3)  # blocks of each stage
    widths: tuple[int, ...] = (96, 192, 384, 768)  # of each stage
    ffn: str = "plain"
    top: str = "classes"
    classes: int = 1000  # where the top has some
    act: str = "gelu"
    eps: float = 1e-12  # of the last norm; of the others it is 1e-6
    layer_scale: float = 1e-6  # of the changes, at first; 0: they are not scaled
    depth_dropout: float = 0.0  # how often the last layer is left out; those before it less, the first never


VOCABULARY = FROM_FIELDS
FFNS: dict[str, type[FFN]] = {"plain": FFN, "normed": ResponseNormFFN}


def build(c: Config) -> Trunk:
    check_stages(layers=c.layers, widths=c.widths)
    norm, feed_forward = partial(nn.LayerNorm, eps=1e-6), named("feed-forward layer", c.ffn, FFNS)
    rates = rising(c.depth_dropout, sum(c.layers))

    def block(width: int) -> Block:
        parts = [
            GridConv(width, width, 7, groups=width, bias=True),
            IgnoreContext(norm(width)),
            feed_forward(width, act=activation(c.act)),
        ]
        scale = LayerScale(width, c.layer_scale) if c.layer_scale else None
        return Block(conv=Residual(Stack(parts), inside=scale, drop=StochasticDepth(next(rates))))

    def stage(number: int) -> Block:
        before, width = c.widths[max(number - 1, 0)], c.widths[number]
        down = HalvedGrid(before, width, norm(before)) if number else Identity()
        return Block(down=down, stack=Stack([block(width) for _ in range(c.layers[number])]))

    width = c.widths[-1]
    last = partial(nn.LayerNorm, width, eps=c.eps)
    features = IgnoreContext(nn.Identity())  # B Y X C
    tops: dict[str, Callable[[], nn.Module]] = {
        "classes": lambda: Classifier(width, c.classes, pool=MeanPool(), norm=last()),  # B K
        "pooler": lambda: AuxHeads(features, pooler=Pooler(width, pool=MeanPool(), inside=last())),
    }
    embed = CoveredPatches(c.channels, c.widths[0], c.patch, norm=norm(c.widths[0]))
    stack = Stack([stage(number) for number in range(len(c.layers))])
    model = Trunk(embed, stack, named("top of a ConvNeXt", c.top, tops)())
    normal(model, 0.02)
    return model
