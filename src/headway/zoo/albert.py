"""ALBERT: BERT with layers that share their parameters, and words narrower than the stream.

Lan et al. 2019.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torch import nn

from headway.errors import UserError
from headway.nn.attention import SelfAttention
from headway.nn.block import Block, Repeat, Residual, Stack
from headway.nn.embed import LearnedPosition, TokenEmbed
from headway.nn.ffn import FFN
from headway.nn.head import MLMHead
from headway.nn.trunk import Trunk
from headway.ops.attend import divisors
from headway.zoo.build import VOCABULARY_AND_CONTEXT
from headway.zoo.choices import activation, normal, top


@dataclass(frozen=True)
class Config:
    vocab: int = 30_000
    context: int = 512
    width: int = 128  # of the words' vectors
    dim: int = 768
    layers: int = 12  # turns, of all groups together
    groups: int = 1  # of layers with the same parameters
    inner: int = 1  # blocks in one turn of a group
    heads: int = 12
    hidden: int | None = None  # 4 · dim
    segments: int = 2
    act: str = "gelu_tanh"
    eps: float = 1e-12
    dropout: float = 0.0
    top: str = "words"
    classes: int = 2  # where the top has some
    attention_dropout: float = 0.0
    class_dropout: float = 0.1  # before the classes


VOCABULARY = VOCABULARY_AND_CONTEXT


def build(c: Config) -> Trunk:
    norm = partial(nn.LayerNorm, eps=c.eps)
    turns = shared_among(c.layers, c.groups)

    def block() -> Block:
        attention = SelfAttention(c.dim, c.heads, dropout=c.attention_dropout)
        return Block(
            attn=Residual(attention, after=norm(c.dim), drop=c.dropout),
            ffn=Residual(FFN(c.dim, c.hidden, act=activation(c.act)), after=norm(c.dim), drop=c.dropout),
        )

    embed = TokenEmbed(
        c.vocab,
        c.width,
        position=LearnedPosition(c.context, c.width),
        segments=c.segments,
        norm=norm(c.width),
        dropout=c.dropout,
        project=nn.Linear(c.width, c.dim),
    )
    words = partial(MLMHead, c.dim, c.vocab, width=c.width, act=activation(c.act), norm=norm, tied=embed.token)
    groups = [Repeat(Stack([block() for _ in range(c.inner)]), turns) for _ in range(c.groups)]
    model = Trunk(embed, Stack(groups), top(c.top, c.dim, c.classes, c.class_dropout, words))
    normal(model, 0.02)
    return model


def shared_among(layers: int, groups: int) -> int:
    if groups < 1 or layers % groups:
        raise UserError(f"groups={groups} does not divide layers={layers}", allowed=f"groups of {divisors(layers)}")
    return layers // groups
