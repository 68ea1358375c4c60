"""Qwen2 in Hugging Face's layout: a Llama with biases of queries, keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.errors import UserError
from headway.interop.config_reader import Options
from headway.interop.llama import keymap, named_top, read_decoder, settle, write_qwen2
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
    return o.done(Config(**read_decoder(o), **named_top(o, "Qwen2"), biases="qkv", window=window(o)))


def window(o: Options) -> int | None:
    """The window of all layers; some layers with and some without are two kinds of layer, which we do not build."""
    layers, given = o.take("num_hidden_layers", 32), o.take("sliding_window", None)
    used, first = o.take("use_sliding_window", False), o.take("max_window_layers", 28)
    usual = ["sliding_attention" if used and given and i >= first else "full_attention" for i in range(layers)]
    kinds = set(o.take("layer_types", usual))
    if len(kinds) > 1:
        said = f"layers of {' and of '.join(sorted(kinds))} in one model are not supported for qwen2 models"
        raise UserError(said, allowed="the same for all layers")
    return given if used and kinds == {"sliding_attention"} else None
