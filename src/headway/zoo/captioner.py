"""Show, attend and tell: a convolutional network's grid of features, and an LSTM that looks at it before each word.

Xu et al. 2015, with soft attention or hard (one place for each word).  The features are learned with the words: by a
plain stack of convolutions with the stride and width of the paper's (VGG's 14×14 cells of 512 for 224 pixels), or by
any preset of images that is named as `encoder`, trained before where a run goes on from one (`--from`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from headway.errors import UserError
from headway.nn.block import Identity, IgnoreContext
from headway.nn.convnet import GridConv, Normed, Stem
from headway.nn.embed import TokenEmbed
from headway.nn.hard_attention import DeepOutput, Gated, HardAlignment
from headway.nn.head import LMHead, MeanPool
from headway.nn.recurrent_attention import Alignment, RecurrentDecoder
from headway.nn.trunk import Captioner, Places, Trunk
from headway.zoo.build import FROM_FIELDS
from headway.zoo.choices import cell, named
from headway.zoo.encoders import ImageConfig, ImageEncoder, image_encoder


@dataclass(frozen=True)
class Config:
    vocab: int = 10_000
    image: int = 224  # the side of the images it is made for; others go too
    channels: int = 3
    encoder: str | ImageConfig = ""  # a preset of images, or a config of one; none: convolutions
    widths: tuple[int, ...] = (64, 128, 256, 512)  # of their stages, each of which halves the image
    dim: int = 512
    hidden: int = 1800
    align: int = 512  # width of the additive score
    attention: str = "soft"
    cell: str = "lstm"
    dropout: float = 0.5  # before the words


VOCABULARY = FROM_FIELDS
ATTENTIONS: dict[str, Callable[[int, int, int], Alignment]] = {
    "soft": Alignment.additive,
    "hard": HardAlignment.additive,
}


def build(c: Config) -> Captioner:
    eye = image_encoder(c.encoder, c.image, c.channels) if c.encoder else convolutions(c)
    look = named("attention", c.attention, ATTENTIONS)(c.hidden, eye.dim, c.align)
    recurrent = RecurrentDecoder(
        c.dim,
        c.hidden,
        eye.dim,
        attention=Gated(look, c.hidden),
        cell=cell(c.cell),
        pool=MeanPool(),
        readout=DeepOutput(c.dim, c.hidden, eye.dim, dropout=c.dropout),
    )
    decoder = Trunk(TokenEmbed(c.vocab, c.dim), recurrent, LMHead(c.dim, c.vocab, bias=True))
    return Captioner(eye.under(Places(eye.first)), decoder, eye.stride)


def convolutions(c: Config) -> ImageEncoder:
    """Stages of two convolutions with batch norm, the first of which halves the grid."""
    if min(c.widths, default=0) < 1:
        allowed = "one stage or more, each of one channel or more"
        raise UserError(f"a captioner with widths of {list(c.widths)}", allowed=allowed)
    parts = list[nn.Module]()
    for before, width in zip((c.channels, *c.widths), c.widths, strict=False):
        parts += Normed(GridConv(before, width, 3, stride=2), width), Normed(GridConv(width, width, 3), width)
    return ImageEncoder(Trunk(Stem(c.channels, *parts), IgnoreContext(Identity())), c.widths[-1], 2 ** len(c.widths))
