"""ConvNeXt in Hugging Face's layout, and what its second version shares with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.errors import UserError
from headway.interop.config_reader import ACTIVATION, LIST, NUMBER, SIDE, ConfigMap, Field, Options, written_as
from headway.interop.encoders import architecture, classes, labels, top
from headway.interop.keymap import KeyMap, Row, Rule, linear, linears
from headway.zoo.convnext import Config

SHARED = ConfigMap(
    Field("image_size", "image", 224, SIDE),
    Field("num_channels", "channels", 3),
    Field("patch_size", "patch", 4, SIDE),
    Field("depths", "layers", (3, 3, 9, 3), LIST),
    Field("hidden_sizes", "widths", (96, 192, 384, 768), LIST),
    Field("hidden_act", "act", "gelu", ACTIVATION),
    Field("layer_norm_eps", "eps", 1e-12),
    Field("drop_path_rate", "depth_dropout", 0.0, NUMBER),
)
FIELDS = ConfigMap(*SHARED.fields, Field("layer_scale_init_value", "layer_scale", 1e-6, NUMBER))
KINDS = {"Model": "pooler", "ForImageClassification": "classes"}


def read_config(values: Mapping[str, Any]) -> Config:
    return read(Options(values, "convnext"), "ConvNext", FIELDS, "plain")


def read(o: Options, name: str, fields: ConfigMap, ffn: str) -> Config:
    stands = top(o, {f"{name}{kind}": ours for kind, ours in KINDS.items()})
    o.ignore("out_features", "out_indices", "_out_features", "_out_indices", "stage_names")  # of backbones
    found: dict[str, Any] = {"layer_scale": 0.0, **fields.read(o)}
    o.expect(num_stages=len(found["layers"]))
    count = classes(o) if stands == "classes" else Config.classes
    return o.done(Config(**found, ffn=ffn, top=stands, classes=count))


def write_config(c: Config) -> dict[str, Any]:
    if c.ffn != "plain":
        said = f"there, a ConvNeXt has plain feed-forward layers, and this one ffn={c.ffn!r}"
        raise UserError(said, do=written_as("convnextv2"))
    return write(c, "convnext", "ConvNext", FIELDS)


def write(c: Config, family: str, name: str, fields: ConfigMap) -> dict[str, Any]:
    return {
        **architecture(c.top, {f"{name}{kind}": ours for kind, ours in KINDS.items()}, family),
        **fields.write(c),
        "num_stages": len(c.layers),
        **labels("rows" if c.top == "classes" else c.top, c.classes),
    }


def keymap(c: Config) -> KeyMap:
    return names(c, "convnext.")


def names(c: Config, prefix: str) -> KeyMap:
    there, here = "encoder.stages.*.layers.*", "stack.blocks.*.stack.blocks.*.conv"
    block = {
        "dwconv": "body.blocks.0",
        "layernorm": "body.blocks.1.body",
        "pwconv1": "body.blocks.2.up",
        "pwconv2": "body.blocks.2.down",
    }
    normed = tuple(
        Rule(f"{there}.grn.{kind}", f"{here}.body.blocks.2.middle.{kind}", (Row(), Row(), Row()))  # 1 1 1 F
        for kind in ("weight", "bias")
    )
    last = {"classes": "head.norm", "pooler": "head.pooler.inside"}[c.top]
    return KeyMap(
        rules=(
            *linear("embeddings.patch_embeddings", "embed.project"),
            *linear("embeddings.layernorm", "embed.norm"),
            *linear("encoder.stages.*.downsampling_layer.0", "stack.blocks.*.down.norm"),
            *linear("encoder.stages.*.downsampling_layer.1", "stack.blocks.*.down.conv"),
            *linears(there, here, block),
            *((Rule(f"{there}.layer_scale_parameter", f"{here}.inside.factor"),) if c.layer_scale else ()),
            *(normed if c.ffn == "normed" else ()),
            *linear("layernorm", last),
            *(linear("classifier", "head.out", outside=True) if c.top == "classes" else ()),
        ),
        prefixes=(prefix,) if c.top == "classes" else ("", prefix),
    )
