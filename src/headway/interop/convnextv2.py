"""ConvNeXt V2 in Hugging Face's layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.errors import UserError
from headway.interop.config_reader import Options, written_as
from headway.interop.convnext import SHARED, names, read, write
from headway.interop.keymap import KeyMap
from headway.zoo.convnext import Config


def read_config(values: Mapping[str, Any]) -> Config:
    return read(Options(values, "convnextv2"), "ConvNextV2", SHARED, "normed")


def write_config(c: Config) -> dict[str, Any]:
    if c.ffn != "normed" or c.layer_scale:
        said = f"there, a ConvNeXt V2 has normed feed-forward layers and no scales, and this one {c.ffn} ones"
        raise UserError(f"{said} and layer_scale={c.layer_scale:g}", do=written_as("convnext"))
    return write(c, "convnextv2", "ConvNextV2", SHARED)


def keymap(c: Config) -> KeyMap:
    return names(c, "convnextv2.")
