"""Qwen3 in Hugging Face's layout: a Llama that norms the queries and keys of each head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.errors import UserError
from headway.interop.config_reader import Options, written_as
from headway.interop.llama import (
    SETS,
    keymap,
    named_top,
    read_decoder,
    read_windows,
    refuse_others,
    settle,
    write_named,
    write_windows,
)
from headway.zoo.llama import Config

__all__ = ["keymap", "read_config", "settle", "write_config"]

# what the other library takes where an option is absent; where it is null, kv_heads = heads
ABSENT = {
    "vocab_size": 151_936,
    "max_position_embeddings": 32_768,
    "rms_norm_eps": 1e-6,
    "intermediate_size": 22_016,
    "num_key_value_heads": 32,
    "head_dim": 128,
    "rope_theta": 10_000.0,
    "sliding_window": 4096,
}


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options({**ABSENT, **values}, "qwen3")
    biases = SETS[o.take("attention_bias", False), False]
    return o.done(Config(**read_decoder(o), **named_top(o, "Qwen3"), **read_windows(o), biases=biases, qk_norm="heads"))


def write_config(c: Config) -> dict[str, Any]:
    if c.qk_norm != "heads":
        raise UserError("there, a Qwen3 norms queries and keys, and this model does not", do=written_as("llama"))
    refuse_others(c, "Qwen3", "window", "local_layers", "qk_norm", *(["biases"] if c.biases == "attention" else []))
    biases = {"attention_bias": c.biases == "attention"}
    return {**write_named(c, "qwen3", "Qwen3"), **write_windows(c), **biases}
