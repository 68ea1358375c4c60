"""Swin-V2 in timm's layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.interop.keymap import KeyMap, Rule, linear
from headway.interop.swin import ATTENTION, BLOCK
from headway.interop.swinv2 import with_windows, write_windows
from headway.interop.timm_swin import frame_rules, named, read_sizes, sizes, write_sizes
from headway.zoo.swinv2 import Config

LARGER = {"pretrained_window_sizes": (12, 12, 12, 6)}  # first trained at 192×192
ARCHITECTURES = {
    "swinv2_tiny_window8_256": sizes(96, 6, 3, 256, 8),
    "swinv2_tiny_window16_256": sizes(96, 6, 3, 256, 16),
    "swinv2_small_window8_256": sizes(96, 18, 3, 256, 8),
    "swinv2_small_window16_256": sizes(96, 18, 3, 256, 16),
    "swinv2_base_window8_256": sizes(128, 18, 4, 256, 8),
    "swinv2_base_window16_256": sizes(128, 18, 4, 256, 16),
    "swinv2_base_window12_192": sizes(128, 18, 4, 192, 12),
    "swinv2_base_window12to16_192to256": sizes(128, 18, 4, 256, 16) | LARGER,
    "swinv2_base_window12to24_192to384": sizes(128, 18, 4, 384, 24) | LARGER,
    "swinv2_large_window12_192": sizes(192, 18, 6, 192, 12),
    "swinv2_large_window12to16_192to256": sizes(192, 18, 6, 256, 16) | LARGER,
    "swinv2_large_window12to24_192to384": sizes(192, 18, 6, 384, 24) | LARGER,
}


def read_config(values: Mapping[str, Any]) -> Config:
    o = named(values, ARCHITECTURES, "timm's Swin-V2")
    return o.done(Config(**with_windows(o, read_sizes(o))))


def write_config(c: Config) -> dict[str, Any]:
    return write_sizes(c, next(iter(ARCHITECTURES)), write_windows(c))


def keymap(c: Config) -> KeyMap:
    there = "layers.*.blocks.*"
    return KeyMap(
        rules=(
            *linear(f"{there}.norm1", f"{BLOCK}.attn.inside"),
            *linear(f"{there}.norm2", f"{BLOCK}.ffn.inside"),
            *frame_rules(there, "after"),
            Rule(f"{there}.attn.q_bias", f"{ATTENTION}.q.bias"),
            Rule(f"{there}.attn.v_bias", f"{ATTENTION}.v.bias"),
            Rule(f"{there}.attn.logit_scale", f"{ATTENTION}.score.log_factor"),
            *linear(f"{there}.attn.cpb_mlp.0", f"{ATTENTION}.logit_bias.up"),
            Rule(f"{there}.attn.cpb_mlp.2.weight", f"{ATTENTION}.logit_bias.down.weight"),
        ),
        ignored=(
            f"{there}.attn_mask",
            f"{there}.attn.relative_position_index",
            f"{there}.attn.relative_coords_table",
        ),
    )
