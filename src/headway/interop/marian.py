"""Marian in Hugging Face's layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.interop.bart import BIAS, FIELDS, OUTPUT, SOURCE, TARGET, check_plain, tied, untied, zeros
from headway.interop.config_reader import Options
from headway.interop.fairseq import blocks
from headway.interop.keymap import KeyMap, Rule
from headway.zoo.marian import Config


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(values, "marian")
    o.architecture("MarianMTModel", "MarianModel")
    o.expect(normalize_embedding=False, static_position_embeddings=True)
    check_plain(o)
    o.ignore("extra_pos_embeddings")
    shared, words = o.take("share_encoder_decoder_embeddings", True), o.take("vocab_size", 58_101)
    target = o.take("decoder_vocab_size", words)
    fields = FIELDS.read(o)
    config = Config(
        vocab=words if shared else target,
        source_vocab=None if shared else words,
        shared=shared and fields["tied"],  # there, words that are not tied to the output are not shared either
        **fields,
    )
    return o.done(config)


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
        **FIELDS.write(c),
        "is_encoder_decoder": True,
    }


def keymap(c: Config) -> KeyMap:
    rules, ignored = blocks("after"), ("encoder.embed_positions.weight", "decoder.embed_positions.weight")
    if c.shared or not c.tied:
        return tied(*rules, ignored=ignored) if c.tied else untied(*rules, ignored=ignored)
    words = (Rule(SOURCE, "encoder.embed.token.weight"), Rule(TARGET, "decoder.embed.token.weight"))
    return KeyMap(
        (*words, *rules, BIAS), ("model.", ""), ignored, ties={OUTPUT: TARGET}, absent={BIAS.theirs: (TARGET, zeros)}
    )
