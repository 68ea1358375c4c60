"""BEiT: a ViT without tables of positions, whose layers add a learned number for the offset of each pair of patches.

Bao et al. 2021.  Changes are scaled by a learned factor for each channel.  Images of any size that the patches divide:
the numbers of offsets are interpolated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import nn

from headway.nn.attention import Biases, SelfAttention
from headway.nn.bias import PatchBias
from headway.nn.block import Block, IgnoreContext, LayerScale, Residual, Stack, StochasticDepth
from headway.nn.ffn import FFN
from headway.nn.head import AuxHeads, Classifier, FirstToken, MeanPool, Pooler
from headway.nn.image import ClassToken, ImageEmbed, PatchCells, PatchEmbed
from headway.nn.trunk import PlacedTrunk
from headway.zoo.build import FROM_FIELDS
from headway.zoo.choices import activation, named
from headway.zoo.swin import rising
from headway.zoo.vit import dense_xavier, patches_across


@dataclass(frozen=True)
class Config:
    image: int = 224  # the side of the images that its offsets are made for; others go too
    channels: int = 3
    patch: int = 16
    classes: int = 1000  # where the top has some
    dim: int = 768
    layers: int = 12
    heads: int = 12
    hidden: int = 3072
    offsets: str = "each layer"  # which layers have numbers of their own
    pool: str = "mean"
    top: str = "classes"
    act: str = "gelu"
    eps: float = 1e-12
    layer_scale: float = 0.1  # of the changes, at first; 0: they are not scaled
    dropout: float = 0.0
    attention_dropout: float = 0.0
    depth_dropout: float = 0.1  # how often the last layer is left out; those before it less, the first never


VOCABULARY = FROM_FIELDS


def each_layer(make: Callable[[], PatchBias]) -> Callable[[], PatchBias]:
    return make


def all_layers(make: Callable[[], PatchBias]) -> Callable[[], PatchBias]:
    one = make()
    return lambda: one


OFFSETS = {"each layer": each_layer, "all layers": all_layers}
POOLS: dict[str, Callable[[], nn.Module]] = {
    "mean": partial(MeanPool, 1),  # of the patches, and then normed
    "class": FirstToken,  # of tokens that are normed
}


def build(c: Config) -> PlacedTrunk:
    side = patches_across(c.image, c.patch)
    norm = partial(nn.LayerNorm, c.dim, eps=c.eps)
    bias = named("choice of offsets", c.offsets, OFFSETS)(partial(PatchBias, c.heads, side, side))

    def residual(body: nn.Module, rate: float) -> Residual:
        scale = LayerScale(c.dim, c.layer_scale) if c.layer_scale else None
        return Residual(body, before=norm(), inside=scale, drop=StochasticDepth(rate))

    def block(rate: float) -> Block:
        attention = SelfAttention(c.dim, c.heads, bias=Biases(k=False), logit_bias=bias(), dropout=c.attention_dropout)
        return Block(attn=residual(attention, rate), ffn=residual(FFN(c.dim, c.hidden, act=activation(c.act)), rate))

    pool, late = named("way of pooling", c.pool, POOLS), c.pool == "mean"
    whole = partial(Pooler, c.dim, pool=pool(), inside=norm() if late else nn.Identity())
    features = IgnoreContext(nn.Identity())  # B T C
    tops: dict[str, Callable[[], nn.Module]] = {
        "classes": partial(Classifier, c.dim, c.classes, pool=pool(), norm=norm() if late else None),  # B K
        "pooler": lambda: AuxHeads(features, pooler=whole()),
        "none": lambda: features,
    }
    embed = ImageEmbed(PatchEmbed(c.channels, c.dim, c.patch), token=ClassToken(c.dim), dropout=c.dropout)
    stack = Stack([block(rate) for rate in rising(c.depth_dropout, c.layers)], None if late else norm())
    top = named("top of a BEiT", c.top, tops)()
    model = PlacedTrunk(embed, stack, top, places=PatchCells(c.patch, 1, (side, side)))
    dense_xavier(model)
    return model
