"""BART in Hugging Face's layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from headway.interop.config_reader import ConfigMap, Field, Options
from headway.interop.encoders import classes, labels, out
from headway.interop.fairseq import SIDES, blocks, check_sides
from headway.interop.keymap import KeyMap, Row, Rule, linear
from headway.zoo.bart import Config

WRITES, CLASSIFIES = "BartForConditionalGeneration", "BartForSequenceClassification"
# what the configs of BART and Marian have in common, with the same defaults
FIELDS = ConfigMap(
    Field("max_position_embeddings", "context", 1024),
    Field("scale_embedding", "scaled", False),
    Field("tie_word_embeddings", "tied", True),
    *SIDES.fields,
)


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(values, "bart")
    classified = o.architecture(WRITES, "BartModel", CLASSIFIES) == CLASSIFIES
    o.expect(normalize_embedding=True, static_position_embeddings=False, extra_pos_embeddings=2)
    check_plain(o)
    rows: dict[str, Any] = {}
    if classified:
        rows = {"classes": classes(o), "class_dropout": o.take("classifier_dropout", 0.0)}
    start = o.take("decoder_start_token_id", 2)
    return o.done(Config(vocab=o.take("vocab_size", 50_265), **FIELDS.read(o), **rows, start=start))


def check_plain(o: Options) -> None:
    """Refuses what neither BART nor Marian has; leaves what changes training, or nothing."""
    o.expect(tie_encoder_decoder=False, is_decoder=False, normalize_before=False, add_final_layer_norm=False)
    o.ignore("add_bias_logits", "save_step", "classif_dropout", "classifier_dropout", "_num_labels")
    o.ignore("force_bos_token_to_be_generated")
    check_sides(o)


def write_config(c: Config) -> dict[str, Any]:
    names = {"model_type": "bart", "architectures": [CLASSIFIES if c.classes else WRITES]}
    top = {"decoder_start_token_id": c.start, "is_encoder_decoder": True, **labels("rows", c.classes)}
    dropout = {"classifier_dropout": c.class_dropout} if c.classes else {}
    return names | {"vocab_size": c.vocab} | FIELDS.write(c) | top | dropout


def keymap(c: Config) -> KeyMap:
    def embed(side: str) -> tuple[Rule, ...]:
        return (
            Rule(f"{side}.embed_positions.weight", f"{side}.embed.position.table.weight"),
            *linear(f"{side}.layernorm_embedding", f"{side}.embed.norm"),
        )

    rules = (*embed("encoder"), *embed("decoder"), *blocks("after"))
    ignored = ("encoder.version", "decoder.version")
    found = tied(*rules, ignored=ignored) if c.tied else untied(*rules, ignored=ignored)
    return classified(found) if c.classes else found


SHARED, SOURCE, TARGET = "shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"
OUTPUT = "lm_head.weight"
BIAS = Rule("final_logits_bias", "decoder.head.bias", (Row(),), outside=True)


def tied(*rules: Rule, ignored: tuple[str, ...]) -> KeyMap:
    """One table of words, for both sides and the output."""
    words = Rule(SHARED, "encoder.embed.token.weight")
    ties = {SOURCE: SHARED, TARGET: SHARED, OUTPUT: SHARED}
    return KeyMap((words, *rules, BIAS), ("model.", ""), ignored, ties, {BIAS.theirs: (SHARED, zeros)})


def untied(*rules: Rule, ignored: tuple[str, ...]) -> KeyMap:
    """Three tables.  Files of the library's version 4 hold one for both sides, those of 5 hold it unused besides."""
    words = (Rule(SOURCE, "encoder.embed.token.weight"), Rule(TARGET, "decoder.embed.token.weight"))
    absent = {SOURCE: (SHARED, Tensor.clone), TARGET: (SHARED, Tensor.clone), BIAS.theirs: (TARGET, zeros)}
    output = Rule(OUTPUT, "decoder.head.weight", outside=True)
    return KeyMap((*words, *rules, output, BIAS), ("model.", ""), (*ignored, SHARED), absent=absent)


def classified(names: KeyMap) -> KeyMap:
    """With the head of classes in place of an output of words."""
    rules = tuple(rule for rule in names.rules if rule.theirs not in (BIAS.theirs, OUTPUT))
    head = (
        *out("classification_head.dense", "decoder.head.inside"),
        *out("classification_head.out_proj", "decoder.head.out"),
    )
    absent = {name: filling for name, filling in names.absent.items() if name != BIAS.theirs}
    return replace(names, rules=(*rules, *head), absent=absent)


def zeros(words: Tensor) -> Tensor:
    """The bias of an output that has none."""
    return words.new_zeros(1, len(words))
