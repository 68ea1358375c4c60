"""Mistral in Hugging Face's layout: a Llama with a window and without biases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.interop.config_reader import Options
from headway.interop.llama import keymap, named_top, read_decoder, settle, write_mistral
from headway.zoo.llama import Config

__all__ = ["keymap", "read_config", "settle", "write_config"]

# what the other library takes where an option is absent; where it is null, it takes no window and kv_heads = heads
ABSENT = {
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-6,
    "intermediate_size": 14_336,
    "num_key_value_heads": 8,
    "rope_theta": 10_000.0,
    "sliding_window": 4096,
}

write_config = write_mistral


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options({**ABSENT, **values}, "mistral")
    return o.done(Config(**read_decoder(o), **named_top(o, "Mistral"), window=o.take("sliding_window", None)))
