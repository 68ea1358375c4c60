"""DeBERTa 2 and 3: an encoder, post-norm, GELU, whose scores add what query and key tell of their distance.

He et al. 2020 and 2021.  The scores of content, of content at a distance and of a distance at content are three, and
divided by √3 more; each layer projects the vectors of distances by its own queries and keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torch import nn

from headway.nn.attention import SelfAttention, share
from headway.nn.bias import DisentangledBias, DistanceVectors
from headway.nn.block import Block, Residual, Stack
from headway.nn.embed import LearnedPosition, TokenEmbed
from headway.nn.ffn import FFN
from headway.nn.head import MLMHead
from headway.nn.trunk import Trunk
from headway.ops.attend import Dot
from headway.zoo.build import VOCABULARY_AND_CONTEXT
from headway.zoo.choices import activation, normal, top


@dataclass(frozen=True)
class Config:
    vocab: int = 128_100
    context: int = 512
    dim: int = 768
    layers: int = 12
    heads: int = 12
    hidden: int | None = None  # 4 · dim
    segments: int = 0  # 0: none
    marked: bool = False  # whether the embedding adds positions, too
    buckets: int = 256  # of distances, on each side
    farthest: int = 512  # the distance behind which all are alike
    act: str = "gelu"
    eps: float = 1e-7
    dropout: float = 0.1
    top: str = "words"
    classes: int = 2  # where the top has some
    attention_dropout: float = 0.1
    class_dropout: float | None = None  # before the classes; as `dropout`


VOCABULARY = VOCABULARY_AND_CONTEXT


def build(c: Config) -> Trunk:
    norm = partial(nn.LayerNorm, eps=c.eps)
    distance = DistanceVectors(c.dim, c.buckets, c.farthest, c.eps)  # one for all layers
    scale = (3 * share(c.dim, c.heads)) ** -0.5

    def block() -> Block:
        attention = SelfAttention(c.dim, c.heads, score=Dot(scale), dropout=c.attention_dropout)
        attention.logit_bias = DisentangledBias(distance, attention.q, attention.k, scale)
        return Block(
            attn=Residual(attention, after=norm(c.dim), drop=c.dropout),
            ffn=Residual(FFN(c.dim, c.hidden, act=activation(c.act)), after=norm(c.dim), drop=c.dropout),
        )

    position = LearnedPosition(c.context, c.dim) if c.marked else None
    embed = TokenEmbed(c.vocab, c.dim, position=position, segments=c.segments, norm=norm(c.dim), dropout=c.dropout)
    words = partial(MLMHead, c.dim, c.vocab, act=activation(c.act), norm=norm, tied=embed.token)
    stack = Stack([block() for _ in range(c.layers)])
    before = c.dropout if c.class_dropout is None else c.class_dropout
    model = Trunk(embed, stack, top(c.top, c.dim, c.classes, before, words))
    normal(model, 0.02)
    return model
