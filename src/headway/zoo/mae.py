"""MAE: a ViT that sees a quarter of the patches, and a light decoder that says the pixels of the others.

He et al. 2021.  It is called with images and the numbers of the visible patches.  `encoder` is a ViT under its own
names; positions are sines and cosines, laid down as tables that are not trained here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from headway.nn.block import Identity, Stack
from headway.nn.image import LearnedGridPosition, PlacedClassToken
from headway.nn.masked_autoencoder import MaskedAutoencoder, PixelDecoder
from headway.ops.patches import bicubic, normalise
from headway.ops.rotary import sinusoid_2d
from headway.zoo import vit
from headway.zoo.build import FROM_FIELDS, config_like
from headway.zoo.vit import dense_xavier


@dataclass(frozen=True)
class Config:
    image: int = 224
    channels: int = 3
    patch: int = 16
    dim: int = 768
    layers: int = 12
    heads: int = 12
    hidden: int | None = None  # 4 · dim
    decoder_dim: int = 512
    decoder_layers: int = 8
    decoder_heads: int = 16
    decoder_hidden: int | None = None  # 4 · decoder_dim
    act: str = "gelu"
    eps: float = 1e-6
    biased: bool = True  # queries, keys and values
    normalised: bool = True  # patches to be said have mean 0 and variance 1
    dropout: float = 0.0
    attention_dropout: float = 0.0


VOCABULARY = FROM_FIELDS


def build(c: Config) -> MaskedAutoencoder:
    seen = encoder_config(c)
    said = replace(seen, dim=c.decoder_dim, layers=c.decoder_layers, heads=c.decoder_heads, hidden=c.decoder_hidden)
    encoder, side = vit.build(seen), c.image // c.patch
    position = LearnedGridPosition(side, side, said.dim, resample=bicubic)
    stack = Stack(vit.blocks(said), nn.LayerNorm(said.dim, eps=c.eps))
    decoder = PixelDecoder(c.dim, said.dim, c.patch**2 * c.channels, position, stack)
    model = MaskedAutoencoder(encoder, decoder, c.patch, target=normalise if c.normalised else Identity())
    dense_xavier(decoder)
    for part in model.modules():
        if isinstance(part, LearnedGridPosition):
            fix(part.table, sines(*part.table.shape))
        if isinstance(part, PlacedClassToken):
            fix(part.position, torch.zeros_like(part.position))
    fix(decoder.first, torch.zeros_like(decoder.first))
    return model


def encoder_config(c: Config) -> vit.Config:
    """The ViT that sees."""
    return config_like(vit.Config, c, top="none")


def sines(rows: int, cols: int, dim: int) -> Tensor:
    """Sines and cosines of x and then of y, as in the published files: rows cols C."""
    return sinusoid_2d(rows, cols, dim).roll(dim // 2, -1).unflatten(0, (rows, cols))


def fix(parameter: nn.Parameter, values: Tensor) -> None:
    """A table that stands in files and does not learn."""
    parameter.data.copy_(values)
    parameter.requires_grad_(False)
