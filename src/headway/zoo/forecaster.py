"""What comes next in rows of numbers: a causal pre-norm stack, with rotary positions, that tells how a row changes.

Every row is projected to a token, which sees itself and the `context` − 1 rows before it.  Nothing depends on where a
row stands, so a forecast may go on for ever, and each of its rows looks back as far as in training.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from headway.nn.attention import SelfAttention
from headway.nn.block import Block, IgnoreContext, Residual, Stack
from headway.nn.ffn import FFN
from headway.nn.trunk import Forecaster
from headway.ops.pattern import Causal
from headway.ops.rotary import Rotary
from headway.zoo.build import FROM_FIELDS
from headway.zoo.choices import activation, normal


@dataclass(frozen=True)
class Config:
    features: int = 1  # numbers of a row
    context: int = 64  # rows that one sees, itself among them
    dim: int = 128
    layers: int = 4
    heads: int = 4
    hidden: int | None = None  # 4 · dim
    act: str = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.0


VOCABULARY = FROM_FIELDS


def build(c: Config) -> Forecaster:
    head_dim = c.dim // c.heads

    def block() -> Block:
        attention = SelfAttention(
            c.dim, c.heads, pattern=Causal(window=c.context), rotary=Rotary(head_dim), dropout=c.attention_dropout
        )
        return Block(
            attn=Residual(attention, before=nn.LayerNorm(c.dim), drop=c.dropout),
            ffn=Residual(FFN(c.dim, c.hidden, act=activation(c.act)), before=nn.LayerNorm(c.dim), drop=c.dropout),
        )

    embed, head = nn.Linear(c.features, c.dim), nn.Linear(c.dim, c.features)
    model = Forecaster(
        IgnoreContext(embed), Stack([block() for _ in range(c.layers)], nn.LayerNorm(c.dim)), IgnoreContext(head)
    )
    normal(model, 0.02)  # so it begins by saying that nothing changes
    nn.init.normal_(embed.weight)
    return model
