"""The Conformer: convolution beside attention, between two halves of a feed-forward layer; relative positions.

Gulati et al. 2020.  It reads frames, B T F, four of which become a token.  On top stand a CTC head, classes of a whole
clip, or a Transformer decoder that writes words; the paper has a transducer with an LSTM there, which is in its figures
of 10.3, 30.7 and 118.8 million parameters: S, M and L have 8,710,848, 27,327,488 and 115,111,424 without any top.  Its
kernels of 32 have no middle frame; they are 31 here, as in other public code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch.nn.functional as F
from torch import nn

from headway.nn.attention import SelfAttention, share
from headway.nn.bias import TransformerXLBias
from headway.nn.block import Block, IgnoreContext, Residual, Stack
from headway.nn.convnet import ConvModule
from headway.nn.embed import SinusoidalPosition, TokenEmbed
from headway.nn.ffn import FFN, Activation
from headway.nn.frames import FrameEmbed, Shortening, Subsample
from headway.nn.head import Classifier, CTCHead, LMHead, MeanPool, TokenClassifier
from headway.nn.trunk import EncoderDecoder, Trunk
from headway.zoo import transformer
from headway.zoo.build import FROM_FIELDS
from headway.zoo.choices import named, xavier


@dataclass(frozen=True)
class Config:
    features: int = 80  # numbers in a frame: its mels
    dim: int = 512
    layers: int = 17
    heads: int = 8
    hidden: int | None = None  # 4 · dim
    kernel: int = 31
    factor: int = 4  # frames to a token; 1: each is one, projected
    channels: int | None = None  # of the convolutions that shorten; dim
    vocab: int = 1024  # the blank of CTC among them
    decoder_layers: int = 6  # where a decoder is on top
    top: str = "ctc"
    classes: int = 2  # where the top has some
    dropout: float = 0.1
    attention_dropout: float = 0.1
    act_dropout: float = 0.1  # inside the feed-forward layers


VOCABULARY = FROM_FIELDS


def build(c: Config) -> Trunk | EncoderDecoder:
    head = named("top of a Conformer", c.top, TOPS)(c)
    block = partial(
        conformer_block,
        c.dim,
        c.heads,
        c.hidden,
        kernel=c.kernel,
        dropout=c.dropout,
        attention_dropout=c.attention_dropout,
        act_dropout=c.act_dropout,
        conv_dropout=c.dropout,
    )
    encoder = Trunk(embed(c), Stack([block() for _ in range(c.layers)]), head)
    return EncoderDecoder(encoder, decoder(c)) if c.top == "decoder" else encoder


def conformer_block(
    dim: int,
    heads: int,
    hidden: int | None,
    *,
    kernel: int = 31,
    act: Activation = F.silu,
    conv_bias: bool = True,
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    act_dropout: float = 0.0,
    conv_dropout: float = 0.0,
) -> Block:
    """Half a feed-forward layer, attention, convolution, the other half, and a norm after all of them."""
    norm = partial(nn.LayerNorm, dim)

    def half(after: nn.Module | None = None) -> Residual:
        body = FFN(dim, hidden, act=act, dropout=act_dropout)
        return Residual(body, before=norm(), after=after, scale=0.5, drop=dropout)

    distances = TransformerXLBias(heads, share(dim, heads), dim)
    attention = SelfAttention(dim, heads, logit_bias=distances, dropout=attention_dropout)
    convolution = ConvModule(dim, kernel=kernel, act=act, bias=conv_bias)
    return Block(
        ffn_in=half(),
        attn=Residual(attention, before=norm(), drop=dropout),
        conv=Residual(convolution, before=norm(), drop=conv_dropout),
        ffn_out=half(after=norm()),
    )


def embed(c: Config) -> Shortening:
    if c.factor == 1:
        return FrameEmbed(c.features, c.dim, dropout=c.dropout)
    return Subsample(c.features, c.dim, factor=c.factor, channels=c.channels, dropout=c.dropout)


def decoder(c: Config) -> Trunk:
    words = TokenEmbed(c.vocab, c.dim, position=SinusoidalPosition(c.dim), scale=c.dim**0.5, dropout=c.dropout)
    sizes = transformer.Config(
        dim=c.dim,
        layers=c.decoder_layers,
        heads=c.heads,
        hidden=c.hidden,
        dropout=c.dropout,
        attention_dropout=c.attention_dropout,
    )
    model = Trunk(words, transformer.decoder(sizes), LMHead(c.dim, c.vocab, tied=words.token))
    xavier(model)
    return model


def bare(c: Config) -> nn.Module:
    return IgnoreContext(nn.Identity())


TOPS: dict[str, Callable[[Config], nn.Module]] = {
    "none": bare,  # B T C
    "ctc": lambda c: CTCHead(c.dim, c.vocab),  # B T V
    "rows": lambda c: Classifier(c.dim, c.classes, pool=MeanPool(), dropout=c.dropout),  # B K
    "tokens": lambda c: TokenClassifier(c.dim, c.classes, dropout=c.dropout),  # B T K
    "decoder": bare,  # B U V, of a target B U
}
