"""Sequence to sequence: a recurrent decoder that goes on from the state in which the encoder ended.

Sutskever et al. 2014, with LSTMs of four layers.
"""

from __future__ import annotations

from dataclasses import dataclass

from headway.nn.embed import TokenEmbed
from headway.nn.head import LMHead
from headway.nn.recurrent import FinalEncoder
from headway.nn.recurrent_attention import ContinuingDecoder
from headway.nn.trunk import EncoderDecoder, Trunk
from headway.zoo.build import OPTIONAL_TARGET_VOCAB
from headway.zoo.choices import cell


@dataclass(frozen=True)
class Config:
    vocab: int = 160_000
    target_vocab: int | None = 80_000  # None: as the source's
    dim: int = 1000
    hidden: int = 1000
    layers: int = 4
    cell: str = "lstm"
    dropout: float = 0.0


VOCABULARY = OPTIONAL_TARGET_VOCAB


def build(c: Config) -> EncoderDecoder:
    words = c.vocab if c.target_vocab is None else c.target_vocab
    unit = cell(c.cell)
    encoder = Trunk(
        TokenEmbed(c.vocab, c.dim, dropout=c.dropout),
        FinalEncoder(c.dim, c.hidden, cell=unit, layers=c.layers, dropout=c.dropout),
    )
    decoder = Trunk(
        TokenEmbed(words, c.dim, dropout=c.dropout),
        ContinuingDecoder(c.dim, c.hidden, cell=unit, layers=c.layers, dropout=c.dropout),
        LMHead(c.hidden, words, bias=True),
    )
    return EncoderDecoder(encoder, decoder)
