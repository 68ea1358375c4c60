"""ALBERT in Hugging Face's layout."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from headway.interop.config_reader import ConfigMap, Field, Options
from headway.interop.encoders import FIELDS, architecture, classes, norm, out, plain_encoder, settled, top, write_common
from headway.interop.keymap import KeyMap, Rule, linear
from headway.zoo.albert import Config

ARCHITECTURES = {
    "AlbertModel": "pooler",
    "AlbertForMaskedLM": "words",
    "AlbertForPreTraining": "pretraining",
    "AlbertForSequenceClassification": "rows",
    "AlbertForTokenClassification": "tokens",
    "AlbertForQuestionAnswering": "spans",
}


COMMON = FIELDS.with_defaults(
    vocab=30_000, dim=4096, heads=64, hidden=16_384, act="gelu_new", dropout=0.0, attention_dropout=0.0
)
OWN = ConfigMap(
    Field("max_position_embeddings", "context", 512),
    Field("embedding_size", "width", 128),
    Field("num_hidden_groups", "groups", 1),
    Field("inner_group_num", "inner", 1),
    Field("classifier_dropout_prob", "class_dropout", 0.1),
)


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(values, "albert")
    plain_encoder(o)
    o.expect(net_structure_type=0, gap_size=0, num_memory_blocks=0, down_scale_factor=1)
    return o.done(Config(**COMMON.read(o), **OWN.read(o), top=top(o, ARCHITECTURES), classes=classes(o)))


def write_config(c: Config) -> dict[str, Any]:
    return {**architecture(c.top, ARCHITECTURES, "albert"), **write_common(c), **OWN.write(c)}


def settle(c: Config, names: Collection[str]) -> Config:
    words, pair = "predictions.dense.weight", "sop_classifier.classifier.weight"
    return replace(c, top=settled(c.top, names, words=words, pair=pair, pooler="pooler.weight"))


def keymap(c: Config) -> KeyMap:
    return KeyMap(
        rules=(
            Rule("embeddings.word_embeddings.weight", "embed.token.weight"),
            Rule("embeddings.position_embeddings.weight", "embed.position.table.weight"),
            Rule("embeddings.token_type_embeddings.weight", "embed.segment.weight"),
            *norm("embeddings.LayerNorm", "embed.norm"),
            *linear("encoder.embedding_hidden_mapping_in", "embed.project"),
            *block("encoder.albert_layer_groups.*.albert_layers.*", "stack.blocks.*.block.blocks.*"),
            *head(c.top),
        ),
        prefixes=("", "albert.") if c.top in ("none", "pooler") else ("albert.",),
        ignored=("embeddings.position_ids", "embeddings.token_type_ids", "pooler.weight", "pooler.bias"),
        ties={
            "predictions.decoder.weight": "embeddings.word_embeddings.weight",
            "predictions.decoder.bias": "predictions.bias",
        },
    )


def block(there: str, here: str) -> tuple[Rule, ...]:
    return (
        *linear(f"{there}.attention.query", f"{here}.attn.body.q"),
        *linear(f"{there}.attention.key", f"{here}.attn.body.k"),
        *linear(f"{there}.attention.value", f"{here}.attn.body.v"),
        *linear(f"{there}.attention.dense", f"{here}.attn.body.out"),
        *norm(f"{there}.attention.LayerNorm", f"{here}.attn.after"),
        *linear(f"{there}.ffn", f"{here}.ffn.body.up"),
        *linear(f"{there}.ffn_output", f"{here}.ffn.body.down"),
        *norm(f"{there}.full_layer_layer_norm", f"{here}.ffn.after"),
    )


def head(top: str) -> tuple[Rule, ...]:
    def words(ours: str) -> tuple[Rule, ...]:
        return (
            *linear("predictions.dense", f"{ours}.dense", outside=True),
            *norm("predictions.LayerNorm", f"{ours}.norm", outside=True),
            Rule("predictions.bias", f"{ours}.words.bias", outside=True),
        )

    return {
        "none": (),
        "pooler": linear("pooler", "head.pooler.inside"),
        "words": words("head"),
        "pretraining": (
            *words("head.main"),
            *linear("pooler", "head.pair.inside"),
            *out("sop_classifier.classifier", "head.pair.out"),
        ),
        "rows": linear("pooler", "head.inside") + out("classifier"),
        "tokens": out("classifier"),
        "spans": out("qa_outputs"),
    }[top]
