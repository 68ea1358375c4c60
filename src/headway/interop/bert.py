"""BERT in Hugging Face's layout."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from headway.errors import UserError
from headway.interop.config_reader import ConfigMap, Options, refuse_fields, written_as
from headway.interop.encoders import FIELDS, architecture, classes, norm, out, plain_encoder, settled, top, write_common
from headway.interop.keymap import KeyMap, Rule, linear
from headway.zoo.bert import Config
from headway.zoo.longformer import Config as Longformer

ARCHITECTURES = {
    "BertModel": "pooler",
    "BertForMaskedLM": "words",
    "BertForPreTraining": "pretraining",
    "BertForNextSentencePrediction": "pair",
    "BertForSequenceClassification": "rows",
    "BertForTokenClassification": "tokens",
    "BertForQuestionAnswering": "spans",
}
OTHERS = {"width": "electra", "buckets": "mpnet"}


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(values, "bert")
    o.expect(directionality="bidi", pooler_type="first_token_transform")
    o.ignore("pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head")
    return o.done(read_sizes(o, ARCHITECTURES, FIELDS, first=0))


def read_sizes(o: Options, known: Mapping[str, str], fields: ConfigMap, first: int) -> Config:
    plain_encoder(o)
    stands = top(o, known)
    return Config(
        **fields.read(o),
        context=o.take("max_position_embeddings", 512) - first,
        first=first,
        top=stands,
        classes=2 if stands in ("pair", "pretraining") else classes(o),
        class_dropout=o.take("classifier_dropout", None),
    )


def write_config(c: Config) -> dict[str, Any]:
    if c.first:
        raise UserError(f"BERT's positions begin at 0 there and here at {c.first}", do=written_as("roberta"))
    return {**architecture(c.top, ARCHITECTURES, "bert"), **write_sizes(c), "pad_token_id": 0}


def write_sizes(c: Config, *known: str) -> dict[str, Any]:
    refuse_fields(c, "BERT", {field: other for field, other in OTHERS.items() if field not in known})
    return {
        **write_common(c),
        "max_position_embeddings": c.first + c.context,
        "classifier_dropout": c.class_dropout,
    }


def settle(c: Config, names: Collection[str]) -> Config:
    words, pair = "cls.predictions.transform.dense.weight", "cls.seq_relationship.weight"
    return replace(c, top=settled(c.top, names, words=words, pair=pair, pooler="pooler.dense.weight"))


def keymap(c: Config) -> KeyMap:
    def words(head: str) -> tuple[Rule, ...]:
        return (
            *linear("cls.predictions.transform.dense", f"{head}.dense", outside=True),
            *norm("cls.predictions.transform.LayerNorm", f"{head}.norm", outside=True),
            Rule("cls.predictions.bias", f"{head}.words.bias", outside=True),
        )

    def pooler(inside: str) -> tuple[Rule, ...]:
        return linear("pooler.dense", inside)

    tops = {
        "none": (),
        "pooler": pooler("head.pooler.inside"),
        "words": words("head"),
        "pretraining": words("head.main") + pooler("head.pair.inside") + out("cls.seq_relationship", "head.pair.out"),
        "pair": pooler("head.inside") + out("cls.seq_relationship"),
        "rows": pooler("head.inside") + out("classifier"),
        "tokens": out("classifier"),
        "spans": out("qa_outputs"),
    }
    ties = {
        "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }
    return encoder_map("bert.", c, tops[c.top], ties)


def encoder_map(prefix: str, c: Config | Longformer, head: tuple[Rule, ...], ties: Mapping[str, str]) -> KeyMap:
    """The encoder, which RoBERTa spells alike, with a head; a pooler that no head reads is left."""
    there, here = "encoder.layer.*", "stack.blocks.*"
    return KeyMap(
        rules=(
            Rule("embeddings.word_embeddings.weight", "embed.token.weight"),
            Rule("embeddings.position_embeddings.weight", "embed.position.table.weight"),
            Rule("embeddings.token_type_embeddings.weight", "embed.segment.weight"),
            *norm("embeddings.LayerNorm", "embed.norm"),
            *linear(f"{there}.attention.self.query", f"{here}.attn.body.q"),
            *linear(f"{there}.attention.self.key", f"{here}.attn.body.k"),
            *linear(f"{there}.attention.self.value", f"{here}.attn.body.v"),
            *linear(f"{there}.attention.output.dense", f"{here}.attn.body.out"),
            *norm(f"{there}.attention.output.LayerNorm", f"{here}.attn.after"),
            *linear(f"{there}.intermediate.dense", f"{here}.ffn.body.up"),
            *linear(f"{there}.output.dense", f"{here}.ffn.body.down"),
            *norm(f"{there}.output.LayerNorm", f"{here}.ffn.after"),
            *head,
        ),
        prefixes=("", prefix) if c.top in ("none", "pooler") else (prefix,),
        ignored=("embeddings.position_ids", "embeddings.token_type_ids", "pooler.dense.weight", "pooler.dense.bias"),
        ties=ties,
    )
