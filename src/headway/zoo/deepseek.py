"""DeepSeek-V2 and V3: keys and values made of one narrow vector per token, and many small experts in groups.

DeepSeek-AI 2024.  A few experts see every token; of the others a token takes the best within the best groups.  The
first layers have plain feed-forward layers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import log

from torch import nn

from headway.nn.block import Block, Parallel, Residual, Stack
from headway.nn.embed import TokenEmbed
from headway.nn.ffn import GatedFFN
from headway.nn.head import LMHead
from headway.nn.latent_attention import LatentAttention
from headway.nn.moe import GroupedSigmoid, GroupedSoftmax, MoE
from headway.nn.trunk import Trunk
from headway.ops.attend import Dot
from headway.ops.pattern import Causal
from headway.ops.rotary import HALVES, PAIRS, Layout, Rotary, Yarn
from headway.zoo.build import VOCABULARY_AND_CONTEXT
from headway.zoo.choices import activation, named, normal
from headway.zoo.llama import Frequencies

FREQUENCIES = Frequencies()


@dataclass(frozen=True)
class Latent:
    """The widths of multi-head latent attention."""

    latent: int = 512  # what keys and values are made of
    plain: int = 128  # the dims of a head that do not turn
    turned: int = 64  # those that do
    value: int = 128
    rank: int | None = 1536  # through which queries are projected
    layout: str = "pairs"
    biased: bool = False


@dataclass(frozen=True)
class Experts:
    """The experts of a layer."""

    experts: int = 256
    top: int = 8  # of a token
    shared: int = 1  # that see every token, as one wide one
    expert_hidden: int = 2048
    groups: int = 8
    kept: int = 4  # groups that a token's experts are of
    factor: float = 2.5  # of the gates
    routing: str = "sigmoid"


@dataclass(frozen=True)
class Config:
    vocab: int = 129_280
    context: int = 4096
    dim: int = 7168
    layers: int = 61
    heads: int = 128
    latent: Latent = Latent()
    hidden: int = 18_432  # of the plain layers
    dense_layers: int = 3  # that come first, without experts
    mixture: Experts = Experts()
    act: str = "silu"
    eps: float = 1e-6
    rotary: Frequencies = FREQUENCIES
    tied: bool = False
    attention_dropout: float = 0.0


VOCABULARY = VOCABULARY_AND_CONTEXT
LAYOUTS: dict[str, Layout] = {"pairs": PAIRS, "halves": HALVES}
ROUTINGS: dict[str, Callable[[Experts], nn.Module]] = {
    "sigmoid": lambda e: GroupedSigmoid(e.experts, e.groups, e.kept, e.factor),
    "softmax": lambda e: GroupedSoftmax(e.groups, e.kept, e.factor),
}


def build(c: Config) -> Trunk:
    norm, of, some = partial(nn.RMSNorm, c.dim, eps=c.eps), c.latent, c.mixture
    gated = partial(GatedFFN, c.dim, act=activation(c.act), bias=False)
    routing, layout = named("routing", some.routing, ROUTINGS), named("layout", of.layout, LAYOUTS)

    def attention() -> LatentAttention:
        return LatentAttention(
            c.dim,
            c.heads,
            latent=of.latent,
            plain=of.plain,
            rotary=Rotary(of.turned, c.rotary.base, layout=layout, scaling=c.rotary.scaling),
            value=of.value,
            rank=of.rank,
            bias=of.biased,
            pattern=Causal(),
            score=Dot((of.plain + of.turned) ** -0.5 * sharpening(c.rotary)),
            dropout=c.attention_dropout,
        )

    def experts() -> nn.Module:
        routed = MoE(partial(gated, some.expert_hidden), c.dim, some.experts, top=some.top, routing=routing(some))
        return Parallel(routed=routed, shared=gated(some.shared * some.expert_hidden)) if some.shared else routed

    def block(layer: int) -> Block:
        ffn = gated(c.hidden) if layer < c.dense_layers else experts()
        return Block(attn=Residual(attention(), before=norm()), ffn=Residual(ffn, before=norm()))

    embed = TokenEmbed(c.vocab, c.dim)
    stack = Stack([block(layer) for layer in range(c.layers)], norm())
    model = Trunk(embed, stack, LMHead(c.dim, c.vocab, tied=embed.token if c.tied else None))
    normal(model, 0.02)
    return model


def sharpening(rotary: Frequencies) -> float:
    """By how much YaRN sharpens the scores of all dims, turned or not."""
    scaling = rotary.scaling
    return (0.1 * scaling.mscale_all * log(scaling.factor) + 1) ** 2 if isinstance(scaling, Yarn) else 1.0
