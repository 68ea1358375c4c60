"""BLIP's captioner: a ViT sees an image, and BERT with a causal mask and cross-attention writes about it.

Li et al. 2022.  The decoder looks at all tokens of the encoder, the class token too, and has BERT's head of words.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from torch import nn

from headway.nn.attention import CrossAttention, SelfAttention
from headway.nn.block import Block, Residual, Stack
from headway.nn.embed import LearnedPosition, TokenEmbed
from headway.nn.ffn import FFN
from headway.nn.head import MLMHead
from headway.nn.trunk import EncoderDecoder, Trunk
from headway.ops.pattern import Causal
from headway.zoo import vit
from headway.zoo.build import FROM_FIELDS
from headway.zoo.choices import activation, normal

EYE = vit.Config(image=384, top="none", eps=1e-5)


@dataclass(frozen=True)
class Config:
    vocab: int = 30_524
    context: int = 512
    encoder: vit.Config = EYE
    dim: int = 768  # of the decoder, as all below
    decoder_layers: int = 12
    decoder_heads: int = 12
    decoder_hidden: int = 3072
    act: str = "gelu"
    eps: float = 1e-12
    dropout: float = 0.0
    attention_dropout: float = 0.0


VOCABULARY = FROM_FIELDS


def build(c: Config) -> EncoderDecoder:
    norm = partial(nn.LayerNorm, eps=c.eps)
    encoder = vit.build(replace(c.encoder, top="none"))

    def sublayer(body: nn.Module) -> Residual:
        return Residual(body, after=norm(c.dim), drop=c.dropout)

    def block() -> Block:
        rate = c.attention_dropout
        return Block(
            attn=sublayer(SelfAttention(c.dim, c.decoder_heads, pattern=Causal(), dropout=rate)),
            cross=sublayer(CrossAttention(c.dim, c.decoder_heads, kv_dim=c.encoder.dim, dropout=rate)),
            ffn=sublayer(FFN(c.dim, c.decoder_hidden, act=activation(c.act))),
        )

    position = LearnedPosition(c.context, c.dim)
    embed = TokenEmbed(c.vocab, c.dim, position=position, norm=norm(c.dim), dropout=c.dropout)
    head = MLMHead(c.dim, c.vocab, act=activation(c.act), norm=norm, tied=embed.token)
    decoder = Trunk(embed, Stack([block() for _ in range(c.decoder_layers)]), head)
    normal(decoder, 0.02)
    return EncoderDecoder(encoder, decoder)
