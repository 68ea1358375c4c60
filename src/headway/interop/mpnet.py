"""MPNet in Hugging Face's layout: a RoBERTa without segments, whose logits have a bias of the distance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headway.errors import UserError
from headway.interop.bert import read_sizes, write_sizes
from headway.interop.config_reader import Options, written_as
from headway.interop.encoders import FIELDS as BERT
from headway.interop.encoders import WORDS, architecture, norm, out
from headway.interop.keymap import KeyMap, Rule, linear
from headway.interop.roberta import TOPS, settle
from headway.zoo.bert import Config

__all__ = ["keymap", "read_config", "settle", "write_config"]

ARCHITECTURES = {f"MPNet{kind}": top for kind, top in TOPS.items()}
FIELDS = BERT.without("segments").with_defaults(vocab=30_527)
FIRST = 2  # of the positions, behind the padding's
BUCKETS = 32  # of distances, whatever its config says


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(values, "mpnet")
    o.expect(relative_attention_num_buckets=BUCKETS)
    config = replace(read_sizes(o, ARCHITECTURES, FIELDS, first=FIRST), segments=0, buckets=BUCKETS)
    if config.top in WORDS:
        o.expect(hidden_act="gelu")  # the head's own activation, whatever the layers have
    return o.done(config)


def write_config(c: Config) -> dict[str, Any]:
    if c.first != FIRST or c.segments or c.buckets != BUCKETS:
        said = (
            f"there, an MPNet's positions begin at {FIRST}, and it has {BUCKETS} buckets of distances and no segments"
        )
        raise UserError(f"{said}, unlike this model", do=written_as("roberta" if c.first else "bert"))
    special = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    sizes = {**write_sizes(c, "buckets"), "relative_attention_num_buckets": BUCKETS}
    sizes.pop("type_vocab_size")
    return {**architecture(c.top, ARCHITECTURES, "mpnet"), **sizes, **special}


def keymap(c: Config) -> KeyMap:
    there, here = "encoder.layer.*", "stack.blocks.*"
    tops = {
        "none": (),
        "pooler": linear("pooler.dense", "head.pooler.inside"),
        "words": (
            *out("lm_head.dense", "head.dense"),
            *norm("lm_head.layer_norm", "head.norm", outside=True),
            Rule("lm_head.bias", "head.words.bias", outside=True),
        ),
        "rows": out("classifier.dense", "head.inside") + out("classifier.out_proj"),
        "tokens": out("classifier"),
        "spans": out("qa_outputs"),
    }
    return KeyMap(
        rules=(
            Rule("embeddings.word_embeddings.weight", "embed.token.weight"),
            Rule("embeddings.position_embeddings.weight", "embed.position.table.weight"),
            *norm("embeddings.LayerNorm", "embed.norm"),
            Rule("encoder.relative_attention_bias.weight", "stack.blocks.0.attn.body.logit_bias.table"),
            *(
                rule
                for theirs, ours in (("q", "q"), ("k", "k"), ("v", "v"), ("o", "out"))
                for rule in linear(f"{there}.attention.attn.{theirs}", f"{here}.attn.body.{ours}")
            ),
            *norm(f"{there}.attention.LayerNorm", f"{here}.attn.after"),
            *linear(f"{there}.intermediate.dense", f"{here}.ffn.body.up"),
            *linear(f"{there}.output.dense", f"{here}.ffn.body.down"),
            *norm(f"{there}.output.LayerNorm", f"{here}.ffn.after"),
            *tops[c.top],
        ),
        prefixes=("", "mpnet.") if c.top in ("none", "pooler") else ("mpnet.",),
        ignored=("embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias"),
        ties={
            "lm_head.decoder.weight": "embeddings.word_embeddings.weight",
            "lm_head.decoder.bias": "lm_head.bias",
        },
    )
