"""Swin in timm's layout: config.json names an architecture, and `model_args` what is changed of its sizes.

Windows there are cut to the grids of the image that a model is made for, and so are their tables of offsets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headway.errors import UserError, listed, nearest
from headway.interop.config_reader import LIST, NUMBER, SIDE, Arguments, ConfigMap, Field, Options
from headway.interop.keymap import KeyMap, Rule, Split, linear
from headway.interop.swin import ATTENTION, BLOCK
from headway.interop.swinv2 import check_fit, fitted
from headway.interop.timm_folder import write_named
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


# what Swin and Swin-V2 call the same
FIELDS = ConfigMap(
    Field("img_size", "image", 224, SIDE),
    Field("in_chans", "channels", 3),
    Field("patch_size", "patch", 4, SIDE),
    Field("embed_dim", "dim"),
    Field("depths", "layers", form=LIST),
    Field("num_heads", "heads", form=LIST),
    Field("mlp_ratio", "ratio", 4.0, NUMBER),
    Field("attn_drop_rate", "attention_dropout", 0.0, NUMBER),
    Field("drop_path_rate", "depth_dropout", 0.1, NUMBER),
)


def read_config(values: Mapping[str, Any]) -> Config:
    o = named(values, ARCHITECTURES, "timm's Swin")
    found = read_sizes(o)
    o.expect(head_dim=None)
    window: int | Sequence[int] = o.need("window_size")
    if isinstance(window, int) or len(window) == 2:  # one for all, or the two sides of one for all
        window = [o.side("window_size", 7)] * len(found["layers"])
    return o.done(Config(**found, windows=fitted(window, found["image"] // found["patch"])))


def named(values: Mapping[str, Any], known: Mapping[str, Sizes], family: str) -> Options:
    """What an architecture's name, what stands beside it, and `model_args` tell, the last of them first."""
    name = str(values.get("architecture"))
    if name not in known:
        said = f"the architecture {name!r} is not supported for {family} models"
        raise UserError(said, allowed=listed(known, 20), meant=nearest(name, known))
    told: Mapping[str, Any] = values.get("pretrained_cfg") or {}
    image = {"img_size": told["input_size"][1:]} if told.get("input_size") else {}
    classes = {"num_classes": values.get("num_classes", told.get("num_classes"))}
    return Arguments({**classes, **known[name], **image, **(values.get("model_args") or {})}, family)


def read_sizes(o: Options) -> Sizes:
    o.expect(qkv_bias=True, global_pool="avg", always_partition=False, drop_rate=0.0, proj_drop_rate=0.0)
    o.ignore("strict_img_size", "weight_init")
    return {**FIELDS.read(o), "classes": o.take("num_classes", 1000)}


def write_config(c: Config) -> dict[str, Any]:
    check_fit(c, c.windows)
    windows: int | list[int] = list(c.windows)
    if len(set(c.windows)) == 1:
        windows = c.windows[0]
    elif len(c.windows) == 2:
        said = f"timm would take windows={c.windows} for the two sides of one"
        raise UserError(said, do="build it with the same window in both stages")
    return write_sizes(c, next(iter(ARCHITECTURES)), {"window_size": windows})


def write_sizes(c: Config, name: str, more: Sizes) -> dict[str, Any]:
    """All sizes, as changes to those of an architecture."""
    if c.act != "gelu":
        raise UserError(f"timm's Swin models have no act={c.act!r}", allowed="'gelu'")
    return write_named(name, c, c.dim * 2 ** (len(c.layers) - 1), {**FIELDS.write(c), **more})


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
