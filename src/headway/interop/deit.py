"""DeiT in Hugging Face's layout: the names of ViT's blocks, two tokens, and one head or two."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from headway.interop.config_reader import Options
from headway.interop.encoders import architecture, classes, labels
from headway.interop.keymap import KeyMap, Rule, linear, linears
from headway.interop.vit import BLOCK, FIELDS, NEW_BLOCK, Table, write_sizes
from headway.zoo.deit import Config

ARCHITECTURES = {
    "DeiTModel": "pooler",
    "DeiTForImageClassification": "classes",
    "DeiTForImageClassificationWithTeacher": "two classes",
}


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(values, "deit")
    stands = ARCHITECTURES[o.architecture(*ARCHITECTURES)]
    fields = FIELDS.read(o)
    o.expect(pooler_act="tanh", pooler_output_size=fields["dim"])
    o.ignore("encoder_stride")  # of masked images
    count = classes(o) if stands.endswith("classes") else Config.classes
    return o.done(Config(**fields, top=stands, classes=count))


def write_config(c: Config) -> dict[str, Any]:
    return {
        **architecture(c.top, ARCHITECTURES, "deit"),
        **write_sizes(c),
        "encoder_stride": c.patch,
        **labels("rows" if c.top.endswith("classes") else c.top, c.classes),
    }


def settle(c: Config, names: Collection[str]) -> Config:
    """Files of the bare model may lack the pooler."""
    pooled = any(name.endswith("pooler.dense.weight") for name in names)
    return replace(c, top="none") if c.top == "pooler" and not pooled else c


def keymap(c: Config) -> KeyMap:
    heads = {
        "none": (),
        "pooler": linear("pooler.dense", "head.pooler.inside"),
        "classes": linear("classifier", "head.out", outside=True),
        "two classes": (
            *linear("cls_classifier", "head.out", outside=True),
            *linear("distillation_classifier", "head.distilled", outside=True),
        ),
    }
    places = "embed.token.position", "embed.position.table"
    return KeyMap(
        rules=(
            *linear("embeddings.patch_embeddings.projection", "embed.patches.project"),
            Rule("embeddings.cls_token", "embed.token.token"),
            Rule("embeddings.distillation_token", "embed.token.distilled"),
            Rule("embeddings.position_embeddings", places, (Table(c.image // c.patch, first=2),)),
            *linears("encoder.layer.*", "stack.blocks.*", BLOCK),
            *linears("layers.*", "stack.blocks.*", NEW_BLOCK),
            *linear("layernorm", "stack.norm"),
            *heads[c.top],
        ),
        prefixes=("deit.",) if c.top.endswith("classes") else ("", "deit."),
        ignored=("pooler.dense.weight", "pooler.dense.bias"),
    )
