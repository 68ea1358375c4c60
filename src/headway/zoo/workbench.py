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
from headway.nn.convnet import CausalConv, SequenceConv
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
from headway.zoo.build import DataRequirements, Sizes, Vocabulary, vocabulary_and_context
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
    kernel: int = 4  # tokens that a convolution sees
    experts: int = 4  # of a mixture, of which a token takes two
    dropout: float = 0.0


def causal_vocabulary(required: DataRequirements, given: Sizes) -> Sizes:
    if given.get("sight", "causal") != "causal":
        do = "leave out model.sight"
        raise UserError(f"model.sight {given['sight']}: a token that is to be predicted would be seen", do=do)
    return vocabulary_and_context(required, given)


VOCABULARY = Vocabulary(causal_vocabulary)


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
    """What a choice of sight means to attention, without and with a window, to distances, recurrence, convolution."""

    whole: Pattern
    windowed: Callable[[int], Pattern]
    bucket: Bucket
    reader: type[RecurrentEncoder]
    conv: type[SequenceConv]


SIGHTS = {
    "causal": Sight(Causal(), Causal, t5_bucket_backward, RecurrentEncoder, CausalConv),
    "full": Sight(Full(), Window, t5_bucket_both_ways, BidirectionalEncoder, SequenceConv),
}


def attention(c: Config, place: Place) -> nn.Module:
    sight = named("sight", c.sight, SIGHTS)
    pattern = sight.whole if c.window is None else sight.windowed(c.window)
    return SelfAttention(c.dim, c.heads, pattern=pattern, rotary=place.rotary, logit_bias=place.bias, dropout=c.dropout)


def check_marked(kind: str, c: Config, place: Place) -> None:
    """Refuses positions that only attention knows, and its window."""
    if place.rotary is not None or place.bias is not None or c.window is not None:
        do = "choose none, sinusoidal or learned positions, and no window"
        raise UserError(f"a {kind} mixer has no use for positions={c.positions!r} and window={c.window}", do=do)


def convolution(c: Config, place: Place) -> nn.Module:
    check_marked("convolution", c, place)
    return named("sight", c.sight, SIGHTS).conv(c.dim, c.kernel)


def recurrent(cell: type[Cell], c: Config, place: Place) -> nn.Module:
    check_marked("recurrent", c, place)
    reader = named("sight", c.sight, SIGHTS).reader
    return reader(c.dim, share(c.dim, reader.directions), cell=cell)


MIXERS: dict[str, Callable[[Config, Place], nn.Module]] = {
    "attention": attention,
    "convolution": convolution,
    **{name: partial(recurrent, cell) for name, cell in CELLS.items()},
}


def plain(act: Activation, c: Config) -> nn.Module:
    return FFN(c.dim, c.hidden, act=act)


def gated(act: Activation, c: Config) -> nn.Module:
    return GatedFFN(c.dim, round(8 / 3 * c.dim) if c.hidden is None else c.hidden, act=act, bias=False)


def moe(c: Config) -> nn.Module:
    return MoE(partial(gated, F.silu, c), c.dim, c.experts, top=2)


RELU = partial(plain, F.relu)
FFNS: dict[str, Callable[[Config], nn.Module]] = {
    "relu": RELU,
    "mlp": RELU,  # as courses call it
    "gelu": partial(plain, F.gelu),
    "swiglu": partial(gated, F.silu),
    "geglu": partial(gated, F.gelu),
    "moe": moe,
}
