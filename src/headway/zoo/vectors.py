"""Vectors in a row or in a heap: a plain pre-norm encoder of whatever comes as numbers, and one label for all of it.

Each vector is projected to a token.  A series has positions.  A set has none and is pooled by the mean, so that the
order of its members cannot matter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from headway.nn.attention import SelfAttention
from headway.nn.block import Block, Residual, Stack
from headway.nn.embed import NoPosition, SinusoidalPosition
from headway.nn.ffn import FFN
from headway.nn.frames import FrameEmbed
from headway.nn.head import Classifier, MeanPool
from headway.nn.trunk import Trunk
from headway.zoo.build import FROM_FIELDS
from headway.zoo.choices import activation, named, xavier


@dataclass(frozen=True)
class Config:
    features: int = 1  # numbers of a vector
    classes: int = 2
    dim: int = 128
    layers: int = 4
    heads: int = 4
    hidden: int | None = None  # 4 · dim
    order: str = "series"
    act: str = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.0


VOCABULARY = FROM_FIELDS
ORDERS: dict[str, Callable[[int], nn.Module]] = {"series": SinusoidalPosition, "set": lambda dim: NoPosition()}


def build(c: Config) -> Trunk:
    position = named("order of vectors", c.order, ORDERS)(c.dim)

    def block() -> Block:
        attention = SelfAttention(c.dim, c.heads, dropout=c.attention_dropout)
        return Block(
            attn=Residual(attention, before=nn.LayerNorm(c.dim), drop=c.dropout),
            ffn=Residual(FFN(c.dim, c.hidden, act=activation(c.act)), before=nn.LayerNorm(c.dim), drop=c.dropout),
        )

    embed = FrameEmbed(c.features, c.dim, position=position, dropout=c.dropout)
    head = Classifier(c.dim, c.classes, pool=MeanPool())
    model = Trunk(embed, Stack([block() for _ in range(c.layers)], nn.LayerNorm(c.dim)), head)
    xavier(model)
    return model
