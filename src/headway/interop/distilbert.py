"""DistilBERT in Hugging Face's layout: BERT without segments and pooler, under names of its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from headway.errors import UserError
from headway.interop.config_reader import ACTIVATION, ConfigMap, Field, Options, written_as
from headway.interop.encoders import architecture, classes, labels, norm, out, plain_encoder, top
from headway.interop.keymap import KeyMap, Rule, linear
from headway.nn.ffn import ffn_width
from headway.zoo.bert import Config

ARCHITECTURES = {
    "DistilBertModel": "none",
    "DistilBertForMaskedLM": "words",
    "DistilBertForSequenceClassification": "rows, relu",
    "DistilBertForTokenClassification": "tokens",
    "DistilBertForQuestionAnswering": "spans",
}
EPS = 1e-12  # of every norm; no option tells it


FIELDS = ConfigMap(
    Field("vocab_size", "vocab", 30_522),
    Field("max_position_embeddings", "context", 512),
    Field("dim", "dim"),
    Field("n_layers", "layers"),
    Field("n_heads", "heads"),
    Field("hidden_dim", "hidden", 3072),
    Field("activation", "act", "gelu", ACTIVATION),
    Field("dropout", "dropout", 0.1),
    Field("attention_dropout", "attention_dropout", 0.1),
)


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(values, "distilbert")
    plain_encoder(o)
    o.ignore("sinusoidal_pos_embds")  # how the table of positions began; it is in the file
    o.ignore("tie_weights_", "qa_dropout")
    stands, before = top(o, ARCHITECTURES), o.take("seq_classif_dropout", 0.2)
    fields = FIELDS.with_defaults(  # the general names of these options
        dim=o.take("hidden_size", 768), layers=o.take("num_hidden_layers", 6), heads=o.take("num_attention_heads", 12)
    )
    config = Config(
        **fields.read(o),
        segments=0,
        eps=EPS,
        top=stands,
        classes=classes(o),
        class_dropout=before if stands == "rows, relu" else None,
    )
    return o.done(config)


def write_config(c: Config) -> dict[str, Any]:
    if c.segments or c.first or c.eps != EPS:
        said = f"a DistilBERT has no segments, positions from 0 and norms with an ε of {EPS}, and this model others"
        raise UserError(said, do=written_as("roberta" if c.first else "bert"))
    return {
        **architecture(c.top, ARCHITECTURES, "distilbert"),
        **FIELDS.write(c),
        "hidden_dim": ffn_width(c.dim, c.hidden),
        **({} if c.class_dropout is None else {"seq_classif_dropout": c.class_dropout}),
        "tie_word_embeddings": True,
        "pad_token_id": 0,
        **labels(c.top, c.classes),
    }


def settle(c: Config, names: Collection[str]) -> Config:
    """Files of the bare encoder may hold the head of masked words."""
    words = any(name.endswith("vocab_transform.weight") for name in names)
    return replace(c, top="words") if c.top == "none" and words else c


def keymap(c: Config) -> KeyMap:
    there, here = "transformer.layer.*", "stack.blocks.*"
    return KeyMap(
        rules=(
            Rule("embeddings.word_embeddings.weight", "embed.token.weight"),
            Rule("embeddings.position_embeddings.weight", "embed.position.table.weight"),
            *norm("embeddings.LayerNorm", "embed.norm"),
            *linear(f"{there}.attention.q_lin", f"{here}.attn.body.q"),
            *linear(f"{there}.attention.k_lin", f"{here}.attn.body.k"),
            *linear(f"{there}.attention.v_lin", f"{here}.attn.body.v"),
            *linear(f"{there}.attention.out_lin", f"{here}.attn.body.out"),
            *linear(f"{there}.sa_layer_norm", f"{here}.attn.after"),
            *linear(f"{there}.ffn.lin1", f"{here}.ffn.body.up"),
            *linear(f"{there}.ffn.lin2", f"{here}.ffn.body.down"),
            *linear(f"{there}.output_layer_norm", f"{here}.ffn.after"),
            *head(c.top),
        ),
        prefixes=("", "distilbert.") if c.top == "none" else ("distilbert.",),
        ignored=("embeddings.position_ids",),
        ties={"vocab_projector.weight": "embeddings.word_embeddings.weight"},
    )


def head(top: str) -> tuple[Rule, ...]:
    return {
        "none": (),
        "words": (
            *out("vocab_transform", "head.dense"),
            *out("vocab_layer_norm", "head.norm"),
            Rule("vocab_projector.bias", "head.words.bias", outside=True),
        ),
        "rows, relu": out("pre_classifier", "head.inside") + out("classifier"),
        "tokens": out("classifier"),
        "spans": out("qa_outputs"),
    }[top]
