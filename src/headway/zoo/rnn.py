"""The recurrent encoder–decoder whose decoder is given a context at each step: one and the same, or by attention.

Cho et al. 2014 (`score="fixed"`), Bahdanau et al. 2015 (RNNsearch: `score="additive"`), and Luong et al. 2015's scores
in its place.  The GRU is torch's, which resets U h where the papers reset h.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from headway.errors import UserError
from headway.nn.embed import TokenEmbed
from headway.nn.head import LastToken, LMHead, Pool
from headway.nn.recurrent import BidirectionalEncoder, RecurrentEncoder
from headway.nn.recurrent_attention import (
    Alignment,
    BothEnds,
    FirstBackward,
    FixedContext,
    Maxout,
    Query,
    RecurrentDecoder,
    state_alone,
    state_and_input,
)
from headway.nn.trunk import EncoderDecoder, Trunk
from headway.zoo.build import OPTIONAL_TARGET_VOCAB
from headway.zoo.choices import cell, named


@dataclass(frozen=True)
class Config:
    vocab: int = 30_000
    target_vocab: int | None = None  # as the source's
    dim: int = 620
    hidden: int = 1000
    layers: int = 1  # of the encoder
    directions: int = 2  # in which the source is read
    cell: str = "gru"
    score: str = "additive"
    query: str = "state"  # what the score compares with the memory: s_{t−1}, or [s_{t−1} ; y_{t−1}]
    align: int = 1000  # width of the additive score
    readout: int = 500  # width of the maxout before the words
    dropout: float = 0.0


VOCABULARY = OPTIONAL_TARGET_VOCAB


def build(c: Config) -> EncoderDecoder:
    unit, reader, look = cell(c.cell), reading(c.directions), named("score", c.score, LOOKS)
    query = named("query", c.query, QUERIES)
    words, memory = c.vocab if c.target_vocab is None else c.target_vocab, c.directions * c.hidden
    encoder = Trunk(
        TokenEmbed(c.vocab, c.dim, dropout=c.dropout),
        reader.encoder(c.dim, c.hidden, cell=unit, layers=c.layers, dropout=c.dropout),
    )
    recurrent = RecurrentDecoder(
        c.dim,
        c.hidden,
        memory,
        attention=look(c, query.width(c), memory),
        cell=unit,
        query=query.made,
        pool=reader.end(),
        pool_dim=c.hidden,
        readout=Maxout(c.dim, c.hidden, memory, c.readout),
    )
    head = LMHead(c.readout, words, bias=True)
    return EncoderDecoder(encoder, Trunk(TokenEmbed(words, c.dim, dropout=c.dropout), recurrent, head))


class Reading(NamedTuple):
    """How the source is read; one of its vectors that knows the whole row, H wide; and all that know it, M wide."""

    encoder: type[RecurrentEncoder]
    end: type[Pool]
    ends: type[Pool]


READINGS = {
    1: Reading(RecurrentEncoder, LastToken, LastToken),
    2: Reading(BidirectionalEncoder, FirstBackward, BothEnds),
}


def reading(directions: int) -> Reading:
    if directions not in READINGS:
        raise UserError(f"directions={directions}", allowed="1, forward, or 2, both ways")
    return READINGS[directions]


class QueryChoice(NamedTuple):
    """What a query is made of, and how wide it is."""

    made: Query
    width: Callable[[Config], int]


def state_width(c: Config) -> int:
    return c.hidden


def joint_width(c: Config) -> int:
    return c.hidden + c.dim


QUERIES = {
    "state": QueryChoice(state_alone, state_width),
    "state and output": QueryChoice(state_and_input, joint_width),
}

LOOKS: dict[str, Callable[[Config, int, int], Alignment | FixedContext]] = {
    "additive": lambda c, query, memory: Alignment.additive(query, memory, c.align),
    "bilinear": lambda c, query, memory: Alignment.bilinear(query, memory),
    "dot": lambda c, query, memory: Alignment.dot(query, memory),
    "fixed": lambda c, query, memory: FixedContext(reading(c.directions).ends()),
}
