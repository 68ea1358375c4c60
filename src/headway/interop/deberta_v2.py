"""DeBERTa 2 and 3 in Hugging Face's layout, and what the first version shares with it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from headway.errors import UserError
from headway.interop.config_reader import ConfigMap, Field, Options, written_as
from headway.interop.encoders import FIELDS as BERT
from headway.interop.encoders import architecture, classes, labels, norm, out, top
from headway.interop.keymap import Grouped, KeyMap, Rule, linear, linears
from headway.nn.ffn import ffn_width
from headway.zoo.deberta import Config

ARCHITECTURES = {
    "DebertaV2Model": "none",
    "DebertaV2ForMaskedLM": "words",
    "DebertaV2ForSequenceClassification": "rows, gelu",
    "DebertaV2ForTokenClassification": "tokens",
    "DebertaV2ForQuestionAnswering": "spans",
}
FIELDS = ConfigMap(
    *BERT.with_defaults(vocab=128_100, dim=1536, layers=24, heads=24, hidden=6144, segments=0, eps=1e-7).fields,
    Field("max_position_embeddings", "context", 512),
    Field("position_biased_input", "marked", True),
    Field("position_buckets", "buckets", -1),
    Field("cls_dropout", "class_dropout", None),
)
KINDS = ("c2p", "p2c")


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(values, "deberta-v2")
    o.require("share_att_key", True, default=False)
    o.require("norm_rel_ebd", "layer_norm", default="none")
    o.expect(conv_kernel_size=0)
    o.ignore("conv_act", "conv_groups")
    return o.done(read(o, ARCHITECTURES, FIELDS, "shared"))


def read(o: Options, known: Mapping[str, str], names: ConfigMap, distances: str) -> Config:
    kinds: Any = o.take("pos_att_type", None)
    kinds = kinds.split("|") if isinstance(kinds, str) else kinds
    if sorted(kinds or []) != sorted(KINDS):
        o.require("pos_att_type", "|".join(KINDS), default=None)
    o.require("relative_attention", True, default=False)
    o.expect(legacy=True, pooler_hidden_act="gelu", pooler_dropout=0.0)
    o.ignore("tie_word_embeddings")
    fields = names.read(o)
    width = {"pooler_hidden_size": fields["dim"], "embedding_size": fields["dim"]}
    o.expect(**width, attention_head_size=fields["dim"] // max(fields["heads"], 1))
    farthest = o.take("max_relative_positions", -1)
    farthest = fields["context"] if farthest < 1 else farthest
    return Config(**fields, farthest=farthest, top=top(o, known), classes=classes(o), distances=distances)


def write_config(c: Config) -> dict[str, Any]:
    if c.distances != "shared":
        said = f"there, a DeBERTa 2 projects distances as queries and keys, and this model as {c.distances!r}"
        raise UserError(said, do=written_as("deberta"))
    shared = {"share_att_key": True, "norm_rel_ebd": "layer_norm"}
    return {**write(c, ARCHITECTURES, FIELDS, "deberta-v2"), **shared}


def write(c: Config, known: Mapping[str, str], names: ConfigMap, family: str) -> dict[str, Any]:
    sizes = {**names.write(c), "intermediate_size": ffn_width(c.dim, c.hidden), "max_relative_positions": c.farthest}
    if c.class_dropout is None:
        sizes.pop("cls_dropout")
    fixed = {"pos_att_type": list(KINDS), "relative_attention": True}
    shown = labels("rows" if c.top == "rows, gelu" else c.top, c.classes)
    return {**architecture(c.top, known, family), **sizes, **fixed, "pad_token_id": 0, **shown}


def settle(c: Config, names: Collection[str]) -> Config:
    """A file of the bare encoder may hold masked words."""
    words = "cls.predictions.transform.dense.weight"
    return replace(c, top="words") if c.top == "none" and words in names else c


# the heads of version 3's training, which no class of transformers has
TRAINING = (
    *(f"lm_predictions.lm_head.{part}.{kind}" for part in ("dense", "LayerNorm") for kind in ("weight", "bias")),
    "lm_predictions.lm_head.bias",
    *(
        f"mask_predictions.{part}.{kind}"
        for part in ("dense", "LayerNorm", "classifier")
        for kind in ("weight", "bias")
    ),
)


def keymap(c: Config) -> KeyMap:
    there, here = "encoder.layer.*", "stack.blocks.*"
    distance = "stack.blocks.0.attn.body.logit_bias.distance"
    tops = {
        "none": (),
        "words": (
            *linear("cls.predictions.transform.dense", "head.dense", outside=True),
            *norm("cls.predictions.transform.LayerNorm", "head.norm", outside=True),
            Rule("cls.predictions.bias", "head.words.bias", outside=True),
        ),
        "rows, gelu": out("pooler.dense", "head.inside") + out("classifier"),
        "tokens": out("classifier"),
        "spans": out("qa_outputs"),
    }
    looking, here_looking = f"{there}.attention.self", f"{here}.attn.body"
    projections = {
        "shared": linears(looking, here_looking, {"query_proj": "q", "key_proj": "k", "value_proj": "v"}),
        "own": (
            Rule(
                f"{looking}.in_proj.weight",
                tuple(f"{here_looking}.{part}.weight" for part in "qkv"),
                (Grouped(c.heads, (1, 1, 1)),),
            ),
            *(Rule(f"{looking}.{part}_bias", f"{here_looking}.{part}.bias") for part in "qv"),
            *linears(looking, f"{here_looking}.logit_bias", {"pos_q_proj": "query", "pos_proj": "key"}),
        ),
    }
    return KeyMap(
        rules=(
            Rule("embeddings.word_embeddings.weight", "embed.token.weight"),
            Rule("embeddings.position_embeddings.weight", "embed.position.table.weight"),
            Rule("embeddings.token_type_embeddings.weight", "embed.segment.weight"),
            *norm("embeddings.LayerNorm", "embed.norm"),
            Rule("encoder.rel_embeddings.weight", f"{distance}.table.weight"),
            *norm("encoder.LayerNorm", f"{distance}.norm"),
            *projections[c.distances],
            *linear(f"{there}.attention.output.dense", f"{here}.attn.body.out"),
            *norm(f"{there}.attention.output.LayerNorm", f"{here}.attn.after"),
            *linear(f"{there}.intermediate.dense", f"{here}.ffn.body.up"),
            *linear(f"{there}.output.dense", f"{here}.ffn.body.down"),
            *norm(f"{there}.output.LayerNorm", f"{here}.ffn.after"),
            *tops[c.top],
        ),
        prefixes=("", "deberta.") if c.top == "none" else ("deberta.",),
        ignored=("embeddings.position_ids", *TRAINING),
        ties={
            "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
            "cls.predictions.decoder.bias": "cls.predictions.bias",
        },
    )
