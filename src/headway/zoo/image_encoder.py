"""Any preset of images as the eye of another model: what it gives before its head, and how that is laid out.

Axes:  B batch   Y X rows and columns of the grid   T tokens   C width
"""

from __future__ import annotations

from math import isqrt
from typing import NamedTuple

import torch
from torch import nn

from headway.errors import UserError
from headway.nn.head import FirstToken, MeanPool, Pool
from headway.nn.trunk import Trunk
from headway.zoo.build import build, config_of


class ImageEncoder(NamedTuple):
    """A trunk whose features of images are a grid, B Y X C, or tokens, B T C: those of a grid behind some others."""

    trunk: Trunk
    dim: int
    stride: int  # pixels from one cell to the next
    first: int = 0  # tokens before those of the grid: a class token

    def pool(self) -> Pool:
        """What an image is read off by: its class token, where there is one, or the mean of its cells."""
        return FirstToken() if self.first else MeanPool()


def image_encoder(preset_or_config: str | object, image: int, channels: int) -> ImageEncoder:
    """The encoder of a preset, or of a config, for images of `channels` × `image` × `image`; it keeps its head."""
    config = config_of(preset_or_config)
    if not (hasattr(config, "image") and hasattr(config, "channels")):
        said = f"{preset_or_config!r} reads no images"
        raise UserError(said, do="take a preset of images, as vit-s16 or resnet-18; headway list shows them")
    config = config_of(config, image=image, channels=channels)
    with torch.device("meta"):
        features = trunk(build(config)).eval().features(torch.zeros(1, channels, image, image))
    model, dim = trunk(build(config)), features.shape[-1]
    if features.dim() == 4:
        return ImageEncoder(model, dim, halvings(image, features.shape[1]))
    rows = isqrt(features.shape[1])
    return ImageEncoder(model, dim, image // rows, features.shape[1] - rows**2)


def halvings(image: int, rows: int) -> int:
    """The stride of a pyramid, whose stages halve, by what is left of an image: 8 where 28 pixels become 4 cells."""
    fitting = [stride for stride in range(1, image + 1) if -(-image // stride) == rows]
    return next((stride for stride in fitting if stride.bit_count() == 1), fitting[0])


def trunk(model: nn.Module) -> Trunk:
    if not isinstance(model, Trunk):
        raise UserError(f"a {type(model).__name__} is no encoder of images alone", do="take one that classifies images")
    return model
