"""DINOv2: a ViT whose changes are scaled by a learned factor for each channel, with register tokens or without.

Oquab et al. 2023; registers: Darcet et al. 2023.  The giant one is gated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import nn

from headway.nn.attention import Biases, SelfAttention
from headway.nn.block import Block, IgnoreContext, LayerScale, Residual, Stack, StochasticDepth
from headway.nn.ffn import FFN, GatedFFN
from headway.nn.head import ClassAndMean, Classifier
from headway.nn.image import ImageEmbed, LearnedGridPosition, PatchEmbed, PlacedClassToken, RegisteredClassToken
from headway.nn.trunk import Trunk
from headway.ops.patches import bicubic, bicubic_smooth
from headway.zoo.build import FROM_FIELDS
from headway.zoo.choices import activation, named
from headway.zoo.swin import rising
from headway.zoo.vit import dense_xavier, patches_across


@dataclass(frozen=True)
class Config:
    image: int = 518  # the side of the images that its positions are made for; others go too
    channels: int = 3
    patch: int = 14
    classes: int = 1000  # where the top has some
    dim: int = 768
    layers: int = 12
    heads: int = 12
    ratio: float = 4.0  # of the feed-forward layers' width to dim
    ffn: str = "plain"
    registers: int = 0
    top: str = "none"
    act: str = "gelu"
    eps: float = 1e-6
    biased: bool = True  # queries, keys and values
    layer_scale: float = 1.0  # of the changes, at first
    dropout: float = 0.0
    attention_dropout: float = 0.0
    depth_dropout: float = 0.0  # how often the last layer is left out; those before it less, the first never


VOCABULARY = FROM_FIELDS


def plain(c: Config) -> FFN:
    return FFN(c.dim, int(c.dim * c.ratio), act=activation(c.act))


def gated(c: Config) -> FFN:
    """SwiGLU, two thirds as wide, up to the next multiple of 8."""
    return GatedFFN(c.dim, (int(int(c.dim * c.ratio) * 2 / 3) + 7) // 8 * 8)


FFNS: dict[str, Callable[[Config], FFN]] = {"plain": plain, "gated": gated}


def build(c: Config) -> Trunk:
    norm, bias = partial(nn.LayerNorm, c.dim, eps=c.eps), Biases(c.biased, c.biased, c.biased)
    feed_forward = named("feed-forward layer", c.ffn, FFNS)

    def residual(body: nn.Module, rate: float) -> Residual:
        return Residual(body, before=norm(), inside=LayerScale(c.dim, c.layer_scale), drop=StochasticDepth(rate))

    def block(rate: float) -> Block:
        attention = SelfAttention(c.dim, c.heads, bias=bias, dropout=c.attention_dropout)
        return Block(attn=residual(attention, rate), ffn=residual(feed_forward(c), rate))

    side = patches_across(c.image, c.patch)
    embed = ImageEmbed(
        PatchEmbed(c.channels, c.dim, c.patch),
        LearnedGridPosition(side, side, c.dim, resample=bicubic_smooth if c.registers else bicubic),
        token=RegisteredClassToken(c.dim, c.registers) if c.registers else PlacedClassToken(c.dim),
        dropout=c.dropout,
    )
    tops: dict[str, Callable[[], nn.Module]] = {
        "none": lambda: IgnoreContext(nn.Identity()),  # B T C
        "classes": partial(Classifier, 2 * c.dim, c.classes, pool=ClassAndMean(1 + c.registers)),  # B K
    }
    stack = Stack([block(rate) for rate in rising(c.depth_dropout, c.layers)], norm())
    model = Trunk(embed, stack, named("top of a DINOv2", c.top, tops)())
    dense_xavier(model)
    return model
