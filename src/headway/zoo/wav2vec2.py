"""wav2vec 2.0, HuBERT and WavLM: convolutions over the waveform, positions by a wide convolution, then an encoder.

Baevski et al. 2020; Hsu et al. 2021; Chen et al. 2022, whose layers share a learned number for each distance, and each
query says how much it minds it.  The base models are post-norm, the large ones pre-norm.  It reads samples, B N 1,
at 16 kHz; 320 of them make a token.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from headway.nn.attention import SelfAttention
from headway.nn.bias import GatedT5Bias
from headway.nn.block import Block, Residual, Stack
from headway.nn.convnet import ConvPosition
from headway.nn.ffn import FFN
from headway.nn.frames import WaveEmbed
from headway.nn.latent_attention import GatedBiasAttention
from headway.nn.trunk import Trunk
from headway.zoo.build import FROM_FIELDS
from headway.zoo.choices import activation, named
from headway.zoo.wav2vec2_conformer import TOPS, conv_windows


@dataclass(frozen=True)
class Config:
    vocab: int = 32  # the blank of CTC among them
    dim: int = 768
    layers: int = 12
    heads: int = 12
    hidden: int = 3072
    act: str = "gelu"
    channels: tuple[int, ...] = (512,) * 7  # of the convolutions over the waveform, and so the next two
    kernels: tuple[int, ...] = (10, 3, 3, 3, 3, 2, 2)
    strides: tuple[int, ...] = (5, 2, 2, 2, 2, 2, 2)
    norms: str = "first"  # after the first of them, over time; "all": after each, over its channels
    biased: bool = False  # they add a bias
    order: str = "post"  # where the norms of the encoder stand
    kernel: int = 128  # tokens that the convolution of positions reaches over
    groups: int = 16  # of its channels
    buckets: int = 0  # of distances between tokens; 0: nothing is told of them but by the convolution
    longest: int = 800  # distance that has a bucket of its own
    top: str = "ctc"
    classes: int = 2  # where the top has some
    width: int = 256  # before the classes of a clip
    dropout: float = 0.1
    attention_dropout: float = 0.1
    act_dropout: float = 0.1  # inside the feed-forward layers
    wave_dropout: float = 0.0  # after the waveform's convolutions
    class_dropout: float = 0.1  # before the symbols


VOCABULARY = FROM_FIELDS
SLOTS = {"post": "after", "pre": "before"}


def build(c: Config) -> Trunk:
    slot = named("order", c.order, SLOTS)

    def sublayer(body: nn.Module) -> Residual:
        return Residual(body, drop=c.dropout, **{slot: nn.LayerNorm(c.dim)})

    distances = GatedT5Bias(c.heads, c.buckets, c.longest) if c.buckets else None

    def attention() -> SelfAttention:
        if distances is None:
            return SelfAttention(c.dim, c.heads, dropout=c.attention_dropout)
        return GatedBiasAttention(c.dim, c.heads, logit_bias=distances, dropout=c.attention_dropout)

    def block() -> Block:
        ffn = FFN(c.dim, c.hidden, act=activation(c.act), dropout=c.act_dropout)
        return Block(attn=sublayer(attention()), ffn=sublayer(ffn))

    embed = WaveEmbed(
        c.dim,
        conv_windows(c.channels, c.kernels, c.strides, c.norms),
        bias=c.biased,
        dropout=c.wave_dropout,
        position=ConvPosition(c.dim, c.kernel, c.groups),
        after=nn.LayerNorm(c.dim) if slot == "after" else None,
        last_dropout=c.dropout,
    )
    stack = Stack([block() for _ in range(c.layers)], nn.LayerNorm(c.dim) if slot == "before" else None)
    return Trunk(embed, stack, named("top of a wav2vec 2.0", c.top, TOPS)(c))
