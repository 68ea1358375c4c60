"""The workbench: a stack whose norm, feed-forward layer, positions and mixer are chosen by name, for experiments.

Whatever a published model is lives in a file of its own; this one compares choices with all else equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch.nn.functional as F
from torch import nn

from headway.errors import UserError
from headway.nn.attention import SelfAttention, share
from headway.nn.bias import Alibi, Bucket, T5Bias
from headway.nn.block import Block, Residual, Stack
from headway.nn.embed import LearnedPosition, SinusoidalPosition, TokenEmbed
from headway.nn.ffn import FFN, Activation, GatedFFN
from headway.nn.head import LMHead
from headway.nn.moe import MoE
from headway.nn.recurrent import BidirectionalEncoder, Cell, RecurrentEncoder
from headway.nn.trunk import Trunk
from headway.ops.attention_map import Bias
from headway.ops.pattern import Causal, Full, Pattern, Window
from headway.ops.relative import t5_bucket_backward, t5_bucket_both_ways
from headway.ops.rotary import Rotary
from headway.zoo.build import VOCABULARY_AND_CONTEXT
from headway.zoo.choices import CELLS, named, normal


@dataclass(frozen=True)
class Config:
    vocab: int = 256
    context: int = 256  # of learned positions
    dim: int = 128
    layers: int = 4
    heads: int = 4
    hidden: int | None = None  # 4 · dim, and 8/3 · dim where it is gated, so that both have as many weights
    mixer: str = "attention"
    norm: str = "rms"
    arrangement: str = "pre"
    ffn: str = "swiglu"
    positions: str = "rotary"
    sight: str = "causal"
    window: int | None = None
    experts: int = 4  # of a mixture, of which a token takes two
    dropout: float = 0.0


VOCABULARY = VOCABULARY_AND_CONTEXT


def build(c: Config) -> Trunk:
    norm = partial(named("norm", c.norm, NORMS), c.dim)
    slots = named("arrangement", c.arrangement, ARRANGEMENTS)
    ffn = named("ffn", c.ffn, FFNS)
    place = named("positions", c.positions, POSITIONS)(c)
    mixer = named("mixer", c.mixer, MIXERS)

    def sublayer(body: nn.Module) -> Residual:
        return Residual(body, drop=c.dropout, **{slot: norm() for slot in slots})

    blocks = [Block(mixer=sublayer(mixer(c, place)), ffn=sublayer(ffn(c))) for _ in range(c.layers)]
    embed = TokenEmbed(c.vocab, c.dim, position=place.mark, dropout=c.dropout)
    last = None if "after" in slots else norm()
    model = Trunk(embed, Stack(blocks, last), LMHead(c.dim, c.vocab, tied=embed.token))
    normal(model, 0.02)
    return model


NORMS: dict[str, type[nn.LayerNorm] | type[nn.RMSNorm]] = {"layer": nn.LayerNorm, "rms": nn.RMSNorm}
ARRANGEMENTS = {"pre": ("before",), "post": ("after",), "sandwich": ("before", "inside")}  # slots of Residual


class Place(NamedTuple):
    """Where a stack learns of order: in the embedding, in the turn of the heads, in the logits."""

    mark: nn.Module | None = None
    rotary: Rotary | None = None
    bias: Bias | None = None


def none(c: Config) -> Place:
    return Place()


def sinusoidal(c: Config) -> Place:
    return Place(mark=SinusoidalPosition(c.dim))


def learned(c: Config) -> Place:
    return Place(mark=LearnedPosition(c.context, c.dim))


def rotary(c: Config) -> Place:
    return Place(rotary=Rotary(share(c.dim, c.heads)))


def alibi(c: Config) -> Place:
    return Place(bias=Alibi(c.heads))


def t5(c: Config) -> Place:
    return Place(bias=T5Bias(c.heads, bucket=named("sight", c.sight, SIGHTS).bucket))


POSITIONS: dict[str, Callable[[Config], Place]] = {
    "none": none,
    "sinusoidal": sinusoidal,
    "learned": learned,
    "rotary": rotary,
    "alibi": alibi,
    "t5": t5,
}


class Sight(NamedTuple):
    """What a choice of sight means to attention, without and with a window, to distances, and to recurrence."""

    whole: Pattern
    windowed: Callable[[int], Pattern]
    bucket: Bucket
    reader: type[RecurrentEncoder]


SIGHTS = {
    "causal": Sight(Causal(), Causal, t5_bucket_backward, RecurrentEncoder),
    "full": Sight(Full(), Window, t5_bucket_both_ways, BidirectionalEncoder),
}


def attention(c: Config, place: Place) -> nn.Module:
    sight = named("sight", c.sight, SIGHTS)
    pattern = sight.whole if c.window is None else sight.windowed(c.window)
    return SelfAttention(c.dim, c.heads, pattern=pattern, rotary=place.rotary, logit_bias=place.bias, dropout=c.dropout)


def recurrent(cell: type[Cell], c: Config, place: Place) -> nn.Module:
    if place.rotary is not None or place.bias is not None or c.window is not None:
        do = "choose none, sinusoidal or learned positions, and no window"
        raise UserError(f"a recurrent mixer has no use for positions={c.positions!r} and window={c.window}", do=do)
    reader = named("sight", c.sight, SIGHTS).reader
    return reader(c.dim, share(c.dim, reader.directions), cell=cell)


MIXERS: dict[str, Callable[[Config, Place], nn.Module]] = {
    "attention": attention,
    **{name: partial(recurrent, cell) for name, cell in CELLS.items()},
}


def plain(act: Activation, c: Config) -> nn.Module:
    return FFN(c.dim, c.hidden, act=act)


def gated(act: Activation, c: Config) -> nn.Module:
    return GatedFFN(c.dim, round(8 / 3 * c.dim) if c.hidden is None else c.hidden, act=act, bias=False)


def moe(c: Config) -> nn.Module:
    return MoE(partial(gated, F.silu, c), c.dim, c.experts, top=2)


FFNS: dict[str, Callable[[Config], nn.Module]] = {
    "relu": partial(plain, F.relu),
    "gelu": partial(plain, F.gelu),
    "swiglu": partial(gated, F.silu),
    "geglu": partial(gated, F.gelu),
    "moe": moe,
}
