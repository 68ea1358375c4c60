"""Llama and its like: a causal decoder, pre-norm by RMSNorm, SwiGLU, rotary positions, keys shared by groups of heads.

Touvron et al. 2023.  Mistral (Jiang et al. 2023) sees through a window, Qwen2 (Yang et al. 2024) adds a bias to
queries, keys and values, Phi-3 (Abdin et al. 2024) stretches every pair of dims by a factor of its own, Qwen3 (Yang et
al. 2025) norms the queries and keys of each head, SmolLM3 (2025) leaves some layers without positions, Granite (2024)
multiplies embedding, changes, scores and logits by constants.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import NamedTuple

from torch import nn

from headway.nn.attention import BIASED, UNBIASED, Biases, SelfAttention, share
from headway.nn.block import Block, Identity, Residual, Stack
from headway.nn.embed import TokenEmbed
from headway.nn.ffn import GatedFFN
from headway.nn.head import LMHead
from headway.nn.trunk import Trunk
from headway.ops.attend import Dot
from headway.ops.pattern import Causal
from headway.ops.rotary import UNSCALED, Rotary, Scaling
from headway.zoo.build import VOCABULARY_AND_CONTEXT
from headway.zoo.choices import activation, decoder_top, named, normal, window_of


@dataclass(frozen=True)
class Frequencies:
    """How fast the heads turn with the position: Llama 3 has Frequencies(500_000.0, Llama3(8.0, 1.0, 4.0, 8192))."""

    base: float = 10_000.0
    scaling: Scaling = UNSCALED
    part: float = 1.0  # of each head that turns, the first dims

    def rotary(self, head_dim: int) -> Rotary:
        return Rotary(head_dim, self.base, turned=int(self.part * head_dim), scaling=self.scaling)


@dataclass(frozen=True)
class Multipliers:
    """Granite's constants."""

    embed: float = 1.0
    residual: float = 1.0  # of each sublayer's change
    score: float | None = None  # head_dim ** -0.5
    logit_divisor: float = 1.0


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
    local_layers: tuple[int, ...] | None = None  # those that have the window; all
    unplaced_layers: tuple[int, ...] = ()  # those that turn nothing
    biases: str = "none"
    qk_norm: str = "none"
    multipliers: Multipliers = Multipliers()
    tied: bool = False
    attention_dropout: float = 0.0
    top: str = "words"
    classes: int = 2  # where the top has some


VOCABULARY = VOCABULARY_AND_CONTEXT


class Vectors(NamedTuple):
    """Which layers add a bias vector."""

    attention: Biases
    ffn: bool


BIASES = {
    "none": Vectors(UNBIASED, ffn=False),
    "qkv": Vectors(Biases(out=False), ffn=False),
    "attention": Vectors(BIASED, ffn=False),
    "ffn": Vectors(UNBIASED, ffn=True),
    "all": Vectors(BIASED, ffn=True),
}
QK_NORMS: dict[str, Callable[[int, float], nn.Module]] = {
    "none": lambda head_dim, eps: Identity(),
    "heads": lambda head_dim, eps: nn.RMSNorm(head_dim, eps=eps),
}


def build(c: Config) -> Trunk:
    return decoder(c, TokenEmbed(c.vocab, c.dim, scale=c.multipliers.embed))


def decoder(c: Config, embed: TokenEmbed) -> Trunk:
    norm = partial(nn.RMSNorm, c.dim, eps=c.eps)
    head_dim = share(c.dim, c.heads) if c.head_dim is None else c.head_dim
    hidden = gated_hidden(c.dim) if c.hidden is None else c.hidden
    biases = named("biases", c.biases, BIASES)
    qk_norm = named("norm of queries and keys", c.qk_norm, QK_NORMS)

    def block(layer: int) -> Block:
        attention = SelfAttention(
            c.dim,
            c.heads,
            kv_heads=c.kv_heads,
            head_dim=head_dim,
            bias=biases.attention,
            pattern=Causal(window_of(layer, c.window, c.local_layers)),
            rotary=None if layer in c.unplaced_layers else c.rotary.rotary(head_dim),
            qk_norm=lambda head_dim: qk_norm(head_dim, c.eps),
            score=Dot(c.multipliers.score),
            dropout=c.attention_dropout,
        )
        ffn = GatedFFN(c.dim, hidden, act=activation(c.act), bias=biases.ffn)
        sublayer = partial(Residual, scale=c.multipliers.residual)
        return Block(attn=sublayer(attention, before=norm()), ffn=sublayer(ffn, before=norm()))

    scale = 1 / c.multipliers.logit_divisor
    words = partial(LMHead, c.dim, c.vocab, tied=embed.token if c.tied else None, scale=scale)
    stack = Stack([block(layer) for layer in range(c.layers)], norm())
    model = Trunk(embed, stack, decoder_top(c.top, c.dim, c.classes, words))
    normal(model, 0.02)
    return model


def gated_hidden(dim: int) -> int:
    """8/3 · dim, up to the next multiple of 256: about as many weights as a plain layer with 4 · dim has."""
    return 256 * ceil(8 * dim / 3 / 256)
