"""LED: BART with Longformer's windows in its encoder, to rewrite texts of thousands of tokens.

Beltagy et al. 2020.  No token of its encoder is global.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from headway.nn.attention import CrossAttention, SelfAttention
from headway.nn.block import Block, Residual, Stack
from headway.nn.embed import LearnedPosition, TokenEmbed
from headway.nn.ffn import FFN
from headway.nn.head import LMHead
from headway.nn.latent_attention import GlobalTokenAttention
from headway.nn.trunk import EncoderDecoder, Trunk
from headway.ops.pattern import Causal
from headway.zoo.build import ONE_VOCABULARY
from headway.zoo.choices import activation, normal
from headway.zoo.longformer import windows_of


@dataclass(frozen=True)
class Config:
    vocab: int = 50_265
    context: int = 1024  # of what it writes
    source_context: int = 16_384  # of what it reads
    dim: int = 768
    layers: int = 6
    decoder_layers: int = 6
    heads: int = 12
    decoder_heads: int = 12
    hidden: int = 3072
    decoder_hidden: int = 3072
    window: int | tuple[int, ...] = 512  # tokens that are seen on each side, in all layers of the encoder or in each
    act: str = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.0
    act_dropout: float = 0.0  # inside the feed-forward layers


VOCABULARY = ONE_VOCABULARY


def build(c: Config) -> EncoderDecoder:
    def norm() -> nn.LayerNorm:
        return nn.LayerNorm(c.dim)

    def sublayer(body: nn.Module) -> Residual:
        return Residual(body, after=norm(), drop=c.dropout)

    def embed(context: int) -> TokenEmbed:
        return TokenEmbed(c.vocab, c.dim, position=LearnedPosition(context, c.dim), norm=norm(), dropout=c.dropout)

    def encoder_block(window: int) -> Block:
        attention = GlobalTokenAttention(c.dim, c.heads, tokens=0, radius=window, dropout=c.attention_dropout)
        ffn = FFN(c.dim, c.hidden, act=activation(c.act), dropout=c.act_dropout)
        return Block(attn=sublayer(attention), ffn=sublayer(ffn))

    def decoder_block() -> Block:
        return Block(
            attn=sublayer(SelfAttention(c.dim, c.decoder_heads, pattern=Causal(), dropout=c.attention_dropout)),
            cross=sublayer(CrossAttention(c.dim, c.decoder_heads, dropout=c.attention_dropout)),
            ffn=sublayer(FFN(c.dim, c.decoder_hidden, act=activation(c.act), dropout=c.act_dropout)),
        )

    source, target = embed(c.source_context), embed(c.context)
    target.token = source.token
    encoder = Trunk(source, Stack([encoder_block(window) for window in windows_of(c.window, c.layers)]))
    head = LMHead(c.dim, c.vocab, tied=target.token, bias=True)
    model = EncoderDecoder(encoder, Trunk(target, Stack([decoder_block() for _ in range(c.decoder_layers)]), head))
    normal(model, 0.02)
    return model
