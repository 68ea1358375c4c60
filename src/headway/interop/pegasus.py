"""Pegasus in Hugging Face's layout: an mBART with sinusoidal positions and without a norm behind the embedding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.interop.bart import tied
from headway.interop.keymap import KeyMap
from headway.interop.mbart import FIELDS, read, rules, write
from headway.zoo.mbart import Config

CHOICES = {"positions": "sinusoidal", "embed_norm": False, "head_bias": True}


def read_config(values: Mapping[str, Any]) -> Config:
    return read(values, "pegasus", "Pegasus", FIELDS, CHOICES)


def write_config(c: Config) -> dict[str, Any]:
    special = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
    return write(c, "pegasus", "Pegasus", CHOICES, **special)


def keymap(c: Config) -> KeyMap:
    return tied(*rules(c), ignored=("encoder.embed_positions.weight", "decoder.embed_positions.weight"))
