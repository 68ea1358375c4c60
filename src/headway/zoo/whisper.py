"""Whisper: an encoder of sound and a decoder of text, pre-norm, GELU, keys without bias, the output tied to the words.

Radford et al. 2022.  The encoder reads frames of a log-mel spectrogram, B T M: two convolutions, the second of which
halves their number, then fixed sines and cosines; the decoder has learned positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torch import nn

from headway.nn.attention import Biases, CrossAttention, SelfAttention
from headway.nn.block import Block, Residual, Stack
from headway.nn.embed import LearnedPosition, SinusoidalPosition, TokenEmbed
from headway.nn.ffn import FFN
from headway.nn.frames import ConvEmbed
from headway.nn.head import LMHead
from headway.nn.trunk import EncoderDecoder, Trunk
from headway.ops.pattern import Causal
from headway.ops.rotary import HALVES
from headway.zoo.build import FROM_FIELDS
from headway.zoo.choices import activation, normal

STRIDES = (1, 2)  # of the two convolutions
KEYLESS = Biases(k=False)  # a bias of the keys would move all scores of a query alike


@dataclass(frozen=True)
class Config:
    vocab: int = 51_866
    context: int = 448  # tokens of text
    mels: int = 128
    source_context: int = 1500  # tokens of sound: 30 seconds are 3000 frames, and half as many tokens
    dim: int = 1280
    layers: int = 32
    decoder_layers: int = 32
    heads: int = 20
    decoder_heads: int = 20
    hidden: int = 5120
    decoder_hidden: int = 5120
    act: str = "gelu"  # of the feed-forward layers; the convolutions have GELU
    dropout: float = 0.0
    attention_dropout: float = 0.0
    act_dropout: float = 0.0  # inside the feed-forward layers


VOCABULARY = FROM_FIELDS


def build(c: Config) -> EncoderDecoder:
    position = SinusoidalPosition(c.dim, layout=HALVES, steps=c.dim // 2 - 1)
    sound = ConvEmbed(c.mels, c.dim, strides=STRIDES, position=position, dropout=c.dropout)
    words = TokenEmbed(c.vocab, c.dim, position=LearnedPosition(c.context, c.dim), dropout=c.dropout)
    model = EncoderDecoder(Trunk(sound, encoder(c)), Trunk(words, decoder(c), LMHead(c.dim, c.vocab, tied=words.token)))
    normal(model, 0.02)
    return model


def encoder(c: Config) -> Stack:
    """The blocks that hear."""

    def block() -> Block:
        attention = SelfAttention(c.dim, c.heads, bias=KEYLESS, dropout=c.attention_dropout)
        return Block(attn=sublayer(c, attention), ffn=sublayer(c, ffn(c, c.hidden)))

    return Stack([block() for _ in range(c.layers)], nn.LayerNorm(c.dim))


def decoder(c: Config) -> Stack:
    """The blocks that write, each with an ear for the encoder's tokens."""
    attention = partial(SelfAttention, c.dim, c.decoder_heads, bias=KEYLESS, dropout=c.attention_dropout)
    cross = partial(CrossAttention, c.dim, c.decoder_heads, bias=KEYLESS, dropout=c.attention_dropout)

    def block() -> Block:
        return Block(
            attn=sublayer(c, attention(pattern=Causal())),
            cross=sublayer(c, cross()),
            ffn=sublayer(c, ffn(c, c.decoder_hidden)),
        )

    return Stack([block() for _ in range(c.decoder_layers)], nn.LayerNorm(c.dim))


def sublayer(c: Config, body: nn.Module) -> Residual:
    return Residual(body, before=nn.LayerNorm(c.dim), drop=c.dropout)


def ffn(c: Config, hidden: int) -> FFN:
    return FFN(c.dim, hidden, act=activation(c.act), dropout=c.act_dropout)
