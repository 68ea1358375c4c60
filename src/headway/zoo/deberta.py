"""DeBERTa 1 to 3: an encoder, post-norm, GELU, whose scores add what query and key tell of their distance.

He et al. 2020 and 2021.  The scores of content, of content at a distance and of a distance at content are three, and
divided by √3 more; each layer projects the vectors of distances by its own queries and keys, and in the first version
by layers for these alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from torch import nn

from headway.nn.attention import BIASED, Biases, SelfAttention, share
from headway.nn.bias import DisentangledBias, DistanceVectors
from headway.nn.block import Block, Residual, Stack
from headway.nn.embed import LearnedPosition, TokenEmbed
from headway.nn.ffn import FFN
from headway.nn.head import MLMHead
from headway.nn.trunk import Trunk
from headway.ops.attend import Dot
from headway.ops.relative import log_bucket
from headway.zoo.build import VOCABULARY_AND_CONTEXT
from headway.zoo.choices import activation, named, normal, top


@dataclass(frozen=True)
class Config:
    vocab: int = 128_100
    context: int = 512
    dim: int = 768
    layers: int = 12
    heads: int = 12
    hidden: int | None = None  # 4 · dim
    segments: int = 0  # 0: none
    marked: bool = False  # whether the embedding adds positions, too
    distances: str = "shared"  # by what layers they are projected, in version 1 by their "own"
    buckets: int = 256  # of distances, on each side; with their "own", each of the `farthest` has one
    farthest: int = 512  # the distance behind which all are alike
    act: str = "gelu"
    eps: float = 1e-7
    dropout: float = 0.1
    top: str = "words"
    classes: int = 2  # where the top has some
    attention_dropout: float = 0.1
    class_dropout: float | None = None  # before the classes; as `dropout`


VOCABULARY = VOCABULARY_AND_CONTEXT


class Distances(NamedTuple):
    """How layers know distances: the vectors of these, the queries and keys that meet them, and which biases."""

    vectors: Callable[[Config], DistanceVectors]
    layers: Callable[[SelfAttention], tuple[nn.Linear, nn.Linear]]
    biases: Biases


def spaced_vectors(c: Config) -> DistanceVectors:
    bucket = partial(log_bucket, buckets=c.buckets, longest=c.farthest)
    return DistanceVectors(c.dim, c.buckets, bucket=bucket, norm=nn.LayerNorm(c.dim, c.eps))


def shared_layers(attention: SelfAttention) -> tuple[nn.Linear, nn.Linear]:
    return attention.q, attention.k


def own_vectors(c: Config) -> DistanceVectors:
    return DistanceVectors(c.dim, c.farthest)


def own_layers(attention: SelfAttention) -> tuple[nn.Linear, nn.Linear]:
    q = attention.q
    return nn.Linear(q.in_features, q.out_features), nn.Linear(q.in_features, q.out_features, bias=False)


DISTANCES = {
    "shared": Distances(spaced_vectors, shared_layers, BIASED),
    "own": Distances(own_vectors, own_layers, Biases(k=False)),
}


def build(c: Config) -> Trunk:
    norm, known = partial(nn.LayerNorm, eps=c.eps), named("kind of distances", c.distances, DISTANCES)
    distance = known.vectors(c)  # one for all layers
    scale = (3 * share(c.dim, c.heads)) ** -0.5

    def block() -> Block:
        attention = SelfAttention(c.dim, c.heads, bias=known.biases, score=Dot(scale), dropout=c.attention_dropout)
        attention.logit_bias = DisentangledBias(distance, *known.layers(attention), scale)
        return Block(
            attn=Residual(attention, after=norm(c.dim), drop=c.dropout),
            ffn=Residual(FFN(c.dim, c.hidden, act=activation(c.act)), after=norm(c.dim), drop=c.dropout),
        )

    position = LearnedPosition(c.context, c.dim) if c.marked else None
    embed = TokenEmbed(c.vocab, c.dim, position=position, segments=c.segments, norm=norm(c.dim), dropout=c.dropout)
    words = partial(MLMHead, c.dim, c.vocab, act=activation(c.act), norm=norm, tied=embed.token)
    stack = Stack([block() for _ in range(c.layers)])
    before = c.dropout if c.class_dropout is None else c.class_dropout
    model = Trunk(embed, stack, top(c.top, c.dim, c.classes, before, words))
    normal(model, 0.02)
    return model
