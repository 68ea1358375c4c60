"""HuBERT in Hugging Face's layout: the model of wav2vec 2.0, trained otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.interop.config_reader import Options
from headway.interop.keymap import KeyMap
from headway.interop.wav2vec2 import names, read, write
from headway.zoo.wav2vec2 import Config


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(values, "hubert")
    o.expect(feat_proj_layer_norm=True, conv_pos_batch_norm=False)
    return read(o, "Hubert")


def write_config(c: Config) -> dict[str, Any]:
    return write(c, "hubert", "Hubert")


def keymap(c: Config) -> KeyMap:
    return names(c, "hubert.")
