"""OLMo: a gated decoder with rotary positions, whose norms learn nothing.

Groeneveld et al. 2024.  Its second version (April 2024) holds queries, keys and values within bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torch import nn

from headway.nn.attention import BIASED, UNBIASED, share
from headway.nn.block import Block, Residual, Stack
from headway.nn.embed import TokenEmbed
from headway.nn.ffn import GatedFFN
from headway.nn.head import LMHead
from headway.nn.trunk import Trunk
from headway.ops.pattern import Causal
from headway.zoo.build import VOCABULARY_AND_CONTEXT
from headway.zoo.choices import activation, clipped, decoder_top, normal
from headway.zoo.llama import Frequencies

FREQUENCIES = Frequencies()


@dataclass(frozen=True)
class Config:
    vocab: int = 50_304
    context: int = 2048
    dim: int = 2048
    layers: int = 16
    heads: int = 16
    kv_heads: int | None = None  # heads
    hidden: int = 8192
    act: str = "silu"
    rotary: Frequencies = FREQUENCIES
    clip: float | None = None  # what queries, keys and values are held within
    biased: bool = False  # the projections of attention
    tied: bool = False
    attention_dropout: float = 0.0
    top: str = "words"
    classes: int = 2  # where the top has some


VOCABULARY = VOCABULARY_AND_CONTEXT


def build(c: Config) -> Trunk:
    norm = partial(nn.LayerNorm, c.dim, eps=1e-5, elementwise_affine=False)
    rotary, kind = c.rotary.rotary(share(c.dim, c.heads)), clipped(c.clip)

    def block() -> Block:
        attention = kind(
            c.dim,
            c.heads,
            kv_heads=c.kv_heads,
            bias=BIASED if c.biased else UNBIASED,
            pattern=Causal(),
            rotary=rotary,
            dropout=c.attention_dropout,
        )
        ffn = GatedFFN(c.dim, c.hidden, act=activation(c.act), bias=False)
        return Block(attn=Residual(attention, before=norm()), ffn=Residual(ffn, before=norm()))

    embed = TokenEmbed(c.vocab, c.dim)
    words = partial(LMHead, c.dim, c.vocab, tied=embed.token if c.tied else None)
    stack = Stack([block() for _ in range(c.layers)], norm())
    model = Trunk(embed, stack, decoder_top(c.top, c.dim, c.classes, words))
    normal(model, 0.02)
    return model
