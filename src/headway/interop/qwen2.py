"""Qwen2 in Hugging Face's layout: a Llama with biases of queries, keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.interop.config_reader import Options
from headway.interop.llama import keymap, named_top, read_decoder, read_windows, settle, write_qwen2
from headway.zoo.llama import Config

__all__ = ["keymap", "read_config", "settle", "write_config"]

# what the other library takes where an option is absent; where it is null, kv_heads = heads
ABSENT = {
    "vocab_size": 151_936,
    "max_position_embeddings": 32_768,
    "rms_norm_eps": 1e-6,
    "intermediate_size": 22_016,
    "num_key_value_heads": 32,
    "rope_theta": 10_000.0,
    "sliding_window": 4096,
}

write_config = write_qwen2


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options({**ABSENT, **values}, "qwen2")
    return o.done(Config(**read_decoder(o), **named_top(o, "Qwen2"), biases="qkv", **read_windows(o)))
