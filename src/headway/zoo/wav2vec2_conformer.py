"""Wav2Vec2-Conformer: wav2vec 2.0's convolutions over the waveform, then Conformer blocks with relative positions.

Baevski et al. 2020 and Wang et al. 2020, in the form that fairseq published.  It reads samples, B N 1, at 16 kHz; 320
of them make a token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from torch import nn

from headway.errors import UserError
from headway.nn.block import Identity, IgnoreContext, Stack
from headway.nn.frames import ChannelNorm, ConvWindow, TimeNorm, WaveEmbed
from headway.nn.head import Classifier, CTCHead, MeanPool, TokenClassifier
from headway.nn.trunk import Trunk
from headway.zoo.build import FROM_FIELDS
from headway.zoo.choices import activation, named
from headway.zoo.conformer import conformer_block


@dataclass(frozen=True)
class Config:
    vocab: int = 32  # the blank of CTC among them
    dim: int = 1024
    layers: int = 24
    heads: int = 16
    hidden: int = 4096
    kernel: int = 31
    act: str = "silu"
    channels: tuple[int, ...] = (512,) * 7  # of the convolutions over the waveform, and so the next two
    kernels: tuple[int, ...] = (10, 3, 3, 3, 3, 2, 2)
    strides: tuple[int, ...] = (5, 2, 2, 2, 2, 2, 2)
    norms: str = "all"  # after each of them, over its channels; "first": after the first one, over time
    biased: bool = True  # they add a bias
    top: str = "ctc"
    classes: int = 2  # where the top has some
    width: int = 256  # before the classes of a clip
    dropout: float = 0.1
    attention_dropout: float = 0.1
    act_dropout: float = 0.1  # inside the feed-forward layers
    conv_dropout: float = 0.1
    wave_dropout: float = 0.0  # after the waveform's convolutions
    class_dropout: float = 0.1  # before the symbols


VOCABULARY = FROM_FIELDS


def build(c: Config) -> Trunk:
    block = partial(
        conformer_block,
        c.dim,
        c.heads,
        c.hidden,
        kernel=c.kernel,
        act=activation(c.act),
        conv_bias=False,
        dropout=c.dropout,
        attention_dropout=c.attention_dropout,
        act_dropout=c.act_dropout,
        conv_dropout=c.conv_dropout,
    )
    windows = conv_windows(c.channels, c.kernels, c.strides, c.norms)
    embed = WaveEmbed(c.dim, windows, bias=c.biased, dropout=c.wave_dropout)
    head = named("top of a Wav2Vec2-Conformer", c.top, TOPS)(c)
    return Trunk(embed, Stack([block() for _ in range(c.layers)], nn.LayerNorm(c.dim)), head)


def conv_windows(
    channels: tuple[int, ...], kernels: tuple[int, ...], strides: tuple[int, ...], norms: str
) -> list[ConvWindow]:
    """The convolutions over a waveform, with their norms."""
    if not len(channels) == len(kernels) == len(strides) > 0:
        said = f"channels={channels}, kernels={kernels} and strides={strides} are not of the same convolutions"
        raise UserError(said, allowed="as many numbers in each as there are convolutions")
    made = named("norms", norms, NORMS)(channels)
    return [ConvWindow(*sizes) for sizes in zip(channels, kernels, strides, made, strict=True)]


def all_normed(channels: tuple[int, ...]) -> list[nn.Module]:
    return [ChannelNorm(width) for width in channels]


def first_normed(channels: tuple[int, ...]) -> list[nn.Module]:
    return [TimeNorm(channels[0]), *(Identity() for _ in channels[1:])]


class SoundConfig(Protocol):
    """A config of an encoder of sounds with one of several heads."""

    @property
    def dim(self) -> int: ...
    @property
    def vocab(self) -> int: ...
    @property
    def classes(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def class_dropout(self) -> float: ...


def clip(c: SoundConfig) -> nn.Module:
    return Classifier(c.width, c.classes, pool=MeanPool(), inside=nn.Linear(c.dim, c.width))


NORMS = {"all": all_normed, "first": first_normed}
TOPS: dict[str, Callable[[SoundConfig], nn.Module]] = {
    "none": lambda c: IgnoreContext(nn.Identity()),  # B T C
    "ctc": lambda c: CTCHead(c.dim, c.vocab, dropout=c.class_dropout),  # B T V
    "rows": clip,  # B K
    "tokens": lambda c: TokenClassifier(c.dim, c.classes),  # B T K
}
