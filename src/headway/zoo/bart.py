"""BART: encoder and decoder, post-norm, GELU, learned positions behind a norm, one table of words.

Lewis et al. 2019.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torch import nn

from headway.nn.attention import CrossAttention, SelfAttention
from headway.nn.block import Block, Residual, Stack
from headway.nn.embed import LearnedPosition, TokenEmbed
from headway.nn.ffn import FFN
from headway.nn.head import Classifier, LastToken, LMHead, TanhLayer
from headway.nn.trunk import EncoderDecoder, RereadingClassifier, Trunk
from headway.ops.pattern import Causal
from headway.zoo.build import ONE_VOCABULARY
from headway.zoo.choices import activation, normal

FIRST = 2  # the row of the table that position 0 has


@dataclass(frozen=True)
class Config:
    vocab: int = 50_265
    context: int = 1024
    dim: int = 1024
    layers: int = 12
    decoder_layers: int = 12
    heads: int = 16
    decoder_heads: int = 16
    hidden: int = 4096
    decoder_hidden: int = 4096
    act: str = "gelu"
    scaled: bool = False  # the words' vectors, by √dim
    dropout: float = 0.1
    attention_dropout: float = 0.1
    act_dropout: float = 0.1  # inside the feed-forward layers
    tied: bool = True  # one table of words for both sides and the output; else three
    classes: int = 0  # of whole texts; 0: it writes
    start: int = 2  # the token behind which a text is read again, to be classified
    class_dropout: float = 0.0


VOCABULARY = ONE_VOCABULARY


def build(c: Config) -> EncoderDecoder | RereadingClassifier:
    scale = c.dim**0.5 if c.scaled else 1.0

    def norm() -> nn.LayerNorm:
        return nn.LayerNorm(c.dim)

    def sublayer(body: nn.Module) -> Residual:
        return Residual(body, after=norm(), drop=c.dropout)

    def embed() -> TokenEmbed:
        position = LearnedPosition(FIRST + c.context, c.dim, first=FIRST)
        return TokenEmbed(c.vocab, c.dim, position=position, scale=scale, norm=norm(), dropout=c.dropout)

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
    if c.tied:
        target.token = source.token
    encoder = Trunk(source, Stack([encoder_block() for _ in range(c.layers)]))
    decoder = partial(Trunk, target, Stack([decoder_block() for _ in range(c.decoder_layers)]))
    if c.classes:
        head = Classifier(c.dim, c.classes, pool=LastToken(), inside=TanhLayer(c.dim), dropout=c.class_dropout)
        model = RereadingClassifier(encoder, decoder(head), c.start)
    else:
        words = LMHead(c.dim, c.vocab, tied=target.token if c.tied else None, bias=True)
        model = EncoderDecoder(encoder, decoder(words))
    normal(model, 0.02)
    return model
