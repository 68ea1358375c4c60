"""T5Gemma: Gemma 2's layers as an encoder and as a decoder with cross-attention.

Zhang et al. 2025.  The encoder sees both sides, in the layers with a window too; each side has its own table of words,
and the decoder's is its output.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from torch import nn

from headway.nn.attention import UNBIASED, Attention, CrossAttention, SelfAttention
from headway.nn.block import Block, Residual, Stack
from headway.nn.embed import TokenEmbed
from headway.nn.ffn import GatedFFN
from headway.nn.head import LMHead, SoftCappedHead
from headway.nn.norm import OffsetRMSNorm
from headway.nn.trunk import EncoderDecoder, Trunk
from headway.ops.pattern import Causal, Full, Pattern, Window
from headway.zoo import gemma
from headway.zoo.build import ONE_VOCABULARY, config_like
from headway.zoo.choices import activation, normal, window_of
from headway.zoo.gemma import FREQUENCIES, score_of
from headway.zoo.llama import Frequencies


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
    eps: float = 1e-6
    rotary: Frequencies = FREQUENCIES
    window: int | None = None  # of the encoder's layers to both sides, of the decoder's with the query itself
    local_layers: tuple[int, ...] | None = None  # those that have the window; all
    score_dim: int | None = None  # scores are divided by its root; head_dim
    score_cap: float | None = None
    logit_cap: float | None = None
    decoder: gemma.Config | None = None  # where it has other sizes than the encoder, of the same words
    dropout: float = 0.0
    attention_dropout: float = 0.0


VOCABULARY = ONE_VOCABULARY
A = TypeVar("A", bound=Attention)


def build(c: Config) -> EncoderDecoder:
    source, target = sides(c)
    encoder = Trunk(embed(source, c.dropout), stack(source, both_sides, partial(reader, source, c.dropout)))
    words = embed(target, c.dropout)
    head = LMHead if target.logit_cap is None else partial(SoftCappedHead, cap=target.logit_cap)
    layer = partial(writer, target, c.dropout, source.dim)
    decoder = Trunk(words, stack(target, Causal, layer), head(target.dim, c.vocab, tied=words.token))
    model = EncoderDecoder(encoder, decoder)
    normal(model, 0.02)
    return model


def sides(c: Config) -> tuple[gemma.Config, gemma.Config]:
    """The layers of the encoder and of the decoder, each as a Gemma 2 has them."""
    source = config_like(gemma.Config, c, norms="sandwich")
    rates = {"vocab": c.vocab, "attention_dropout": c.attention_dropout}
    return source, source if c.decoder is None else replace(c.decoder, **rates)


def embed(c: gemma.Config, dropout: float) -> TokenEmbed:
    return TokenEmbed(c.vocab, c.dim, scale=c.dim**0.5, dropout=dropout)


def stack(c: gemma.Config, pattern: Callable[[int | None], Pattern], block: Callable[[SelfAttention], Block]) -> Stack:
    def attention(layer: int) -> SelfAttention:
        seen = pattern(window_of(layer, c.window, c.local_layers))
        return attending(c, SelfAttention)(pattern=seen, rotary=c.rotary.rotary(c.head_dim))

    return Stack([block(attention(layer)) for layer in range(c.layers)], OffsetRMSNorm(c.dim, eps=c.eps))


def both_sides(window: int | None) -> Pattern:
    return Full() if window is None else Window(window)


def reader(c: gemma.Config, dropout: float, attention: SelfAttention) -> Block:
    return Block(attn=sublayer(c, attention, dropout), ffn=sublayer(c, ffn(c, dropout), dropout))


def writer(c: gemma.Config, dropout: float, memory: int, attention: SelfAttention) -> Block:
    cross = attending(c, CrossAttention)(kv_dim=memory)
    return Block(
        attn=sublayer(c, attention, dropout),
        cross=sublayer(c, cross, dropout),
        ffn=sublayer(c, ffn(c, dropout), dropout),
    )


def attending(c: gemma.Config, kind: type[A]) -> partial[A]:
    settings = {"kv_heads": c.kv_heads, "head_dim": c.head_dim, "bias": UNBIASED, "dropout": c.attention_dropout}
    return partial(kind, c.dim, c.heads, **settings, score=score_of(c))


def sublayer(c: gemma.Config, body: nn.Module, dropout: float) -> Residual:
    before, inside = (OffsetRMSNorm(c.dim, eps=c.eps) for _ in range(2))
    return Residual(body, before=before, inside=inside, drop=dropout)


def ffn(c: gemma.Config, dropout: float) -> GatedFFN:
    return GatedFFN(c.dim, c.hidden, act=activation("gelu_tanh"), bias=False, dropout=dropout)
