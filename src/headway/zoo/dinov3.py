"""DINOv3: DINOv2 with register tokens, whose queries and keys are turned by where their patches stand in the image.

Siméoni et al. 2025.  There are no tables of positions, so images of any size that the patches divide go.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import nn

from headway.nn.attention import Biases, SelfAttention, share
from headway.nn.block import Block, LayerScale, Residual, Stack, StochasticDepth
from headway.nn.ffn import FFN, GatedFFN
from headway.nn.head import ClassAndMean, Classifier
from headway.nn.image import ImageEmbed, PatchCentres, PatchEmbed, UnplacedRegisters
from headway.nn.trunk import PlacedTrunk
from headway.ops.rotary import GridRotary
from headway.zoo.build import FROM_FIELDS
from headway.zoo.choices import activation, named
from headway.zoo.vit import bare, dense_xavier, patches_across


@dataclass(frozen=True)
class Config:
    image: int = 224  # the side of the images it is made for; others go too
    channels: int = 3
    patch: int = 16
    classes: int = 1000  # where the top has some
    dim: int = 384
    layers: int = 12
    heads: int = 6
    hidden: int = 1536
    ffn: str = "plain"
    registers: int = 4
    top: str = "none"
    act: str = "gelu"
    eps: float = 1e-5
    base: float = 100.0  # of the frequencies that y and x turn by
    stretch: float = 2.0  # how much larger or smaller an image may stand while training
    biases: str = "queries, values"
    layer_scale: float = 1.0  # of the changes, at first
    attention_dropout: float = 0.0
    depth_dropout: float = 0.0  # how often each layer is left out


VOCABULARY = FROM_FIELDS
FFNS: dict[str, type[FFN]] = {"plain": FFN, "gated": GatedFFN}
BIASES = {"queries, values": Biases(k=False), "all": Biases(), "none": Biases(q=False, k=False, v=False)}


def build(c: Config) -> PlacedTrunk:
    patches_across(c.image, c.patch)
    norm, bias = partial(nn.LayerNorm, c.dim, eps=c.eps), named("choice of biases", c.biases, BIASES)
    feed_forward = named("feed-forward layer", c.ffn, FFNS)
    turn = GridRotary(share(c.dim, c.heads), c.base)

    def residual(body: nn.Module) -> Residual:
        drop = StochasticDepth(c.depth_dropout)
        return Residual(body, before=norm(), inside=LayerScale(c.dim, c.layer_scale), drop=drop)

    def block() -> Block:
        attention = SelfAttention(c.dim, c.heads, bias=bias, rotary=turn, dropout=c.attention_dropout)
        return Block(attn=residual(attention), ffn=residual(feed_forward(c.dim, c.hidden, act=activation(c.act))))

    embed = ImageEmbed(PatchEmbed(c.channels, c.dim, c.patch), token=UnplacedRegisters(c.dim, c.registers))
    first = 1 + c.registers
    tops: dict[str, Callable[[], nn.Module]] = {
        "none": bare,  # B T C
        "classes": partial(Classifier, 2 * c.dim, c.classes, pool=ClassAndMean(first)),  # B K
    }
    stack, top = Stack([block() for _ in range(c.layers)], norm()), named("top of a DINOv3", c.top, tops)()
    model = PlacedTrunk(embed, stack, top, places=PatchCentres(c.patch, first, stretch=c.stretch))
    dense_xavier(model)
    return model
