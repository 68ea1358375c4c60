"""Gemma 2 in Hugging Face's layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.errors import UserError
from headway.interop.config_reader import ConfigMap, Field, Options, written_as
from headway.interop.decoders import read_top, settle, write_top
from headway.interop.gemma import LLAMA, keymap, read_fields, write_fields
from headway.interop.llama import WHOLE, WINDOWED, layer_types, local_layers
from headway.interop.rotary import read_frequencies, write_frequencies
from headway.zoo.gemma import Config

__all__ = ["keymap", "read_config", "settle", "write_config"]

# what the other library takes where an option is absent
ABSENT = {
    "vocab_size": 256_000,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10_000.0,
    "sliding_window": 4096,
    "final_logit_softcapping": 30.0,
    "attn_logit_softcapping": 50.0,
}
FIELDS = ConfigMap(
    *LLAMA.fields,
    Field("query_pre_attn_scalar", "score_dim", 256),
    Field("attn_logit_softcapping", "score_cap", None),
    Field("final_logit_softcapping", "logit_cap", None),
)


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options({**ABSENT, **values}, "gemma2")
    top = read_top(o, "Gemma2", "Gemma2ForCausalLM", tied=True)
    return o.done(Config(**read_sandwich(o), **top))


def read_sandwich(o: Options) -> dict[str, Any]:
    """The fields of the layers."""
    o.expect(hidden_activation="gelu_pytorch_tanh")
    o.ignore("hidden_act", "cache_implementation")  # the other library takes hidden_activation
    fields = read_fields(o, FIELDS)
    rotary = read_frequencies(o, fields["context"])
    usual = [WHOLE if i % 2 else WINDOWED for i in range(fields["layers"])]
    windows = local_layers(o, usual, o.take("sliding_window", None))
    return {**fields, **windows, "rotary": rotary, "norms": "sandwich"}


def write_config(c: Config) -> dict[str, Any]:
    if c.norms != "sandwich":
        raise UserError(f"there, a Gemma 2 norms changes, and this model is {c.norms!r}", do=written_as("gemma"))
    if c.local_rotary not in (None, c.rotary) or c.qk_norm:
        said = "there, a Gemma 2 turns all layers alike and has no norm of queries and keys, unlike this model"
        raise UserError(said, do=written_as("gemma3_text"))
    return {**write_top(c, "gemma2", "Gemma2", "Gemma2ForCausalLM"), **write_sandwich(c)}


def write_sandwich(c: Config) -> dict[str, Any]:
    act = {"hidden_activation": "gelu_pytorch_tanh"}
    score = {"query_pre_attn_scalar": c.head_dim if c.score_dim is None else c.score_dim}
    windows = {"sliding_window": c.window, "layer_types": layer_types(c)}
    return {**write_fields(c, FIELDS), **act, **score, **windows, **write_frequencies(c.rotary, c.context)}
