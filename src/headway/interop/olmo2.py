"""OLMo 2 in Hugging Face's layout, and what OLMo 3 shares with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.errors import UserError
from headway.interop.config_reader import Options, written_as
from headway.interop.decoders import read_top, settle, write_top
from headway.interop.keymap import KeyMap
from headway.interop.llama import FIELDS as LLAMA
from headway.interop.llama import attention, decoder_keymap, linear
from headway.interop.rotary import read_frequencies, write_frequencies
from headway.zoo.olmo2 import Config

__all__ = ["keymap", "read_config", "settle", "write_config"]

# what the other library takes where an option is absent
ABSENT = {
    "vocab_size": 50_304,
    "intermediate_size": 11_008,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10_000.0,
}
FIELDS = LLAMA.without("head_dim")
NORMS = {"post_attention_layernorm": "attn.inside", "post_feedforward_layernorm": "ffn.inside"}


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options({**ABSENT, **values}, "olmo2")
    fields = read_fields(o)
    rotary = read_frequencies(o, fields["context"])
    return o.done(Config(**fields, **read_top(o, "Olmo2", "Olmo2ForCausalLM", tied=fields["tied"]), rotary=rotary))


def read_fields(o: Options) -> dict[str, Any]:
    found = {"biased": o.take("attention_bias", False), "tied": o.take("tie_word_embeddings", False)}
    return {**FIELDS.read(o), **found, "attention_dropout": o.take("attention_dropout", 0.0)}


def write_config(c: Config) -> dict[str, Any]:
    if c.window is not None:
        raise UserError(f"there, an OLMo 2 has no window, and this model {c.window}", do=written_as("olmo3"))
    return {**write_top(c, "olmo2", "Olmo2", "Olmo2ForCausalLM"), **write_fields(c)}


def write_fields(c: Config) -> dict[str, Any]:
    found = {"attention_bias": c.biased, "tie_word_embeddings": c.tied, "attention_dropout": c.attention_dropout}
    special = {"pad_token_id": None, "eos_token_id": None}  # else some that may lie beyond the vocabulary
    return {**FIELDS.write(c), **found, **write_frequencies(c.rotary, c.context), **special}


def keymap(c: Config) -> KeyMap:
    ffn = (rule for part in ("gate", "up", "down") for rule in linear(f"mlp.{part}_proj", f"ffn.body.{part}"))
    return decoder_keymap(c.tied, *attention(), *ffn, top=c.top, norms=NORMS)
