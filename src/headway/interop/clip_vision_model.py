"""CLIP's tower of images alone in Hugging Face's layout, with its projection or without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headway.errors import UserError
from headway.interop.clip import IMAGE, IMAGE_WIDTH, POSITIONS, image_rules, read_image, read_width, write_image
from headway.interop.config_reader import Options
from headway.interop.keymap import KeyMap
from headway.zoo.clip_image import Config

ARCHITECTURES = ("CLIPVisionModel", "CLIPVisionModelWithProjection")


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(values, "clip_vision_model")
    width = read_width(o, *ARCHITECTURES)
    return o.done(Config(top="vector", width=width, **IMAGE.read(o), **read_image(o)))


def write_config(c: Config) -> dict[str, Any]:
    if c.top != "vector":
        raise UserError(f"a tower of CLIP's with top={c.top!r} has no place in that layout", do="use to=headway")
    return {**write_image(c), "architectures": [ARCHITECTURES[c.width is not None]]}


def keymap(c: Config) -> KeyMap:
    width = () if c.width is None else (replace(IMAGE_WIDTH, ours="head.out.weight", outside=True),)
    rules = (*image_rules(c.image // c.patch, "", ""), *width)
    return KeyMap(rules, prefixes=("vision_model.", ""), ignored=(POSITIONS,))
