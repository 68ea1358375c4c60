"""SigLIP's tower of images alone in Hugging Face's layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.errors import UserError
from headway.interop.config_reader import Options
from headway.interop.keymap import KeyMap
from headway.interop.siglip import IMAGE, image_rules, read_image, write_image
from headway.nn.ffn import ffn_width
from headway.zoo.siglip_image import Config

ARCHITECTURE = "SiglipVisionModel"


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(values, "siglip_vision_model")
    o.architecture(ARCHITECTURE)
    return o.done(Config(top="vector", **IMAGE.read(o), **read_image(o)))


def write_config(c: Config) -> dict[str, Any]:
    if c.top != "vector":
        raise UserError(f"a tower of SigLIP's with top={c.top!r} has no place in that layout", do="use to=headway")
    sizes = {**IMAGE.write(c), "intermediate_size": ffn_width(c.dim, c.hidden)}
    return {**write_image(c.image, c.patch), "architectures": [ARCHITECTURE], **sizes}


def keymap(c: Config) -> KeyMap:
    rules = image_rules(c.image // c.patch, "", "")
    return KeyMap(rules, prefixes=("vision_model.", ""), ignored=("embeddings.position_ids",))
