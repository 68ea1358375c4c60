"""SigLIP: two Transformer encoders that learn of each image and each text by itself whether they belong together.

Zhai et al. 2023; SigLIP 2 (Tschannen et al. 2025) of a fixed size is the same with other words.  An image is what a
learned query sees in its patches; a text, filled up to the context, is its last token, whatever that is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn

from headway.nn.attention import SelfAttention
from headway.nn.block import Block, Residual, Stack
from headway.nn.embed import LearnedPosition, TokenEmbed
from headway.nn.ffn import FFN
from headway.nn.head import AttentionPool, LastToken
from headway.nn.image import CoveredPatches, ImageEmbed, LearnedGridPosition
from headway.nn.towers import FilledTrunk, Projection, SigmoidTowers
from headway.nn.trunk import Trunk
from headway.ops.patches import bicubic
from headway.zoo.build import DataRequirements, Sizes, Vocabulary
from headway.zoo.choices import activation
from headway.zoo.vit import dense_xavier, patches_across


@dataclass(frozen=True)
class Config:
    vocab: int = 32_000
    pad: int = 1  # the token that fills a text up to the context
    context: int = 64
    dim: int = 768  # of the texts' tower
    layers: int = 12
    heads: int = 12
    hidden: int | None = None  # 4 · dim
    image: int = 224  # the side of the images that its positions are made for; others go too
    patch: int = 16
    image_dim: int = 768  # and of the vectors that are compared
    image_layers: int = 12
    image_heads: int = 12
    image_hidden: int | None = None  # 4 · image_dim
    act: str = "gelu_tanh"
    eps: float = 1e-6
    attention_dropout: float = 0.0


def filled(required: DataRequirements, given: Sizes) -> dict[str, Any]:
    """The token that ends texts fills them, as in the first version."""
    return {("pad" if name == "end" else name): value for name, value in required.fields.items()}


VOCABULARY = Vocabulary(filled)


def build(c: Config) -> SigmoidTowers:
    return SigmoidTowers(image_tower(c), text_tower(c))


def text_tower(c: Config) -> FilledTrunk:
    """B T → B image_dim"""
    embed = TokenEmbed(c.vocab, c.dim, position=LearnedPosition(c.context, c.dim))
    stack = Stack([block(c, c.dim, c.heads, c.hidden) for _ in range(c.layers)], nn.LayerNorm(c.dim, c.eps))
    head = Projection(c.dim, c.image_dim, pool=LastToken(), bias=True)
    tower = FilledTrunk(embed, stack, head, c.context, c.pad)
    dense_xavier(tower)
    nn.init.normal_(embed.token.weight, std=c.dim**-0.5)
    return tower


def image_tower(c: Config) -> Trunk:
    """B 3 H W → B image_dim"""
    dim, side = c.image_dim, patches_across(c.image - c.image % min(c.patch, c.image), c.patch)
    embed = ImageEmbed(CoveredPatches(3, dim, c.patch), LearnedGridPosition(side, side, dim, resample=bicubic))
    blocks = [block(c, dim, c.image_heads, c.image_hidden) for _ in range(c.image_layers)]
    seen = Residual(FFN(dim, c.image_hidden, act=activation(c.act)), before=nn.LayerNorm(dim, c.eps))
    head = Projection(dim, None, pool=AttentionPool(dim, c.image_heads), inside=seen)
    tower = Trunk(embed, Stack(blocks, nn.LayerNorm(dim, c.eps)), head)
    dense_xavier(tower)
    return tower


def block(c: Config, dim: int, heads: int, hidden: int | None) -> Block:
    norm, ffn = partial(nn.LayerNorm, dim, c.eps), FFN(dim, hidden, act=activation(c.act))
    attention = SelfAttention(dim, heads, dropout=c.attention_dropout)
    return Block(attn=Residual(attention, before=norm()), ffn=Residual(ffn, before=norm()))
