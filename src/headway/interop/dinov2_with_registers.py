"""DINOv2 with registers in Hugging Face's layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.errors import UserError
from headway.interop.config_reader import Options, written_as
from headway.interop.dinov2 import FIELDS, names, read, write
from headway.interop.keymap import KeyMap
from headway.zoo.dinov2 import Config

FAMILY, NAME = "dinov2_with_registers", "Dinov2WithRegisters"


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(values, FAMILY)
    registers = o.take("num_register_tokens", 4)
    if not 1 <= registers <= 1024:
        raise UserError(f"num_register_tokens={registers} in config.json", allowed="1 to 1024")
    return read(o, NAME, FIELDS.with_defaults(patch=16), registers)


def write_config(c: Config) -> dict[str, Any]:
    if not c.registers:
        raise UserError("there, this family has registers, and this model none", do=written_as("dinov2"))
    return {**write(c, FAMILY, NAME), "num_register_tokens": c.registers}


def keymap(c: Config) -> KeyMap:
    return names(c, "dinov2_with_registers.")
