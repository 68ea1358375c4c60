"""Swin-V2 in Hugging Face's layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headway.errors import UserError
from headway.interop.config_reader import Options
from headway.interop.keymap import KeyMap, Rule, linear
from headway.interop.swin import (
    ATTENTION,
    BLOCK,
    block_rules,
    frame_rules,
    prefixes,
    read_sizes,
    settle,
    write_sizes,
)
from headway.zoo import swin
from headway.zoo.swinv2 import Config

__all__ = ["keymap", "read_config", "settle", "write_config"]

CLASSIFIER, BARE = "Swinv2ForImageClassification", "Swinv2Model"


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(values, "swinv2")
    return o.done(Config(**with_windows(o, read_sizes(o, CLASSIFIER, BARE))))


def with_windows(o: Options, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """The sizes of a model, with its windows and those that its offsets were learned in."""
    stages = len(sizes["layers"])
    windows = fitted([o.side("window_size", 7)] * stages, sizes["image"] // sizes["patch"])
    before = o.take("pretrained_window_sizes", [0] * stages)
    return {**sizes, "windows": windows, "pretrained": learned(before, windows)}


def fitted(windows: Sequence[int], grid: int) -> tuple[int, ...]:
    """The windows of all stages as they are made there: no larger than the grids of the image that a model is for."""
    return tuple(min(window, grid // 2**stage) for stage, window in enumerate(windows))


def learned(before: Sequence[int], windows: tuple[int, ...]) -> tuple[int, ...] | None:
    """The windows that offsets were learned in; there 0 stands for those of now."""
    return tuple(then or now for then, now in zip(before, windows, strict=True)) if any(before) else None


def write_config(c: Config) -> dict[str, Any]:
    return {"model_type": "swinv2", **write_sizes(c, CLASSIFIER, BARE), **write_windows(c)}


def write_windows(c: Config) -> dict[str, Any]:
    check_fit(c, [max(c.windows)] * len(c.windows))
    before = [0] * len(c.windows) if c.pretrained is None else list(c.pretrained)
    return {"window_size": max(c.windows), "pretrained_window_sizes": before}


def check_fit(c: swin.Config, windows: Sequence[int]) -> None:
    """Refuses a model whose windows would not be what is made of `windows` there."""
    if (there := fitted(windows, c.image // c.patch)) != c.windows:
        said = f"windows={c.windows} would be {there} there, for images of {c.image}×{c.image}"
        raise UserError(said, do=f"build it with windows={there}")


def keymap(c: Config) -> KeyMap:
    there = "encoder.layers.*.blocks.*"
    network = f"{there}.attention.self.continuous_position_bias_mlp"
    return KeyMap(
        rules=(
            *frame_rules(c, "after"),
            *linear(f"{there}.layernorm_before", f"{BLOCK}.attn.inside"),
            *linear(f"{there}.layernorm_after", f"{BLOCK}.ffn.inside"),
            *block_rules(there),
            Rule(f"{there}.attention.self.logit_scale", f"{ATTENTION}.score.log_factor"),
            *linear(f"{network}.0", f"{ATTENTION}.logit_bias.up"),
            Rule(f"{network}.2.weight", f"{ATTENTION}.logit_bias.down.weight"),
        ),
        prefixes=prefixes(c, "swinv2."),
        ignored=(
            f"{there}.attention.self.relative_position_index",
            f"{there}.attention.self.relative_coords_table",
        ),
    )
