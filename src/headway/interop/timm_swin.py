"""Swin in timm's layout: config.json names an architecture, and `model_args` what is changed of its sizes.

Windows there are cut to the grids of the image that a model is made for, and so are their tables of offsets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headway.errors import UserError, listed, nearest
from headway.interop.config_reader import Options
from headway.interop.keymap import KeyMap, Rule, Split, linear
from headway.interop.swin import ATTENTION, BLOCK, side
from headway.interop.swinv2 import check_fit, fitted
from headway.zoo.swin import Config

Sizes = dict[str, Any]


def sizes(dim: int, third: int, heads: int, image: int, window: int | tuple[int, ...]) -> Sizes:
    """`third` layers in the third stage, two in the others."""
    stages = {"depths": (2, 2, third, 2), "num_heads": tuple(heads * 2**stage for stage in range(4))}
    return {"embed_dim": dim, **stages, "img_size": image, "window_size": window}


ARCHITECTURES = {
    "swin_tiny_patch4_window7_224": sizes(96, 6, 3, 224, 7),
    "swin_small_patch4_window7_224": sizes(96, 18, 3, 224, 7),
    "swin_base_patch4_window7_224": sizes(128, 18, 4, 224, 7),
    "swin_base_patch4_window12_384": sizes(128, 18, 4, 384, 12),
    "swin_large_patch4_window7_224": sizes(192, 18, 6, 224, 7),
    "swin_large_patch4_window12_384": sizes(192, 18, 6, 384, 12),
    "swin_s3_tiny_224": sizes(96, 6, 3, 224, (7, 7, 14, 7)),
    "swin_s3_small_224": sizes(96, 18, 3, 224, (14, 14, 14, 7)),
    "swin_s3_base_224": sizes(96, 30, 3, 224, (7, 7, 14, 7)),
}


def read_config(values: Mapping[str, Any]) -> Config:
    o = named(values, ARCHITECTURES, "timm's Swin")
    found = read_sizes(o)
    o.require("head_dim", None, default=None)
    window: int | Sequence[int] = o.need("window_size")
    if isinstance(window, int) or len(window) == 2:  # one for all, or the two sides of one for all
        window = [side(o, "window_size", 7)] * len(found["layers"])
    o.done()
    return Config(**found, windows=fitted(window, found["image"] // found["patch"]))


def named(values: Mapping[str, Any], known: Mapping[str, Sizes], family: str) -> Options:
    """What an architecture's name, what stands beside it, and `model_args` tell, the last of them first."""
    name = str(values.get("architecture"))
    if name not in known:
        said = f"the architecture {name!r} is not supported for {family} models"
        raise UserError(said, allowed=listed(known, 20), meant=nearest(name, known))
    told: Mapping[str, Any] = values.get("pretrained_cfg") or {}
    image = {"img_size": told["input_size"][1:]} if told.get("input_size") else {}
    classes = {"num_classes": values.get("num_classes", told.get("num_classes"))}
    return Options({**classes, **known[name], **image, **(values.get("model_args") or {})}, family)


def read_sizes(o: Options) -> Sizes:
    """What Swin and Swin-V2 call the same."""
    o.require("qkv_bias", True, default=True)
    o.require("global_pool", "avg", default="avg")
    o.require("always_partition", False, default=False)
    o.require("drop_rate", 0.0, default=0.0)
    o.require("proj_drop_rate", 0.0, default=0.0)
    o.ignore("strict_img_size", "weight_init")
    return {
        "image": side(o, "img_size", 224),
        "channels": o.take("in_chans", 3),
        "patch": side(o, "patch_size", 4),
        "dim": o.need("embed_dim"),
        "layers": tuple(o.need("depths")),
        "heads": tuple(o.need("num_heads")),
        "ratio": float(o.take("mlp_ratio", 4.0)),
        "classes": o.take("num_classes", 1000),
        "attention_dropout": float(o.take("attn_drop_rate", 0.0)),
        "depth_dropout": float(o.take("drop_path_rate", 0.1)),
    }


def write_config(c: Config) -> dict[str, Any]:
    check_fit(c, c.windows)
    windows: int | list[int] = list(c.windows)
    if len(set(c.windows)) == 1:
        windows = c.windows[0]
    elif len(c.windows) == 2:
        said = f"timm would take windows={c.windows} for the two sides of one"
        raise UserError(said, do="build it with the same window in both stages")
    return {"architecture": next(iter(ARCHITECTURES)), **write_sizes(c, {"window_size": windows})}


def write_sizes(c: Config, more: Sizes) -> dict[str, Any]:
    """All sizes, as changes to those of an architecture."""
    if c.act != "gelu":
        raise UserError(f"timm's Swin models have no act={c.act!r}", allowed="'gelu'")
    return {
        "num_classes": c.classes,
        "num_features": c.dim * 2 ** (len(c.layers) - 1),
        "global_pool": "avg",
        "pretrained_cfg": {"input_size": [c.channels, c.image, c.image], "num_classes": c.classes},
        "model_args": {
            "img_size": c.image,
            "in_chans": c.channels,
            "patch_size": c.patch,
            "embed_dim": c.dim,
            "depths": list(c.layers),
            "num_heads": list(c.heads),
            "mlp_ratio": c.ratio,
            "attn_drop_rate": c.attention_dropout,
            "drop_path_rate": c.depth_dropout,
            **more,
        },
    }


def keymap(c: Config) -> KeyMap:
    there = "layers.*.blocks.*"
    return KeyMap(
        rules=(
            *linear(f"{there}.norm1", f"{BLOCK}.attn.before"),
            *linear(f"{there}.norm2", f"{BLOCK}.ffn.before"),
            *frame_rules(there, "before"),
            Rule(f"{there}.attn.qkv.bias", tuple(f"{ATTENTION}.{part}.bias" for part in "qkv"), (Split(3),)),
            Rule(f"{there}.attn.relative_position_bias_table", f"{ATTENTION}.logit_bias.table"),
        ),
        ignored=(f"{there}.attn_mask", f"{there}.attn.relative_position_index"),
    )


def frame_rules(there: str, norm: str) -> tuple[Rule, ...]:
    """What Swin and Swin-V2 call the same; `norm` is where a merge has it."""
    return (
        *linear("patch_embed.proj", "embed.project"),
        *linear("patch_embed.norm", "embed.norm"),
        Rule(f"{there}.attn.qkv.weight", tuple(f"{ATTENTION}.{part}.weight" for part in "qkv"), (Split(3),)),
        *linear(f"{there}.attn.proj", f"{ATTENTION}.out"),
        *linear(f"{there}.mlp.fc1", f"{BLOCK}.ffn.body.up"),
        *linear(f"{there}.mlp.fc2", f"{BLOCK}.ffn.body.down"),
        Rule("layers.*.downsample.reduction.weight", "stack.blocks.*.merge.reduce.weight"),
        *linear("layers.*.downsample.norm", f"stack.blocks.*.merge.{norm}"),
        *linear("norm", "stack.norm"),
        *linear("head.fc", "head.out"),
    )
