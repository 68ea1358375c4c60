"""GPT-2 and GPT-3: a causal decoder, pre-norm, GELU, learned positions, output tied to the embedding.

Radford et al. 2019, Brown et al. 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torch import nn

from headway.nn.attention import SelfAttention
from headway.nn.block import Block, Residual, Stack
from headway.nn.embed import LearnedPosition, TokenEmbed
from headway.nn.ffn import FFN
from headway.nn.head import LMHead
from headway.nn.trunk import Trunk
from headway.ops.pattern import Causal
from headway.zoo.build import VOCABULARY_AND_CONTEXT
from headway.zoo.choices import activation, decoder_top, normal


@dataclass(frozen=True)
class Config:
    vocab: int = 50_257
    context: int = 1024
    dim: int = 768
    layers: int = 12
    heads: int = 12
    hidden: int | None = None  # 4 · dim
    act: str = "gelu_tanh"
    eps: float = 1e-5
    dropout: float = 0.1
    tied: bool = True
    attention_dropout: float = 0.1
    embed_dropout: float = 0.1
    top: str = "words"
    classes: int = 2  # where the top has some


VOCABULARY = VOCABULARY_AND_CONTEXT


def build(c: Config) -> Trunk:
    norm = partial(nn.LayerNorm, c.dim, eps=c.eps)

    def block() -> Block:
        attention = SelfAttention(c.dim, c.heads, pattern=Causal(), dropout=c.attention_dropout)
        return Block(
            attn=Residual(attention, before=norm(), drop=c.dropout),
            ffn=Residual(FFN(c.dim, c.hidden, act=activation(c.act)), before=norm(), drop=c.dropout),
        )

    embed = TokenEmbed(c.vocab, c.dim, position=LearnedPosition(c.context, c.dim), dropout=c.embed_dropout)
    words = partial(LMHead, c.dim, c.vocab, tied=embed.token if c.tied else None)
    stack = Stack([block() for _ in range(c.layers)], norm())
    model = Trunk(embed, stack, decoder_top(c.top, c.dim, c.classes, words))
    normal(model, 0.02)
    return model
