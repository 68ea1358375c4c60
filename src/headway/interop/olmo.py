"""OLMo in Hugging Face's layout: a gated decoder whose norms learn nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.interop.config_reader import ConfigMap, Field, Options
from headway.interop.decoders import read_top, settle, write_top
from headway.interop.llama import FIELDS as LLAMA
from headway.interop.llama import keymap
from headway.interop.rotary import read_frequencies, write_frequencies
from headway.zoo.olmo import Config

__all__ = ["keymap", "read_config", "settle", "write_config"]

# what the other library takes where an option is absent; kv_heads = heads
ABSENT = {
    "vocab_size": 50_304,
    "intermediate_size": 11_008,
    "max_position_embeddings": 2048,
    "rope_theta": 10_000.0,
}
FIELDS = ConfigMap(
    *LLAMA.without("head_dim", "eps").fields,
    Field("attention_bias", "biased", False),
    Field("attention_dropout", "attention_dropout", 0.0),
    Field("clip_qkv", "clip", None),
    Field("tie_word_embeddings", "tied", False),
)


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options({**ABSENT, **values}, "olmo")
    fields = FIELDS.read(o)
    top = read_top(o, "Olmo", "OlmoForCausalLM", tied=fields["tied"])
    return o.done(Config(**fields, **top, rotary=read_frequencies(o, fields["context"])))


def write_config(c: Config) -> dict[str, Any]:
    return {
        **write_top(c, "olmo", "Olmo", "OlmoForCausalLM"),
        **FIELDS.write(c),
        **write_frequencies(c.rotary, c.context),
        "pad_token_id": None,  # else there are those of the published files, which may lie beyond the vocabulary
        "eos_token_id": None,
    }
