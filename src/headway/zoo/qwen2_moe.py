"""Qwen2-MoE: Qwen2's decoder, in most layers a mixture of small experts beside one that sees every token.

Qwen team 2024.  How much of the latter is added, each token says by a gate of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import nn

from headway.nn.attention import Biases, SelfAttention, share
from headway.nn.block import Block, Parallel, Residual, Stack
from headway.nn.embed import TokenEmbed
from headway.nn.ffn import GatedFFN
from headway.nn.head import LMHead
from headway.nn.moe import GroupedSoftmax, MoE, SharedExpert, TopSoftmax
from headway.nn.trunk import Trunk
from headway.ops.pattern import Causal
from headway.zoo.build import VOCABULARY_AND_CONTEXT
from headway.zoo.choices import activation, named, normal, window_of
from headway.zoo.llama import Frequencies

FREQUENCIES = Frequencies(1e6)


@dataclass(frozen=True)
class Config:
    vocab: int = 151_936
    context: int = 8192
    dim: int = 2048
    layers: int = 24
    heads: int = 16
    kv_heads: int = 16
    head_dim: int | None = None  # dim / heads
    hidden: int = 5632  # of layers without experts
    dense_layers: tuple[int, ...] = ()  # those without experts
    experts: int = 60
    top: int = 4  # experts of a token
    expert_hidden: int = 1408
    shared_hidden: int = 5632  # of the expert that sees every token
    gates: str = "all"  # the experts over which a token's gates sum to 1; "chosen": over its own
    act: str = "silu"
    eps: float = 1e-6
    rotary: Frequencies = FREQUENCIES
    window: int | None = None
    local_layers: tuple[int, ...] | None = None  # those that have the window; all
    tied: bool = False
    attention_dropout: float = 0.0


VOCABULARY = VOCABULARY_AND_CONTEXT
GATES: dict[str, Callable[[], nn.Module]] = {"all": partial(GroupedSoftmax, 1, 1, 1.0), "chosen": TopSoftmax}


def build(c: Config) -> Trunk:
    norm = partial(nn.RMSNorm, c.dim, eps=c.eps)
    head_dim = share(c.dim, c.heads) if c.head_dim is None else c.head_dim
    gated = partial(GatedFFN, c.dim, act=activation(c.act), bias=False)
    gates = named("gates", c.gates, GATES)

    def attention(layer: int) -> SelfAttention:
        return SelfAttention(
            c.dim,
            c.heads,
            kv_heads=c.kv_heads,
            head_dim=head_dim,
            bias=Biases(out=False),
            pattern=Causal(window_of(layer, c.window, c.local_layers)),
            rotary=c.rotary.rotary(head_dim),
            dropout=c.attention_dropout,
        )

    def experts() -> Parallel:
        routed = MoE(partial(gated, c.expert_hidden), c.dim, c.experts, top=c.top, routing=gates())
        return Parallel(routed=routed, shared=SharedExpert(gated(c.shared_hidden), c.dim))

    def block(layer: int) -> Block:
        ffn = gated(c.hidden) if layer in c.dense_layers else experts()
        return Block(attn=Residual(attention(layer), before=norm()), ffn=Residual(ffn, before=norm()))

    embed = TokenEmbed(c.vocab, c.dim)
    stack = Stack([block(layer) for layer in range(c.layers)], norm())
    model = Trunk(embed, stack, LMHead(c.dim, c.vocab, tied=embed.token if c.tied else None))
    normal(model, 0.02)
    return model
