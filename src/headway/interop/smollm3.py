"""SmolLM3 in Hugging Face's layout: a Llama of which every fourth layer knows no positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.errors import UserError
from headway.interop.config_reader import Options
from headway.interop.llama import (
    SETS,
    WHOLE,
    WINDOWED,
    keymap,
    local_layers,
    named_top,
    read_decoder,
    refuse_others,
    settle,
    write_biases,
    write_named,
    write_windows,
)
from headway.zoo.llama import Config

__all__ = ["keymap", "read_config", "settle", "write_config"]

# what the other library takes where an option is absent; where it is null, kv_heads = heads
ABSENT = {
    "vocab_size": 128_256,
    "hidden_size": 2048,
    "intermediate_size": 11_008,
    "num_hidden_layers": 36,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "max_position_embeddings": 32_768,
    "rms_norm_eps": 1e-6,
    "rope_theta": 2_000_000.0,
    "tie_word_embeddings": True,
}


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options({**ABSENT, **values}, "smollm3")
    found = read_decoder(o)
    layers, every = found["layers"], o.take("no_rope_layer_interval", 4)
    placed = o.take("no_rope_layers", [int((i + 1) % every != 0) for i in range(layers)])
    if len(placed) != layers or not set(placed) <= {0, 1}:
        raise UserError(f"no_rope_layers={placed!r:.60} in config.json", allowed=f"{layers} numbers, each 0 or 1")
    window = o.take("sliding_window", None) if o.take("use_sliding_window", False) else None
    usual = [WINDOWED if window is not None and not placed[i] else WHOLE for i in range(layers)]
    o.ignore("sliding_window", "max_window_layers")
    return o.done(
        Config(
            **found,
            **named_top(o, "SmolLM3"),
            **local_layers(o, usual, window),
            unplaced_layers=tuple(i for i, one in enumerate(placed) if not one),
            biases=SETS[o.take("attention_bias", False), o.take("mlp_bias", False)],
        )
    )


def write_config(c: Config) -> dict[str, Any]:
    refuse_others(c, "SmolLM3", "biases", "window", "local_layers", "unplaced_layers")
    placed = {"no_rope_layers": [int(i not in c.unplaced_layers) for i in range(c.layers)]}
    windows = {**write_windows(c), "pad_token_id": None}  # else one that may lie beyond the vocabulary
    return {**write_named(c, "smollm3", "SmolLM3"), **write_biases(c, "SmolLM3"), **placed, **windows}
