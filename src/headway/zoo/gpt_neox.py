"""GPT-NeoX and its like: a causal decoder with LayerNorm and rotary positions, whose sublayers may stand side by side.

Black et al. 2022 (and Pythia, Biderman et al. 2023).  GPT-J (2021) has one norm for both sublayers, as have Phi-1 and 2
(Li et al. 2023) and Falcon (Almazrouei et al. 2023), whose heads share keys; StableLM (2023) is gated, StarCoder 2
(Lozhkov et al. 2024) has its sublayers in turn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from torch import nn

from headway.nn.attention import SelfAttention, share
from headway.nn.block import Block, Identity, ParallelBlock, Residual, Stack
from headway.nn.embed import TokenEmbed
from headway.nn.ffn import FFN, GatedFFN, ffn_width
from headway.nn.head import LMHead
from headway.nn.trunk import Trunk
from headway.ops.pattern import Causal
from headway.ops.rotary import HALVES, PAIRS, Layout
from headway.zoo.build import VOCABULARY_AND_CONTEXT
from headway.zoo.choices import activation, decoder_top, named, normal
from headway.zoo.llama import BIASES, Frequencies

QUARTER = Frequencies(part=0.25)


@dataclass(frozen=True)
class Config:
    vocab: int = 50_304
    context: int = 2048
    dim: int = 768
    layers: int = 12
    heads: int = 12
    kv_heads: int | None = None  # heads
    hidden: int | None = None  # 4 · dim
    order: str = "parallel"
    norm: str = "affine"
    ffn: str = "plain"
    act: str = "gelu"
    eps: float = 1e-5
    rotary: Frequencies = QUARTER
    layout: str = "halves"
    window: int | None = None
    biases: str = "all"
    head_bias: bool = False
    dropout: float = 0.0
    tied: bool = False
    attention_dropout: float = 0.0
    embed_dropout: float = 0.0
    top: str = "words"
    classes: int = 2  # where the top has some


VOCABULARY = VOCABULARY_AND_CONTEXT
Norm = Callable[[int, float], nn.Module]


def no_norm(dim: int, eps: float) -> nn.Module:
    return Identity()


# the norm of a sublayer, and that of the queries and keys of each head
NORMS: dict[str, tuple[Norm, Norm]] = {
    "affine": (nn.LayerNorm, no_norm),
    "affine, queries and keys": (nn.LayerNorm, nn.LayerNorm),
}
FFNS: dict[str, type[FFN]] = {"plain": FFN, "gated": GatedFFN}
LAYOUTS: dict[str, Layout] = {"halves": HALVES, "pairs": PAIRS}
# the kind of a layer, and whether both sublayers have the same norm
ORDERS: dict[str, tuple[type[Block], bool]] = {
    "sequential": (Block, False),
    "parallel": (ParallelBlock, False),
    "parallel, one norm": (ParallelBlock, True),
}


def build(c: Config) -> Trunk:
    norm, qk_norm = named("norm", c.norm, NORMS)
    norm = partial(norm, c.dim, c.eps)
    layer, shares_norm = named("order", c.order, ORDERS)
    biases, head_dim = named("biases", c.biases, BIASES), share(c.dim, c.heads)
    rotary = replace(c.rotary.rotary(head_dim), layout=named("layout", c.layout, LAYOUTS))
    feed_forward = named("feed-forward layer", c.ffn, FFNS)

    def block() -> Block:
        attention = SelfAttention(
            c.dim,
            c.heads,
            kv_heads=c.kv_heads,
            bias=biases.attention,
            pattern=Causal(c.window),
            rotary=rotary,
            qk_norm=lambda head_dim: qk_norm(head_dim, c.eps),
            dropout=c.attention_dropout,
        )
        ffn = feed_forward(c.dim, ffn_width(c.dim, c.hidden), act=activation(c.act), bias=biases.ffn)
        first = norm()
        return layer(
            attn=Residual(attention, before=first, drop=c.dropout),
            ffn=Residual(ffn, before=first if shares_norm else norm(), drop=c.dropout),
        )

    embed = TokenEmbed(c.vocab, c.dim, dropout=c.embed_dropout)
    words = partial(LMHead, c.dim, c.vocab, bias=c.head_bias, tied=embed.token if c.tied else None)
    stack = Stack([block() for _ in range(c.layers)], norm())
    model = Trunk(embed, stack, decoder_top(c.top, c.dim, c.classes, words))
    normal(model, 0.02)
    return model
