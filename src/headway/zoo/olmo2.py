"""OLMo 2 and 3: a Llama that norms each sublayer's change instead of its input, and queries and keys of all heads.

Walsh et al. 2024.  OLMo 3 (2025) sees through a window in three of four layers, which are not stretched.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torch import nn

from headway.nn.attention import BIASED, UNBIASED, SelfAttention, share
from headway.nn.block import Block, Residual, Stack
from headway.nn.embed import TokenEmbed
from headway.nn.ffn import GatedFFN
from headway.nn.head import LMHead
from headway.nn.norm import JointRMSNorm
from headway.nn.trunk import Trunk
from headway.ops.pattern import Causal
from headway.zoo.build import VOCABULARY_AND_CONTEXT
from headway.zoo.choices import activation, decoder_top, normal, window_of
from headway.zoo.llama import Frequencies

FREQUENCIES = Frequencies(500_000.0)


@dataclass(frozen=True)
class Config:
    vocab: int = 100_352
    context: int = 4096
    dim: int = 2048
    layers: int = 16
    heads: int = 16
    kv_heads: int | None = None  # heads
    hidden: int = 8192
    act: str = "silu"
    eps: float = 1e-6
    rotary: Frequencies = FREQUENCIES
    local_rotary: Frequencies | None = None  # of the layers that have the window; `rotary`
    window: int | None = None
    local_layers: tuple[int, ...] | None = None  # those that have the window; all
    biased: bool = False
    tied: bool = False
    attention_dropout: float = 0.0
    top: str = "words"
    classes: int = 2  # where the top has some


VOCABULARY = VOCABULARY_AND_CONTEXT


def build(c: Config) -> Trunk:
    norm = partial(nn.RMSNorm, c.dim, eps=c.eps)
    head_dim, kv_heads = share(c.dim, c.heads), c.heads if c.kv_heads is None else c.kv_heads

    def block(layer: int) -> Block:
        window = window_of(layer, c.window, c.local_layers)
        frequencies = c.rotary if window is None or c.local_rotary is None else c.local_rotary
        attention = SelfAttention(
            c.dim,
            c.heads,
            kv_heads=kv_heads,
            bias=BIASED if c.biased else UNBIASED,
            pattern=Causal(window),
            rotary=frequencies.rotary(head_dim),
            dropout=c.attention_dropout,
        )
        attention.q_norm, attention.k_norm = (JointRMSNorm(heads, head_dim, c.eps) for heads in (c.heads, kv_heads))
        ffn = GatedFFN(c.dim, c.hidden, act=activation(c.act), bias=False)
        return Block(attn=Residual(attention, inside=norm()), ffn=Residual(ffn, inside=norm()))

    embed = TokenEmbed(c.vocab, c.dim)
    words = partial(LMHead, c.dim, c.vocab, tied=embed.token if c.tied else None)
    stack = Stack([block(layer) for layer in range(c.layers)], norm())
    model = Trunk(embed, stack, decoder_top(c.top, c.dim, c.classes, words))
    normal(model, 0.02)
    return model
