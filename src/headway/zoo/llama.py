"""Llama and Mistral: a causal decoder, pre-norm by RMSNorm, SwiGLU, rotary positions, keys shared by groups of heads.

Touvron et al. 2023; Mistral (Jiang et al. 2023) sees through a window.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import ceil

from torch import nn

from headway.nn.attention import BIASED, UNBIASED, SelfAttention, share
from headway.nn.block import Block, Residual, Stack
from headway.nn.embed import TokenEmbed
from headway.nn.ffn import GatedFFN
from headway.nn.head import LMHead
from headway.nn.model import Trunk
from headway.ops.pattern import Causal
from headway.ops.rotary import UNSCALED, Rotary, Scaling
from headway.zoo.init import normal
from headway.zoo.names import activation


@dataclass(frozen=True)
class Frequencies:
    """How fast the heads turn with the position: Llama 3 has Frequencies(500_000.0, Llama3(8.0, 1.0, 4.0, 8192))."""

    base: float = 10_000.0
    scaling: Scaling = UNSCALED


@dataclass(frozen=True)
class Config:
    vocab: int = 32_000
    context: int = 2048
    dim: int = 4096
    layers: int = 32
    heads: int = 32
    kv_heads: int | None = None  # heads
    head_dim: int | None = None  # dim / heads
    hidden: int | None = None  # gated_hidden(dim)
    act: str = "silu"
    eps: float = 1e-6
    rotary: Frequencies = Frequencies()
    window: int | None = None
    attention_bias: bool = False
    ffn_bias: bool = False
    tied: bool = False


def build(c: Config) -> Trunk:
    norm = partial(nn.RMSNorm, c.dim, eps=c.eps)
    head_dim = share(c.dim, c.heads) if c.head_dim is None else c.head_dim
    hidden = gated_hidden(c.dim) if c.hidden is None else c.hidden

    def block() -> Block:
        attention = SelfAttention(
            c.dim,
            c.heads,
            kv_heads=c.kv_heads,
            head_dim=head_dim,
            bias=BIASED if c.attention_bias else UNBIASED,
            pattern=Causal(c.window),
            rotary=Rotary(head_dim, c.rotary.base, scaling=c.rotary.scaling),
        )
        ffn = GatedFFN(c.dim, hidden, act=activation(c.act), bias=c.ffn_bias)
        return Block(attn=Residual(attention, before=norm()), ffn=Residual(ffn, before=norm()))

    embed = TokenEmbed(c.vocab, c.dim)
    stack = Stack([block() for _ in range(c.layers)], norm())
    model = Trunk(embed, stack, LMHead(c.dim, c.vocab, tied=embed.token if c.tied else None))
    normal(model, 0.02)
    return model


def gated_hidden(dim: int) -> int:
    """8/3 · dim, up to the next multiple of 256: about as many weights as a plain layer with 4 · dim has."""
    return 256 * ceil(8 * dim / 3 / 256)
