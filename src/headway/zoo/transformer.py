"""The Transformer: encoder and decoder, sinusoidal positions, ReLU; norms after each sublayer as published, or before.

Vaswani et al. 2017.  Written as it was published it is norms="post"; the code of that time and since has norms="pre".
`headway.lecture` is the same model written out as courses teach it, with norm="unbiased".
Without words (vocab=0) it is torch's `nn.Transformer`, of vectors: B S C, B T C → B T C.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import nn

from headway.nn.attention import CrossAttention, SelfAttention
from headway.nn.block import Block, IgnoreContext, Residual, Stack
from headway.nn.embed import SinusoidalPosition, TokenEmbed
from headway.nn.ffn import FFN
from headway.nn.head import LMHead
from headway.nn.norm import UnbiasedLayerNorm
from headway.nn.trunk import EncoderDecoder, Trunk
from headway.ops.pattern import Causal
from headway.ops.rotary import HALVES, PAIRS
from headway.zoo.build import OPTIONAL_SOURCE_VOCAB
from headway.zoo.choices import activation, named, xavier


@dataclass(frozen=True)
class Config:
    vocab: int = 37_000  # 0: none, and vectors in their place
    source_vocab: int | None = None  # the same words on both sides
    dim: int = 512
    layers: int = 6
    decoder_layers: int | None = None  # as many as the encoder has
    heads: int = 8
    hidden: int | None = None  # 4 · dim
    act: str = "relu"
    norms: str = "pre"
    norm: str = "layer"  # its definition
    tied: str = "none"
    layout: str = "pairs"  # of sines and cosines
    steps: int | None = None  # of their frequencies; fairseq has dim / 2 − 1
    first: int = 0  # position; fairseq begins at 2
    eps: float = 1e-5
    dropout: float = 0.1
    attention_dropout: float = 0.0
    act_dropout: float = 0.0  # inside the feed-forward layers


VOCABULARY = OPTIONAL_SOURCE_VOCAB


class Norms(NamedTuple):
    """The slot of `Residual` that holds a sublayer's norm, and whether one more ends the stack."""

    slot: str
    last: bool


class Tie(NamedTuple):
    """Which tables of words are one: source's and target's, target's and output's; and whether outputs have a bias."""

    sides: bool
    head: bool
    bias: bool


NORMS = {"pre": Norms("before", last=True), "post": Norms("after", last=False), "post, last": Norms("after", last=True)}
TIES = {
    "none": Tie(sides=False, head=False, bias=True),
    "none, unbiased": Tie(sides=False, head=False, bias=False),
    "target": Tie(sides=False, head=True, bias=False),
    "all": Tie(sides=True, head=True, bias=False),
}
DEFINITIONS = {"layer": nn.LayerNorm, "unbiased": UnbiasedLayerNorm}
LAYOUTS = {"pairs": PAIRS, "halves": HALVES}


def build(c: Config) -> EncoderDecoder:
    model = (
        with_words(c)
        if c.vocab
        else EncoderDecoder(*(Trunk(IgnoreContext(nn.Identity()), side(c)) for side in (encoder, decoder)))
    )
    xavier(model)
    return model


def with_words(c: Config) -> EncoderDecoder:
    tie = named("tie", c.tied, TIES)

    def embed(vocab: int) -> TokenEmbed:
        layout = named("layout", c.layout, LAYOUTS)
        position = SinusoidalPosition(c.dim, layout=layout, steps=c.steps, first=c.first)
        return TokenEmbed(vocab, c.dim, position=position, scale=c.dim**0.5, dropout=c.dropout)

    source, target = embed(c.vocab if c.source_vocab is None else c.source_vocab), embed(c.vocab)
    if tie.sides:
        target.token = source.token
    head = LMHead(c.dim, c.vocab, tied=target.token if tie.head else None, bias=tie.bias)
    return EncoderDecoder(Trunk(source, encoder(c)), Trunk(target, decoder(c), head))


def encoder(c: Config) -> Stack:
    """The blocks that read the source."""

    def block() -> Block:
        return Block(
            attn=sublayer(c, SelfAttention(c.dim, c.heads, dropout=c.attention_dropout)), ffn=sublayer(c, ffn(c))
        )

    return Stack([block() for _ in range(c.layers)], last_norm(c))


def decoder(c: Config) -> Stack:
    """The blocks that write the target, each with a look at the memory."""

    def block() -> Block:
        return Block(
            attn=sublayer(c, SelfAttention(c.dim, c.heads, pattern=Causal(), dropout=c.attention_dropout)),
            cross=sublayer(c, CrossAttention(c.dim, c.heads, dropout=c.attention_dropout)),
            ffn=sublayer(c, ffn(c)),
        )

    return Stack([block() for _ in range(c.layers if c.decoder_layers is None else c.decoder_layers)], last_norm(c))


def sublayer(c: Config, body: nn.Module) -> Residual:
    return Residual(body, drop=c.dropout, **{named("norms", c.norms, NORMS).slot: norm(c)})


def last_norm(c: Config) -> nn.Module | None:
    return norm(c) if named("norms", c.norms, NORMS).last else None


def norm(c: Config) -> nn.LayerNorm:
    return named("norm", c.norm, DEFINITIONS)(c.dim, eps=c.eps)


def ffn(c: Config) -> FFN:
    return FFN(c.dim, c.hidden, act=activation(c.act), dropout=c.act_dropout)
