"""Marian's Transformer: encoder and decoder, post-norm, SiLU, sinusoidal positions, a bias at the output.

Junczys-Dowmunt et al. 2018, in the form of the OPUS-MT models.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from headway.nn.attention import CrossAttention, SelfAttention
from headway.nn.block import Block, Residual, Stack
from headway.nn.embed import SinusoidalPosition, TokenEmbed
from headway.nn.ffn import FFN
from headway.nn.head import LMHead
from headway.nn.trunk import EncoderDecoder, Trunk
from headway.ops.pattern import Causal
from headway.ops.rotary import HALVES
from headway.zoo.build import ONE_VOCABULARY
from headway.zoo.choices import activation, normal


@dataclass(frozen=True)
class Config:
    vocab: int = 58_101
    source_vocab: int | None = None  # the same words on both sides
    shared: bool = True  # one table of words for both sides
    context: int = 512
    dim: int = 512
    layers: int = 6
    decoder_layers: int = 6
    heads: int = 8
    decoder_heads: int = 8
    hidden: int = 2048
    decoder_hidden: int = 2048
    act: str = "silu"
    scaled: bool = True  # the words' vectors, by √dim
    dropout: float = 0.1
    attention_dropout: float = 0.0
    act_dropout: float = 0.0  # inside the feed-forward layers
    tied: bool = True  # the output to the words of the target


VOCABULARY = ONE_VOCABULARY


def build(c: Config) -> EncoderDecoder:
    scale = c.dim**0.5 if c.scaled else 1.0

    def sublayer(body: nn.Module) -> Residual:
        return Residual(body, after=nn.LayerNorm(c.dim), drop=c.dropout)

    def embed(vocab: int) -> TokenEmbed:
        position = SinusoidalPosition(c.dim, layout=HALVES)
        return TokenEmbed(vocab, c.dim, position=position, scale=scale, dropout=c.dropout)

    def encoder_block() -> Block:
        return Block(
            attn=sublayer(SelfAttention(c.dim, c.heads, dropout=c.attention_dropout)),
            ffn=sublayer(FFN(c.dim, c.hidden, act=activation(c.act), dropout=c.act_dropout)),
        )

    def decoder_block() -> Block:
        return Block(
            attn=sublayer(SelfAttention(c.dim, c.decoder_heads, pattern=Causal(), dropout=c.attention_dropout)),
            cross=sublayer(CrossAttention(c.dim, c.decoder_heads, dropout=c.attention_dropout)),
            ffn=sublayer(FFN(c.dim, c.decoder_hidden, act=activation(c.act), dropout=c.act_dropout)),
        )

    source, target = embed(c.vocab if c.source_vocab is None else c.source_vocab), embed(c.vocab)
    if c.shared:
        target.token = source.token
    head = LMHead(c.dim, c.vocab, tied=target.token if c.tied else None, bias=True)
    encoder = Trunk(source, Stack([encoder_block() for _ in range(c.layers)]))
    model = EncoderDecoder(encoder, Trunk(target, Stack([decoder_block() for _ in range(c.decoder_layers)]), head))
    normal(model, 0.02)
    return model
