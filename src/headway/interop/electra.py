"""ELECTRA in Hugging Face's layout: a BERT with narrow vectors of words, and with other heads."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from headway.errors import UserError
from headway.interop.bert import encoder_map, read_sizes, write_sizes
from headway.interop.config_reader import ConfigMap, Field, Options, written_as
from headway.interop.encoders import FIELDS as BERT
from headway.interop.encoders import architecture, norm, out, settled
from headway.interop.keymap import KeyMap, Rule, linear
from headway.zoo.bert import Config

ARCHITECTURES = {
    "ElectraModel": "none",
    "ElectraForMaskedLM": "words",
    "ElectraForPreTraining": "replaced",
    "ElectraForSequenceClassification": "rows, gelu",
    "ElectraForTokenClassification": "tokens",
    "ElectraForQuestionAnswering": "spans",
}
FIELDS = ConfigMap(*BERT.with_defaults(dim=256, heads=4, hidden=1024).fields, Field("embedding_size", "width", 128))


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(values, "electra")
    o.ignore("summary_last_dropout")
    config = read_sizes(o, ARCHITECTURES, FIELDS, first=0)
    if config.top in ("words", "replaced"):
        o.expect(hidden_act="gelu")  # the heads' own activation, whatever the layers have
    return o.done(config)


def write_config(c: Config) -> dict[str, Any]:
    if c.first:
        raise UserError(f"ELECTRA's positions begin at 0 there and here at {c.first}", do=written_as("roberta"))
    width = {"embedding_size": c.dim if c.width is None else c.width}
    return {**architecture(c.top, ARCHITECTURES, "electra"), **write_sizes(c, "width"), **width, "pad_token_id": 0}


def settle(c: Config, names: Collection[str]) -> Config:
    return replace(c, top=settled(c.top, names, words="generator_predictions.dense.weight", pooler="pooler"))


def keymap(c: Config) -> KeyMap:
    tops = {
        "none": (),
        "words": (
            *linear("generator_predictions.dense", "head.dense", outside=True),
            *norm("generator_predictions.LayerNorm", "head.norm", outside=True),
            Rule("generator_lm_head.bias", "head.words.bias", outside=True),
        ),
        "replaced": (
            *out("discriminator_predictions.dense", "head.inside"),
            *out("discriminator_predictions.dense_prediction"),
        ),
        "rows, gelu": out("classifier.dense", "head.inside") + out("classifier.out_proj"),
        "tokens": out("classifier"),
        "spans": out("qa_outputs"),
    }
    ties = {"generator_lm_head.weight": "embeddings.word_embeddings.weight"}
    found = encoder_map("electra.", c, tops[c.top], ties)
    return replace(found, rules=(*found.rules, *linear("embeddings_project", "embed.project")))
