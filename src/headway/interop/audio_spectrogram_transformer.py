"""AST in Hugging Face's layout: the names of ViT's blocks on a spectrogram."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.interop.config_reader import ConfigMap, Field, Options
from headway.interop.encoders import architecture, classes, labels, top
from headway.interop.keymap import KeyMap, Rule, linear, linears
from headway.interop.vit import BLOCK, NEW_BLOCK, Table
from headway.interop.vit import FIELDS as VIT
from headway.nn.ffn import ffn_width
from headway.zoo.ast import Config

TYPE = "audio-spectrogram-transformer"
FIELDS = ConfigMap(
    Field("num_mel_bins", "features", 128),
    Field("max_length", "frames", 1024),
    *VIT.without("image", "channels").fields,
)
STRIDES = ("frequency_stride", "time_stride")
TOPS = {"ASTModel": "none", "ASTForAudioClassification": "rows"}


def read_config(values: Mapping[str, Any]) -> Config:
    # `max_length` is elsewhere the length of what is written, which an encoder has none of
    o = Options(values, TYPE)
    stands = top(o, TOPS)
    strides = tuple(o.take(name, 10) for name in STRIDES)
    count = classes(o) if stands == "rows" else Config.classes
    return o.done(Config(**FIELDS.read(o), strides=strides, top=stands, classes=count))


def write_config(c: Config) -> dict[str, Any]:
    return {
        **architecture(c.top, TOPS, TYPE),
        **FIELDS.write(c),
        **dict(zip(STRIDES, c.strides, strict=True)),
        "intermediate_size": ffn_width(c.dim, c.hidden),
        **labels(c.top, c.classes),
    }


def keymap(c: Config) -> KeyMap:
    rows, cols = (
        (side - c.patch) // stride + 1 for side, stride in zip((c.features, c.frames), c.strides, strict=True)
    )
    places = "embed.token.position", "embed.position.table"
    prefix = "audio_spectrogram_transformer."
    return KeyMap(
        rules=(
            *linear("embeddings.patch_embeddings.projection", "embed.project"),
            Rule("embeddings.cls_token", "embed.token.token"),
            Rule("embeddings.distillation_token", "embed.token.distilled"),
            Rule("embeddings.position_embeddings", places, (Table(rows, 2, cols),)),
            *linears("encoder.layer.*", "stack.blocks.*", BLOCK),
            *linears("layers.*", "stack.blocks.*", NEW_BLOCK),
            *linear("layernorm", "stack.norm"),
            *(linear("classifier.layernorm", "head.norm", outside=True) if c.top == "rows" else ()),
            *(linear("classifier.dense", "head.out", outside=True) if c.top == "rows" else ()),
        ),
        prefixes=(prefix,) if c.top == "rows" else ("", prefix),
    )
