"""CLIP: a ViT and a causal Transformer that learn which text belongs to which image.

Radford et al. 2021.  An image is its class token's feature, a text its end token's; both are projected to one space.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from headway.nn.attention import SelfAttention
from headway.nn.block import Block, Residual, Stack
from headway.nn.embed import LearnedPosition, TokenEmbed
from headway.nn.ffn import FFN
from headway.nn.head import FirstToken, LastToken
from headway.nn.image import ImageEmbed, LearnedGridPosition, PatchEmbed, PlacedClassToken
from headway.nn.towers import EndingTrunk, Projection, TwoTowers
from headway.nn.trunk import Trunk
from headway.ops.patches import bicubic
from headway.ops.pattern import Causal, Full, Pattern
from headway.zoo.build import FROM_FIELDS
from headway.zoo.choices import activation, residual_depth
from headway.zoo.vit import patches_across


@dataclass(frozen=True)
class Config:
    vocab: int = 49_408
    end: int = 49_407  # the token that ends a text
    context: int = 77
    dim: int = 512  # of the texts' tower
    layers: int = 12
    heads: int = 8
    hidden: int | None = None  # 4 · dim
    image: int = 224  # the side of the images that its positions are made for; others go too
    patch: int = 32
    image_dim: int = 768
    image_layers: int = 12
    image_heads: int = 12
    image_hidden: int | None = None  # 4 · image_dim
    width: int = 512  # of the vectors that are compared
    act: str = "quick_gelu"
    attention_dropout: float = 0.0


VOCABULARY = FROM_FIELDS


def build(c: Config) -> TwoTowers:
    return TwoTowers(image_tower(c, c.width), text_tower(c, c.width))


def text_tower(c: Config, width: int | None) -> EndingTrunk:
    """B T → B width; B C without one."""
    position = LearnedPosition(c.context, c.dim)
    embed = TokenEmbed(c.vocab, c.dim, position=position)
    nn.init.normal_(embed.token.weight, std=0.02)
    nn.init.normal_(position.table.weight, std=0.01)
    blocks = [block(c, c.dim, c.heads, c.hidden, Causal()) for _ in range(c.layers)]
    residual_depth(blocks)
    head = projected(Projection(c.dim, width, pool=LastToken()))
    return EndingTrunk(embed, Stack(blocks, nn.LayerNorm(c.dim)), head, c.end)


def image_tower(c: Config, width: int | None) -> Trunk:
    """B 3 H W → B width; B C without one."""
    side, dim = patches_across(c.image, c.patch), c.image_dim
    embed = ImageEmbed(
        PatchEmbed(3, dim, c.patch, bias=False),
        LearnedGridPosition(side, side, dim, resample=bicubic),
        token=PlacedClassToken(dim),
        norm=nn.LayerNorm(dim),
    )
    blocks = [block(c, dim, c.image_heads, c.image_hidden, Full()) for _ in range(c.image_layers)]
    residual_depth(blocks)
    return Trunk(embed, Stack(blocks), projected(Projection(dim, width, pool=FirstToken(), norm=nn.LayerNorm(dim))))


def projected(head: Projection) -> Projection:
    """CLIP's beginning of the matrix, where there is one."""
    if isinstance(head.out, nn.Linear):
        nn.init.normal_(head.out.weight, std=head.out.in_features**-0.5)
    return head


def block(c: Config, dim: int, heads: int, hidden: int | None, pattern: Pattern) -> Block:
    ffn = FFN(dim, hidden, act=activation(c.act))
    attention = SelfAttention(dim, heads, pattern=pattern, dropout=c.attention_dropout)
    return Block(attn=Residual(attention, before=nn.LayerNorm(dim)), ffn=Residual(ffn, before=nn.LayerNorm(dim)))
