"""T5: encoder and decoder, pre-norm without means or biases, relative positions, every task as text.

Raffel et al. 2020.  Version 1.0 has a plain ReLU layer and one table of words; 1.1 has a gated GELU layer and an output
of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from torch import nn

from headway.nn.attention import UNBIASED, Attention, CrossAttention, SelfAttention
from headway.nn.bias import T5Bias
from headway.nn.block import Block, Residual, Stack
from headway.nn.embed import TokenEmbed
from headway.nn.ffn import FFN, GatedFFN
from headway.nn.head import LMHead
from headway.nn.trunk import EncoderDecoder, Trunk
from headway.ops.attend import Dot
from headway.ops.pattern import Causal
from headway.ops.relative import t5_bucket_backward, t5_bucket_both_ways
from headway.zoo.build import ONE_VOCABULARY
from headway.zoo.choices import activation, named, unscaled


@dataclass(frozen=True)
class Config:
    vocab: int = 32_128
    dim: int = 512
    layers: int = 6
    decoder_layers: int | None = None  # as many as the encoder has; 0: encoder only
    heads: int = 8
    head_dim: int = 64
    hidden: int = 2048
    ffn: str = "plain"
    act: str = "relu"
    tied: bool = True
    buckets: int = 32
    longest: int = 128
    eps: float = 1e-6
    dropout: float = 0.1
    attention_dropout: float = 0.1


VOCABULARY = ONE_VOCABULARY
FFNS = {"plain": FFN, "gated": GatedFFN}
A = TypeVar("A", bound=Attention)


def build(c: Config) -> EncoderDecoder | Trunk:
    """An encoder and a decoder; the encoder alone, where the decoder would have no layers."""
    source, target = (TokenEmbed(c.vocab, c.dim, dropout=c.dropout) for _ in range(2))
    target.token = source.token
    head = LMHead(c.dim, c.vocab, tied=source.token, scale=c.dim**-0.5) if c.tied else LMHead(c.dim, c.vocab)
    reader = Trunk(source, encoder(c))
    model = reader if c.decoder_layers == 0 else EncoderDecoder(reader, Trunk(target, decoder(c), head))
    unscaled(model)
    return model


def encoder(c: Config) -> Stack:
    """The blocks that read the source; they share one table of distances."""
    distances = T5Bias(c.heads, c.buckets, c.longest, t5_bucket_both_ways)
    attention = partial(attending(c, SelfAttention), logit_bias=distances)

    def block() -> Block:
        return Block(attn=sublayer(c, attention()), ffn=sublayer(c, ffn(c)))

    return Stack([block() for _ in range(c.layers)], norm(c))


def decoder(c: Config) -> Stack:
    """The blocks that write the target; they share one table of distances too, and see the memory without any."""
    distances = T5Bias(c.heads, c.buckets, c.longest, t5_bucket_backward)
    attention = partial(attending(c, SelfAttention), pattern=Causal(), logit_bias=distances)
    cross = attending(c, CrossAttention)

    def block() -> Block:
        return Block(attn=sublayer(c, attention()), cross=sublayer(c, cross()), ffn=sublayer(c, ffn(c)))

    return Stack([block() for _ in range(c.layers if c.decoder_layers is None else c.decoder_layers)], norm(c))


def attending(c: Config, kind: type[A]) -> partial[A]:
    """Attention without biases, and without a scale, which the queries' first weights have instead."""
    settings = {"head_dim": c.head_dim, "bias": UNBIASED, "score": Dot(scale=1.0), "dropout": c.attention_dropout}
    return partial(kind, c.dim, c.heads, **settings)


def sublayer(c: Config, body: nn.Module) -> Residual:
    return Residual(body, before=norm(c), drop=c.dropout)


def norm(c: Config) -> nn.RMSNorm:
    return nn.RMSNorm(c.dim, eps=c.eps)


def ffn(c: Config) -> FFN:
    return named("ffn", c.ffn, FFNS)(c.dim, c.hidden, act=activation(c.act), bias=False, dropout=c.dropout)
