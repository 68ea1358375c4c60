"""BLOOM: a causal decoder, pre-norm, GELU, ALiBi in place of positions, a norm behind the embedding.

Le Scao et al. 2022.  MPT (MosaicML 2023) has no bias vectors anywhere and no norm behind the embedding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torch import nn

from headway.nn.attention import BIASED, UNBIASED
from headway.nn.bias import Alibi
from headway.nn.block import Block, Identity, Residual, Stack
from headway.nn.embed import TokenEmbed
from headway.nn.ffn import FFN
from headway.nn.head import LMHead
from headway.nn.trunk import Trunk
from headway.ops.pattern import Causal
from headway.zoo.build import VOCABULARY_AND_CONTEXT
from headway.zoo.choices import activation, clipped, decoder_top, normal


@dataclass(frozen=True)
class Config:
    vocab: int = 250_880
    context: int = 2048  # as trained; it has no end
    dim: int = 1024
    layers: int = 24
    heads: int = 16
    hidden: int | None = None  # 4 · dim
    act: str = "gelu_tanh"
    eps: float = 1e-5
    biased: bool = True
    embed_norm: bool = True
    clip: float | None = None  # what queries, keys and values are held within
    dropout: float = 0.0
    tied: bool = True
    attention_dropout: float = 0.0
    top: str = "words"
    classes: int = 2  # where the top has some


VOCABULARY = VOCABULARY_AND_CONTEXT


def build(c: Config) -> Trunk:
    norm = partial(nn.LayerNorm, c.dim, eps=c.eps, bias=c.biased)
    alibi, bias = Alibi(c.heads), BIASED if c.biased else UNBIASED

    def block() -> Block:
        dropout = c.attention_dropout
        attention = clipped(c.clip)(c.dim, c.heads, bias=bias, pattern=Causal(), logit_bias=alibi, dropout=dropout)
        ffn = FFN(c.dim, c.hidden, act=activation(c.act), bias=c.biased)
        return Block(
            attn=Residual(attention, before=norm(), drop=c.dropout),
            ffn=Residual(ffn, before=norm(), drop=c.dropout),
        )

    embed = TokenEmbed(c.vocab, c.dim, norm=norm() if c.embed_norm else Identity())
    words = partial(LMHead, c.dim, c.vocab, tied=embed.token if c.tied else None)
    stack = Stack([block() for _ in range(c.layers)], norm())
    model = Trunk(embed, stack, decoder_top(c.top, c.dim, c.classes, words))
    normal(model, 0.02)
    return model
