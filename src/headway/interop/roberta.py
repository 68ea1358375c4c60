"""RoBERTa in Hugging Face's layout: BERT's encoder, whose positions begin behind the padding's, and other heads.

XLM-RoBERTa and CamemBERT are the same code under other names.

The reference counts positions over tokens that are not padding; with padding on the right that is the order of the
tokens, and with padding on the left they are given in the context.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from headway.errors import UserError
from headway.interop.bert import encoder_map, read_sizes, write_sizes
from headway.interop.config_reader import Options, written_as
from headway.interop.encoders import FIELDS, WORDS, architecture, norm, out, settled
from headway.interop.keymap import KeyMap, Rule, linear
from headway.zoo import longformer
from headway.zoo.bert import Config

C = TypeVar("C", Config, longformer.Config)
TOPS = {
    "Model": "pooler",
    "ForMaskedLM": "words",
    "ForSequenceClassification": "rows",
    "ForTokenClassification": "tokens",
    "ForQuestionAnswering": "spans",
}


def configs(
    family: str, name: str, vocab: int
) -> tuple[Callable[[Mapping[str, Any]], Config], Callable[[Config], dict[str, Any]]]:
    """`read_config` and `write_config` of a model_type whose classes begin with `name`."""
    known = {f"{name}{kind}": top for kind, top in TOPS.items()}
    return partial(read, family, known, vocab), partial(write, family, known)


def read(family: str, known: Mapping[str, str], vocab: int, values: Mapping[str, Any]) -> Config:
    o = Options(values, family)
    fields = FIELDS.with_defaults(vocab=vocab)
    config = read_sizes(o, known, fields, first=o.take("pad_token_id", 1) + 1)
    if config.top in WORDS:
        o.expect(hidden_act="gelu")  # the head's own activation, whatever the layers have
    return o.done(config)


def write(family: str, known: Mapping[str, str], c: Config) -> dict[str, Any]:
    if c.first < 1:
        raise UserError("RoBERTa's positions begin behind the padding's and here at 0", do=written_as("bert"))
    special = {"pad_token_id": c.first - 1, "bos_token_id": 0, "eos_token_id": 2}
    return {**architecture(c.top, known, family), **write_sizes(c), **special}


read_config, write_config = configs("roberta", "Roberta", vocab=50_265)


def settle(c: C, names: Collection[str]) -> C:
    stands = settled(c.top, names, words="lm_head.dense.weight", pooler="pooler.dense.weight")
    return replace(c, top=stands)


def keymap(c: Config) -> KeyMap:
    return named_map("roberta.", c)


def named_map(prefix: str, c: Config | longformer.Config) -> KeyMap:
    """That of a model whose encoder is named `prefix`."""
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
    ties = {"lm_head.decoder.weight": "embeddings.word_embeddings.weight", "lm_head.decoder.bias": "lm_head.bias"}
    return encoder_map(prefix, c, tops[c.top], ties)
