"""MViT-v2 in timm's layout, where a name tells the sizes and no option changes them, but for those of the image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.errors import UserError, listed, nearest
from headway.interop.config_reader import NUMBER, SIDE, Arguments, ConfigMap, Field
from headway.interop.keymap import KeyMap, Rule, linear, qkv
from headway.interop.timm_folder import write_named
from headway.zoo.mvitv2 import Config

LAYERS = {"mvitv2_tiny": (1, 2, 5, 2), "mvitv2_small": (1, 2, 11, 2), "mvitv2_base": (2, 3, 16, 3)}

FIELDS = ConfigMap(
    Field("img_size", "image", 224, SIDE),
    Field("in_chans", "channels", 3),
    Field("drop_path_rate", "depth_dropout", 0.0, NUMBER),
)


def read_config(values: Mapping[str, Any]) -> Config:
    name = str(values.get("architecture"))
    if name not in LAYERS:
        said = f"the architecture {name!r} is not supported for timm's MViT models"
        raise UserError(said, allowed=listed(LAYERS, 10), meant=nearest(name, LAYERS))
    told: Mapping[str, Any] = values.get("pretrained_cfg") or {}
    image = {"img_size": told["input_size"][1:]} if told.get("input_size") else {}
    classes = {"num_classes": values.get("num_classes", told.get("num_classes"))}
    o = Arguments({**classes, **image, **(values.get("model_args") or {})}, name)
    o.expect(global_pool="avg", drop_rate=0.0)
    return o.done(Config(**FIELDS.read(o), layers=LAYERS[name], classes=o.take("num_classes", 1000)))


def write_config(c: Config) -> dict[str, Any]:
    names = [name for name, layers in LAYERS.items() if layers == c.layers]
    published = Config(c.image, c.channels, layers=c.layers, classes=c.classes, depth_dropout=c.depth_dropout)
    if not names or c != published:
        do = "write it in headway's own layout"
        raise UserError("timm has no MViT-v2 of these sizes", allowed=f"those of {listed(LAYERS)}", do=do)
    return write_named(names[0], c, c.dim * 2 ** (len(c.layers) - 1), FIELDS.write(c))


def keymap(c: Config) -> KeyMap:
    there, here = "stages.*.blocks.*", "stack.blocks.*.stack.blocks.*"
    # where a block widens, its path goes on from the normed input, and so the norm stands before both
    widening = (
        linear(f"stages.{stage}.blocks.0.norm1", f"stack.blocks.{stage}.stack.blocks.0.norm.body")
        for stage in range(1, len(c.layers))
    )
    return KeyMap(
        rules=(
            *linear("patch_embed.proj", "embed.blocks.0"),
            *(rule for rules in widening for rule in rules),
            *linear(f"{there}.norm1", f"{here}.attn.before"),
            *linear(f"{there}.shortcut_proj_attn", f"{here}.attn.skip.0"),
            *attention(f"{there}.attn", f"{here}.attn.body"),
            *linear(f"{there}.norm2", f"{here}.ffn.before"),
            *linear(f"{there}.mlp.fc1", f"{here}.ffn.body.up"),
            *linear(f"{there}.mlp.fc2", f"{here}.ffn.body.down"),
            *linear("norm", "stack.norm"),
            *linear("head.fc", "head.out"),
        )
    )


def attention(there: str, here: str) -> tuple[Rule, ...]:
    return (
        *qkv(f"{there}.qkv.", here),
        *linear(f"{there}.proj", f"{here}.out"),
        *(Rule(f"{there}.pool_{part}.weight", f"{here}.{part}_pool.weight") for part in "qkv"),
        *(rule for part in "qkv" for rule in linear(f"{there}.norm_{part}", f"{here}.{part}_norm")),
        Rule(f"{there}.rel_pos_h", f"{here}.grid_bias.rows"),
        Rule(f"{there}.rel_pos_w", f"{here}.grid_bias.cols"),
    )
