"""M2M-100 and NLLB in Hugging Face's layout: an mBART with sinusoidal positions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headway.interop.bart import BIAS, tied
from headway.interop.keymap import KeyMap
from headway.interop.mbart import FIELDS, read, rules, write
from headway.zoo.mbart import Config

CHOICES = {"positions": "sinusoidal, fairseq", "embed_norm": False, "head_bias": False}
DEFAULTS = FIELDS.with_defaults(vocab=128_112, act="relu", scaled=True, attention_dropout=0.1)


def read_config(values: Mapping[str, Any]) -> Config:
    return read(values, "m2m_100", "M2M100", DEFAULTS, CHOICES)


def write_config(c: Config) -> dict[str, Any]:
    return write(c, "m2m_100", "M2M100", CHOICES)


def keymap(c: Config) -> KeyMap:
    stored = tuple(f"{side}.embed_positions.weights" for side in ("encoder", "decoder"))
    found = tied(*rules(c), ignored=(*stored, "encoder.version", "decoder.version"))
    return replace(found, rules=tuple(rule for rule in found.rules if rule != BIAS), absent={})
