"""Gemma in Hugging Face's layout, and what Gemma 2 and 3 share with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.errors import UserError
from headway.interop.config_reader import ConfigMap, Options, refuse_fields, written_as
from headway.interop.decoders import read_top, settle, write_top
from headway.interop.keymap import KeyMap
from headway.interop.llama import FIELDS, PRE_NORM, attention, decoder_keymap, linear
from headway.interop.rotary import read_frequencies, write_frequencies
from headway.zoo.gemma import Config

__all__ = ["keymap", "read_config", "settle", "write_config"]

# what the other library takes where an option is absent
ABSENT = {
    "vocab_size": 256_000,
    "hidden_size": 3072,
    "intermediate_size": 24_576,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "head_dim": 256,
    "hidden_act": "gelu_pytorch_tanh",
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10_000.0,
}
LLAMA = FIELDS.without("act")


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options({**ABSENT, **values}, "gemma")
    o.expect(hidden_act="gelu_pytorch_tanh")
    o.ignore("hidden_activation")  # the other library takes hidden_act
    fields = read_fields(o, LLAMA)
    rotary = read_frequencies(o, fields["context"])
    top = read_top(o, "Gemma", "GemmaForCausalLM", tied=True)
    return o.done(Config(**fields, **top, rotary=rotary, norms="pre"))


def read_fields(o: Options, fields: ConfigMap) -> dict[str, Any]:
    """What all Gemmas have."""
    o.expect(use_bidirectional_attention=False, attention_bias=False, tie_word_embeddings=True)
    return {**fields.read(o), "attention_dropout": o.number("attention_dropout", 0.0)}


def write_config(c: Config) -> dict[str, Any]:
    if c.norms != "pre":
        raise UserError(f"there, a Gemma is pre-norm, and this model {c.norms!r}", do=written_as("gemma2"))
    others = ("window", "score_dim", "score_cap", "logit_cap", "qk_norm")
    refuse_fields(c, "Gemma", dict.fromkeys(others, ""))
    rotary = write_frequencies(c.rotary, c.context)
    return {
        **write_top(c, "gemma", "Gemma", "GemmaForCausalLM"),
        **write_fields(c, LLAMA),
        "hidden_act": "gelu_pytorch_tanh",
        **rotary,
    }


def write_fields(c: Config, fields: ConfigMap) -> dict[str, Any]:
    return {**fields.write(c), "tie_word_embeddings": True, "attention_dropout": c.attention_dropout}


def keymap(c: Config) -> KeyMap:
    ffn = (rule for part in ("gate", "up", "down") for rule in linear(f"mlp.{part}_proj", f"ffn.body.{part}"))
    norms = PRE_NORM if c.norms == "pre" else SANDWICH
    return decoder_keymap(True, *attention(), *ffn, top=c.top, norms=norms)


# of Gemma 2 and 3: their names, ours
SANDWICH = {
    "input_layernorm": "attn.before",
    "post_attention_layernorm": "attn.inside",
    "pre_feedforward_layernorm": "ffn.before",
    "post_feedforward_layernorm": "ffn.inside",
}
