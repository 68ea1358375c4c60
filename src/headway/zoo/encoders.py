"""Encoders inside other models: of images, from any preset, for a new model; or of a trained model, for a new head.

Axes:  B batch   Y X rows and columns of the grid   T tokens   C width
"""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import nn

from headway.errors import UserError
from headway.nn.head import FirstToken, MeanPool, Pool
from headway.nn.trunk import Trunk
from headway.zoo.build import architecture_of, build, config_like, config_of


@runtime_checkable
class ImageConfig(Protocol):
    """The config of an architecture that reads images."""

    @property
    def image(self) -> int: ...
    @property
    def channels(self) -> int: ...


class ImageEncoder(NamedTuple):
    """A trunk whose features of images are a grid, B Y X C, or tokens, B T C: those of a grid behind some others."""

    trunk: Trunk
    dim: int
    stride: int  # pixels from one cell to the next
    first: int = 0  # tokens before those of the grid: a class token

    def under(self, head: nn.Module) -> Trunk:
        """The trunk, which is of this encoder alone, with another head."""
        self.trunk.head = head
        return self.trunk

    def pool(self) -> Pool:
        """What an image is read off by: its class token, where there is one, or the mean of its cells."""
        return FirstToken() if self.first else MeanPool()


def image_encoder(preset_or_config: str | ImageConfig, image: int, channels: int) -> ImageEncoder:
    """The encoder of a preset, or of a config, for images of `channels` × `image` × `image`; it keeps its head."""
    config = config_of(preset_or_config)
    if not isinstance(config, ImageConfig):
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


class EncoderPart(NamedTuple):
    """A model, or the part of one whose parameters' names begin with `prefix`, that has a config of its own.

    In a new model around it, they begin with `place`.
    """

    config: Any
    prefix: str = ""
    place: str = ""

    @property
    def architecture(self) -> str:
        return architecture_of(self.config)


ENCODERS: dict[str, Callable[[Any], EncoderPart]] = {
    "mae": lambda c: mae_part(c),
    "simmim": lambda c: EncoderPart(config_like(type(c.encoder).__bases__[0], c.encoder), "encoder."),
    "simclr": lambda c: EncoderPart(config_of(c.encoder, image=c.image, channels=c.channels)),
    "clip": lambda c: clip_part(c),
    "siglip": lambda c: siglip_part(c),
    "image_text": lambda c: EncoderPart(config_of(c.encoder, image=c.image, channels=3), "image."),
}


def encoder_config(config: Any) -> EncoderPart:
    """The encoder that a model of this config was trained to make; the model itself, where it is one."""
    known = ENCODERS.get(architecture_of(config))
    return EncoderPart(config) if known is None else known(config)


def mae_part(config: Any) -> EncoderPart:
    from headway.zoo import mae  # late, as all architectures are

    return EncoderPart(mae.encoder_config(config), "encoder.")


def clip_part(config: Any) -> EncoderPart:
    from headway.zoo import clip_image

    return EncoderPart(clip_image.tower_config(config), "image.")


def siglip_part(config: Any) -> EncoderPart:
    from headway.zoo import siglip_image

    return EncoderPart(siglip_image.tower_config(config), "image.")
