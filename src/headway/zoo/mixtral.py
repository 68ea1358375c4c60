"""Mixtral: Mistral's decoder, each feed-forward layer a mixture of gated experts of which a token takes a few.

Jiang et al. 2024.  Qwen3-MoE (Yang et al. 2025) norms the queries and keys of each head.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torch import nn

from headway.nn.attention import UNBIASED, SelfAttention, share
from headway.nn.block import Block, Residual, Stack
from headway.nn.embed import TokenEmbed
from headway.nn.ffn import GatedFFN
from headway.nn.head import LMHead
from headway.nn.moe import MoE
from headway.nn.trunk import Trunk
from headway.ops.pattern import Causal
from headway.zoo.build import VOCABULARY_AND_CONTEXT
from headway.zoo.choices import activation, named, normal
from headway.zoo.llama import QK_NORMS, Frequencies

FREQUENCIES = Frequencies(1e6)


@dataclass(frozen=True)
class Config:
    vocab: int = 32_000
    context: int = 32_768
    dim: int = 4096
    layers: int = 32
    heads: int = 32
    kv_heads: int = 8
    head_dim: int | None = None  # dim / heads
    hidden: int = 14_336  # of each expert
    experts: int = 8
    top: int = 2  # experts of a token
    act: str = "silu"
    eps: float = 1e-5
    rotary: Frequencies = FREQUENCIES
    window: int | None = None
    qk_norm: str = "none"
    tied: bool = False
    attention_dropout: float = 0.0


VOCABULARY = VOCABULARY_AND_CONTEXT


def build(c: Config) -> Trunk:
    norm = partial(nn.RMSNorm, c.dim, eps=c.eps)
    head_dim = share(c.dim, c.heads) if c.head_dim is None else c.head_dim
    expert = partial(GatedFFN, c.dim, c.hidden, act=activation(c.act), bias=False)

    qk_norm = named("norm of queries and keys", c.qk_norm, QK_NORMS)

    def block() -> Block:
        attention = SelfAttention(
            c.dim,
            c.heads,
            kv_heads=c.kv_heads,
            head_dim=head_dim,
            bias=UNBIASED,
            pattern=Causal(c.window),
            rotary=c.rotary.rotary(head_dim),
            qk_norm=lambda head_dim: qk_norm(head_dim, c.eps),
            dropout=c.attention_dropout,
        )
        mixture = MoE(expert, c.dim, c.experts, top=c.top)
        return Block(attn=Residual(attention, before=norm()), ffn=Residual(mixture, before=norm()))

    embed = TokenEmbed(c.vocab, c.dim)
    stack = Stack([block() for _ in range(c.layers)], norm())
    model = Trunk(embed, stack, LMHead(c.dim, c.vocab, tied=embed.token if c.tied else None))
    normal(model, 0.02)
    return model
