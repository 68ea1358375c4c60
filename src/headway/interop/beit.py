"""BEiT in Hugging Face's layout.

Its files spell the parts of a block as they were called before the library's release 5; both spellings are read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from headway.errors import UserError
from headway.interop.config_reader import NUMBER, ConfigMap, Field, Options
from headway.interop.encoders import architecture, classes, labels, top
from headway.interop.keymap import KeyMap, Rule, linear, linears
from headway.interop.vit import BLOCK, NEW_BLOCK
from headway.interop.vit import FIELDS as VIT
from headway.zoo.beit import Config

FIELDS = ConfigMap(
    *VIT.without("biased").fields,
    Field("layer_scale_init_value", "layer_scale", 0.1, NUMBER),
    Field("drop_path_rate", "depth_dropout", 0.1, NUMBER),
)
TOPS = {"BeitModel": "pooler", "BeitForImageClassification": "classes"}
OFFSETS = {(True, False): "each layer", (False, True): "all layers"}
OPTIONS = ("use_relative_position_bias", "use_shared_relative_position_bias")
POOLS = {True: "mean", False: "class"}


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(values, "beit")
    stands = top(o, TOPS)
    o.expect(use_absolute_position_embeddings=False)
    given = (o.take(OPTIONS[0], False), o.take(OPTIONS[1], False))
    if given not in OFFSETS:
        said = " and ".join(f"{name}={value}" for name, value in zip(OPTIONS, given, strict=True))
        raise UserError(f"{said} is not supported for beit models", allowed="one of them, true")
    # of backbones, of segmentation, and of what is hidden in training
    o.ignore("vocab_size", "use_mask_token", "pool_scales", "use_auxiliary_head", "auxiliary_loss_weight")
    o.ignore("auxiliary_channels", "auxiliary_num_convs", "auxiliary_concat_input", "semantic_loss_ignore_index")
    o.ignore("out_features", "out_indices", "_out_features", "_out_indices", "stage_names", "segmentation_indices")
    o.ignore("add_fpn", "reshape_hidden_states")
    pool = POOLS[o.take("use_mean_pooling", True)]
    count = classes(o) if stands == "classes" else Config.classes
    return o.done(Config(**FIELDS.read(o), offsets=OFFSETS[given], pool=pool, top=stands, classes=count))


def write_config(c: Config) -> dict[str, Any]:
    offsets = next(given for given, name in OFFSETS.items() if name == c.offsets)
    return {
        **architecture(c.top, TOPS, "beit"),
        **FIELDS.write(c),
        **dict(zip(OPTIONS, offsets, strict=True)),
        "use_mean_pooling": c.pool == "mean",
        **labels("rows" if c.top == "classes" else c.top, c.classes),
    }


def settle(c: Config, names: Collection[str]) -> Config:
    """Files of the bare model may lack the norm of what is pooled."""
    pooled = any(name.endswith("pooler.layernorm.weight") for name in names)
    return replace(c, top="none") if c.top == "pooler" and c.pool == "mean" and not pooled else c


TABLE = "relative_position_bias_table"


def keymap(c: Config) -> KeyMap:
    here = "stack.blocks.*"
    old, new = "encoder.layer.*", "layers.*"
    tables = {
        "each layer": (
            Rule(f"{old}.attention.attention.relative_position_bias.{TABLE}", f"{here}.attn.body.logit_bias.table"),
            Rule(f"{new}.relative_position_bias.{TABLE}", f"{here}.attn.body.logit_bias.table"),
        ),
        "all layers": (
            Rule(f"encoder.relative_position_bias.{TABLE}", "stack.blocks.0.attn.body.logit_bias.table"),
            Rule(f"shared_position_bias.{TABLE}", "stack.blocks.0.attn.body.logit_bias.table"),
        ),
    }[c.offsets]
    scales = tuple(
        Rule(f"{there}.lambda_{number}", f"{here}.{part}.inside.factor")
        for there in (old, new)
        for number, part in ((1, "attn"), (2, "ffn"))
    )
    norm = {
        ("mean", "classes"): linear("pooler.layernorm", "head.norm"),
        ("mean", "pooler"): linear("pooler.layernorm", "head.pooler.inside"),
    }
    return KeyMap(
        rules=(
            *linear("embeddings.patch_embeddings.projection", "embed.patches.project"),
            Rule("embeddings.cls_token", "embed.token.token"),
            *tables,
            *linears(old, here, BLOCK),
            *linears(new, here, NEW_BLOCK),
            *(scales if c.layer_scale else ()),
            *(linear("layernorm", "stack.norm") if c.pool == "class" else norm.get((c.pool, c.top), ())),
            *(linear("classifier", "head.out", outside=True) if c.top == "classes" else ()),
        ),
        prefixes=("beit.",) if c.top == "classes" else ("", "beit."),
        ignored=(
            "embeddings.mask_token",  # of training
            f"{old}.attention.attention.relative_position_bias.relative_position_index",
            "encoder.relative_position_bias.relative_position_index",
            *(("pooler.layernorm.weight", "pooler.layernorm.bias") if c.top == "none" else ()),
        ),
    )
