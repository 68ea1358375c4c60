"""Marian in Hugging Face's layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.interop.bart import read_sizes, write_sizes
from headway.interop.fairseq import blocks
from headway.interop.keymap import KeyMap, Row, Rule
from headway.interop.options import Options
from headway.zoo.marian import Config


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(values, "marian")
    o.architecture("MarianMTModel", "MarianModel")
    o.require("normalize_embedding", False, default=False)
    o.require("static_position_embeddings", True, default=True)
    o.ignore("extra_pos_embeddings")
    shared, words = o.take("share_encoder_decoder_embeddings", True), o.take("vocab_size", 58_101)
    target = o.take("decoder_vocab_size", words)
    config = Config(
        vocab=words if shared else target,
        source_vocab=None if shared else words,
        shared=shared,
        **read_sizes(o),
    )
    o.done()
    return config


def write_config(c: Config) -> dict[str, Any]:
    source = c.vocab if c.source_vocab is None else c.source_vocab
    padding = min(source, c.vocab) - 1  # the last word, as Marian has it; the other library wants one that is there
    return {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "vocab_size": source,
        "decoder_vocab_size": c.vocab,
        "share_encoder_decoder_embeddings": c.shared,
        "pad_token_id": padding,
        "decoder_start_token_id": padding,
        **write_sizes(c),
    }


def keymap(c: Config) -> KeyMap:
    source, target = "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"
    words = "shared.weight" if c.shared else target
    tables = (
        (Rule(words, "encoder.embed.token.weight"),)
        if c.shared
        else (Rule(source, "encoder.embed.token.weight"), Rule(target, "decoder.embed.token.weight"))
    )
    return KeyMap(
        rules=(*tables, *blocks("after"), Rule("final_logits_bias", "decoder.head.bias", (Row(),), outside=True)),
        prefixes=("model.", ""),
        ignored=("encoder.embed_positions.weight", "decoder.embed_positions.weight"),
        ties=dict.fromkeys(("lm_head.weight", *((source, target) if c.shared else ())), words),
        absent={"final_logits_bias": (words, lambda table: table.new_zeros(1, len(table)))},
    )
