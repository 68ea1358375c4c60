"""CLIP's tower of texts alone in Hugging Face's layout, with its projection or without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headway.interop.clip import POSITIONS, TEXT_WIDTH, read_text, read_width, text_rules, write_text
from headway.interop.config_reader import Options
from headway.interop.keymap import KeyMap
from headway.zoo.clip_text import Config

ARCHITECTURES = ("CLIPTextModel", "CLIPTextModelWithProjection")


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(values, "clip_text_model")
    return o.done(Config(width=read_width(o, *ARCHITECTURES), **read_text(o)))


def write_config(c: Config) -> dict[str, Any]:
    return {**write_text(c), "architectures": [ARCHITECTURES[c.width is not None]]}


def keymap(c: Config) -> KeyMap:
    width = () if c.width is None else (replace(TEXT_WIDTH, ours="head.out.weight", outside=True),)
    return KeyMap((*text_rules("", ""), *width), prefixes=("text_model.", ""), ignored=(POSITIONS,))
