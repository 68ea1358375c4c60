"""BERT and its like: an encoder, post-norm, GELU, learned positions, two segments, and what is wanted on top.

Devlin et al. 2018; RoBERTa (Liu et al. 2019) and its multilingual kin, DistilBERT (Sanh et al. 2019) without segments,
ELECTRA (Clark et al. 2020) with narrow vectors of words, MPNet (Song et al. 2020) with a bias of distances.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torch import nn

from headway.nn.attention import SelfAttention
from headway.nn.bias import T5Bias
from headway.nn.block import Block, Residual, Stack
from headway.nn.embed import LearnedPosition, TokenEmbed
from headway.nn.ffn import FFN
from headway.nn.head import MLMHead
from headway.nn.trunk import Trunk
from headway.zoo.build import VOCABULARY_AND_CONTEXT
from headway.zoo.choices import activation, normal, top


@dataclass(frozen=True)
class Config:
    vocab: int = 30_522
    context: int = 512
    dim: int = 768
    layers: int = 12
    heads: int = 12
    hidden: int | None = None  # 4 · dim
    segments: int = 2  # 0: none
    first: int = 0  # the row of the table that position 0 has; RoBERTa: 2, behind the padding's
    width: int | None = None  # of the words' vectors; dim
    buckets: int = 0  # of distances, for which logits have a bias; 0: they have none
    act: str = "gelu"
    eps: float = 1e-12
    dropout: float = 0.1
    top: str = "words"
    classes: int = 2  # where the top has some
    attention_dropout: float = 0.1
    class_dropout: float | None = None  # before the classes; as `dropout`


VOCABULARY = VOCABULARY_AND_CONTEXT


def build(c: Config) -> Trunk:
    norm = partial(nn.LayerNorm, eps=c.eps)

    width = c.dim if c.width is None else c.width
    distances = T5Bias(c.heads, c.buckets) if c.buckets else None  # one for all layers

    def block() -> Block:
        attention = SelfAttention(c.dim, c.heads, logit_bias=distances, dropout=c.attention_dropout)
        return Block(
            attn=Residual(attention, after=norm(c.dim), drop=c.dropout),
            ffn=Residual(FFN(c.dim, c.hidden, act=activation(c.act)), after=norm(c.dim), drop=c.dropout),
        )

    embed = TokenEmbed(
        c.vocab,
        width,
        position=LearnedPosition(c.first + c.context, width, first=c.first),
        segments=c.segments,
        norm=norm(width),
        dropout=c.dropout,
        project=None if width == c.dim else nn.Linear(width, c.dim),
    )
    words = partial(MLMHead, c.dim, c.vocab, width=width, act=activation(c.act), norm=norm, tied=embed.token)
    stack = Stack([block() for _ in range(c.layers)])
    before = c.dropout if c.class_dropout is None else c.class_dropout
    model = Trunk(embed, stack, top(c.top, c.dim, c.classes, before, words))
    normal(model, 0.02)
    return model
