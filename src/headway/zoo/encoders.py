"""The encoder inside a model that was trained without classes, with a config of its own: what can get a new head."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, NamedTuple

from headway.zoo.build import architecture_of, config_of


class EncoderPart(NamedTuple):
    """A model, or the part of one whose parameters' names begin with `prefix`, that has a config of its own."""

    config: Any
    prefix: str = ""

    @property
    def architecture(self) -> str:
        return architecture_of(self.config)


ENCODERS: dict[str, Callable[[Any], EncoderPart]] = {
    "mae": lambda c: mae_part(c),
    "simmim": lambda c: EncoderPart(base_config(c.encoder), "encoder."),
    "simclr": lambda c: EncoderPart(config_of(c.encoder, image=c.image, channels=c.channels)),
    "clip": lambda c: clip_part(c),
    "image_text": lambda c: EncoderPart(config_of(c.encoder, image=c.image, channels=3), "image."),
}


def encoder_config(config: Any) -> EncoderPart:
    """The encoder that a model of this config was trained to make; the model itself, where it is one."""
    known = ENCODERS.get(architecture_of(config))
    return EncoderPart(config) if known is None else known(config)


def base_config(config: Any) -> Any:
    """The config of an encoder that stands in another's, as its own architecture has it."""
    return type(config).__bases__[0](**{field.name: getattr(config, field.name) for field in fields(config)})


def mae_part(config: Any) -> EncoderPart:
    from headway.zoo import mae  # late, as all architectures are

    return EncoderPart(mae.encoder_config(config), "encoder.")


def clip_part(config: Any) -> EncoderPart:
    from headway.zoo import clip_image

    return EncoderPart(clip_image.tower_config(config), "image.")
