"""Gemma: a causal decoder, RMSNorm whose weights are offsets from 1, GEGLU, wide heads, rotary positions.

Gemma 1 (Mesnard et al. 2024) is pre-norm; Gemma 2 (Riviere et al. 2024) norms changes too, caps scores and logits, and
sees through a window in every second layer; Gemma 3 (Kamath et al. 2025) norms queries and keys in place of the caps,
and turns slower in the layers without a window.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import nn

from headway.nn.attention import UNBIASED, SelfAttention
from headway.nn.block import Block, Identity, Residual, Stack
from headway.nn.embed import TokenEmbed
from headway.nn.ffn import GatedFFN
from headway.nn.head import LMHead, SoftCappedHead
from headway.nn.norm import OffsetRMSNorm
from headway.nn.trunk import Trunk
from headway.ops.attend import Dot, Score, SoftCapped
from headway.ops.pattern import Causal
from headway.zoo.build import VOCABULARY_AND_CONTEXT
from headway.zoo.choices import activation, decoder_top, named, normal, window_of
from headway.zoo.llama import Frequencies

FREQUENCIES = Frequencies()


@dataclass(frozen=True)
class Config:
    vocab: int = 256_000
    context: int = 8192
    dim: int = 2304
    layers: int = 26
    heads: int = 8
    kv_heads: int = 4
    head_dim: int = 256
    hidden: int = 9216
    norms: str = "sandwich"
    qk_norm: bool = False
    eps: float = 1e-6
    rotary: Frequencies = FREQUENCIES
    local_rotary: Frequencies | None = None  # of the layers that have the window; `rotary`
    window: int | None = None
    local_layers: tuple[int, ...] | None = None  # those that have the window; all
    score_dim: int | None = None  # scores are divided by its root; head_dim
    score_cap: float | None = None
    logit_cap: float | None = None
    attention_dropout: float = 0.0
    top: str = "words"
    classes: int = 2  # where the top has some


VOCABULARY = VOCABULARY_AND_CONTEXT
# the norm of each sublayer's change
CHANGE_NORMS: dict[str, Callable[[Config], nn.Module]] = {
    "pre": lambda c: Identity(),
    "sandwich": lambda c: OffsetRMSNorm(c.dim, eps=c.eps),
}


def score_of(c: Config) -> Score:
    scale = (c.head_dim if c.score_dim is None else c.score_dim) ** -0.5
    return Dot(scale) if c.score_cap is None else SoftCapped(c.score_cap, scale)


def build(c: Config) -> Trunk:
    norm = partial(OffsetRMSNorm, c.dim, eps=c.eps)
    change_norm = named("norms", c.norms, CHANGE_NORMS)

    def block(layer: int) -> Block:
        window = window_of(layer, c.window, c.local_layers)
        frequencies = c.rotary if window is None or c.local_rotary is None else c.local_rotary
        attention = SelfAttention(
            c.dim,
            c.heads,
            kv_heads=c.kv_heads,
            head_dim=c.head_dim,
            bias=UNBIASED,
            pattern=Causal(window),
            rotary=frequencies.rotary(c.head_dim),
            qk_norm=partial(OffsetRMSNorm, eps=c.eps) if c.qk_norm else Identity,
            score=score_of(c),
            dropout=c.attention_dropout,
        )
        ffn = GatedFFN(c.dim, c.hidden, act=activation("gelu_tanh"), bias=False)
        return Block(
            attn=Residual(attention, before=norm(), inside=change_norm(c)),
            ffn=Residual(ffn, before=norm(), inside=change_norm(c)),
        )

    embed = TokenEmbed(c.vocab, c.dim, scale=c.dim**0.5)
    words = LMHead if c.logit_cap is None else partial(SoftCappedHead, cap=c.logit_cap)
    stack = Stack([block(layer) for layer in range(c.layers)], norm())
    tied = partial(words, c.dim, c.vocab, tied=embed.token)
    model = Trunk(embed, stack, decoder_top(c.top, c.dim, c.classes, tied))
    normal(model, 0.02)
    return model
