"""OLMo in Hugging Face's layout: a gated decoder whose norms learn nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.errors import UserError
from headway.interop.config_reader import ConfigMap, Field, Options
from headway.interop.decoders import read_top, settle, write_top
from headway.interop.gpt_neox import SHARED, check
from headway.interop.keymap import KeyMap
from headway.interop.llama import attention, decoder_keymap, linear
from headway.interop.rotary import read_frequencies, write_frequencies
from headway.nn.ffn import ffn_width
from headway.zoo.gpt_neox import Config

__all__ = ["keymap", "read_config", "settle", "write_config"]

# what the other library takes where an option is absent; kv_heads = heads
ABSENT = {
    "vocab_size": 50_304,
    "intermediate_size": 11_008,
    "max_position_embeddings": 2048,
    "rope_theta": 10_000.0,
}
FIELDS = ConfigMap(
    *SHARED.fields,
    Field("num_key_value_heads", "kv_heads", None),
    Field("attention_dropout", "attention_dropout", 0.0),
    Field("tie_word_embeddings", "tied", False),
    Field("clip_qkv", "clip", None),
)
BIASES = {True: "attention", False: "none"}
EPS = 1e-5


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options({**ABSENT, **values}, "olmo")
    fields = FIELDS.read(o)
    top = read_top(o, "Olmo", "OlmoForCausalLM", tied=fields["tied"])
    chosen = {"order": "sequential", "norm": "fixed", "ffn": "gated", "biases": BIASES[o.take("attention_bias", False)]}
    return o.done(Config(**fields, **chosen, **top, eps=EPS, rotary=read_frequencies(o, fields["context"])))


def write_config(c: Config) -> dict[str, Any]:
    chosen = {
        "biases": tuple(BIASES.values()),
        "kv_heads": (c.kv_heads,),
        "clip": (c.clip,),
        "norm": ("fixed",),
        "ffn": ("gated",),
    }
    check(c, "OLMo", order=("sequential",), dropout=(0.0,), **chosen)
    if c.eps != EPS:
        do = "keep it in headway's own layout"
        raise UserError(f"there, an OLMo's norms have eps {EPS}, and this model's {c.eps}", do=do)
    return {
        **write_top(c, "olmo", "Olmo", "OlmoForCausalLM"),
        **FIELDS.write(c),
        **write_frequencies(c.rotary, c.context),
        "intermediate_size": ffn_width(c.dim, c.hidden),
        "attention_bias": c.biases == "attention",
        "pad_token_id": None,  # else there are those of the published files, which may lie beyond the vocabulary
        "eos_token_id": None,
    }


def keymap(c: Config) -> KeyMap:
    ffn = (rule for part in ("gate", "up", "down") for rule in linear(f"mlp.{part}_proj", f"ffn.body.{part}"))
    return decoder_keymap(c.tied, *attention(), *ffn, top=c.top)
