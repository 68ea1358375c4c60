"""mBART: BART's encoder and decoder, pre-norm, for many languages.

Liu et al. 2020.  M2M-100 (Fan et al. 2020) and NLLB (2022) have sinusoidal positions and no norm behind the embedding,
as has Pegasus (Zhang et al. 2020).  The language to write is the first token of an answer: `headway run MODEL "text"
--target-language fra_Latn`, and `--source-language` where it is not that of the model's files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from headway.nn.attention import CrossAttention, SelfAttention
from headway.nn.block import Block, Identity, Residual, Stack
from headway.nn.embed import LearnedPosition, MarkedPosition, SinusoidalPosition, TokenEmbed
from headway.nn.ffn import FFN
from headway.nn.head import LMHead
from headway.nn.trunk import EncoderDecoder, Trunk
from headway.ops.pattern import Causal
from headway.ops.rotary import HALVES
from headway.zoo.build import ONE_VOCABULARY
from headway.zoo.choices import activation, named, normal

FIRST = 2  # the place of position 0: behind the padding's


@dataclass(frozen=True)
class Config:
    vocab: int = 250_027
    context: int = 1024
    dim: int = 1024
    layers: int = 12
    decoder_layers: int = 12
    heads: int = 16
    decoder_heads: int = 16
    hidden: int = 4096
    decoder_hidden: int = 4096
    act: str = "gelu"
    positions: str = "learned"
    embed_norm: bool = True
    head_bias: bool = True
    scaled: bool = True  # the words' vectors, by √dim
    dropout: float = 0.1
    attention_dropout: float = 0.0
    act_dropout: float = 0.0  # inside the feed-forward layers


VOCABULARY = ONE_VOCABULARY
POSITIONS: dict[str, Callable[[int, int], MarkedPosition]] = {
    "learned": lambda context, dim: LearnedPosition(FIRST + context, dim, first=FIRST),
    "sinusoidal": lambda context, dim: SinusoidalPosition(dim, layout=HALVES),
    "sinusoidal, fairseq": lambda context, dim: SinusoidalPosition(dim, layout=HALVES, steps=dim // 2 - 1, first=FIRST),
}


def build(c: Config) -> EncoderDecoder:
    position = named("kind of positions", c.positions, POSITIONS)

    def norm() -> nn.LayerNorm:
        return nn.LayerNorm(c.dim)

    def sublayer(body: nn.Module) -> Residual:
        return Residual(body, before=norm(), drop=c.dropout)

    def embed() -> TokenEmbed:
        return TokenEmbed(
            c.vocab,
            c.dim,
            position=position(c.context, c.dim),
            scale=c.dim**0.5 if c.scaled else 1.0,
            norm=norm() if c.embed_norm else Identity(),
            dropout=c.dropout,
        )

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

    source, target = embed(), embed()
    target.token = source.token
    head = LMHead(c.dim, c.vocab, tied=target.token, bias=c.head_bias)
    encoder = Trunk(source, Stack([encoder_block() for _ in range(c.layers)], norm()))
    model = EncoderDecoder(
        encoder, Trunk(target, Stack([decoder_block() for _ in range(c.decoder_layers)], norm()), head)
    )
    normal(model, 0.02)
    return model
