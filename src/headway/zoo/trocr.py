"""TrOCR: a ViT or a DeiT reads a line of text as an image, and BART's decoder writes it.

Li et al. 2021.  The decoder looks at all tokens of the encoder, those in front of the patches too.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from headway.nn.attention import CrossAttention, SelfAttention
from headway.nn.block import Block, Residual, Stack
from headway.nn.embed import LearnedPosition, TokenEmbed
from headway.nn.ffn import FFN
from headway.nn.head import LMHead
from headway.nn.trunk import EncoderDecoder, Trunk
from headway.ops.pattern import Causal
from headway.zoo import deit, vit
from headway.zoo.bart import FIRST
from headway.zoo.build import FROM_FIELDS
from headway.zoo.build import build as build_any
from headway.zoo.choices import activation, normal

READER = vit.Config(image=384, top="none", eps=1e-12, biased=False)


@dataclass(frozen=True)
class Config:
    vocab: int = 50_265
    context: int = 512
    encoder: vit.Config | deit.Config = READER
    dim: int = 1024  # of the decoder, as all below
    decoder_layers: int = 12
    decoder_heads: int = 16
    decoder_hidden: int = 4096
    act: str = "gelu"
    scaled: bool = False  # the words' vectors, by √dim
    normed: bool = True  # and their sums with positions
    tied: bool = True  # one table of words, for the input and the output
    dropout: float = 0.1
    attention_dropout: float = 0.0
    act_dropout: float = 0.0  # inside the feed-forward layers


VOCABULARY = FROM_FIELDS


def build(c: Config) -> EncoderDecoder:
    encoder = build_any(c.encoder, top="none")
    assert isinstance(encoder, Trunk)

    def sublayer(body: nn.Module) -> Residual:
        return Residual(body, after=nn.LayerNorm(c.dim), drop=c.dropout)

    def block() -> Block:
        rate = c.attention_dropout
        return Block(
            attn=sublayer(SelfAttention(c.dim, c.decoder_heads, pattern=Causal(), dropout=rate)),
            cross=sublayer(CrossAttention(c.dim, c.decoder_heads, kv_dim=c.encoder.dim, dropout=rate)),
            ffn=sublayer(FFN(c.dim, c.decoder_hidden, act=activation(c.act), dropout=c.act_dropout)),
        )

    embed = TokenEmbed(
        c.vocab,
        c.dim,
        position=LearnedPosition(FIRST + c.context, c.dim, first=FIRST),
        scale=c.dim**0.5 if c.scaled else 1.0,
        norm=nn.LayerNorm(c.dim) if c.normed else None,
        dropout=c.dropout,
    )
    head = LMHead(c.dim, c.vocab, tied=embed.token if c.tied else None)
    decoder = Trunk(embed, Stack([block() for _ in range(c.decoder_layers)]), head)
    normal(decoder, 0.02)
    return EncoderDecoder(encoder, decoder)
