"""The text model of Gemma 3 in Hugging Face's layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.errors import UserError
from headway.interop.config_reader import Options, refuse_fields, written_as
from headway.interop.decoders import read_top, settle, write_top
from headway.interop.gemma import keymap, read_fields
from headway.interop.gemma2 import FIELDS, write_sandwich
from headway.interop.llama import WHOLE, WINDOWED, local_layers
from headway.interop.rotary import read_two_frequencies
from headway.zoo.gemma import Config
from headway.zoo.llama import Frequencies

__all__ = ["keymap", "read_config", "settle", "write_config"]

# what the other library takes where an option is absent
ABSENT = {
    "vocab_size": 262_208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-6,
    "sliding_window": 4096,
}


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options({**ABSENT, **values}, "gemma3_text")
    o.expect(hidden_activation="gelu_pytorch_tanh")
    o.ignore("hidden_act", "cache_implementation")  # the other library takes hidden_activation
    o.expect(attn_logit_softcapping=None)  # the other library does not cap scores, whatever the file says
    fields = read_fields(o, FIELDS)
    local_base = o.number("rope_local_base_freq", 10_000.0)
    both = read_two_frequencies(o, fields["context"], base=1_000_000.0, local_base=local_base)
    period = o.take("sliding_window_pattern", o.take("_sliding_window_pattern", 6))
    usual = [WINDOWED if (i + 1) % max(period, 1) else WHOLE for i in range(fields["layers"])]
    windows = local_layers(o, usual, o.take("sliding_window", None))
    top = read_top(o, "Gemma3Text", "Gemma3ForCausalLM", tied=True)
    return o.done(Config(**fields, **top, **windows, **both._asdict(), norms="sandwich", qk_norm=True))


def write_config(c: Config) -> dict[str, Any]:
    if c.norms != "sandwich" or not c.qk_norm:
        said = "there, a Gemma 3 norms changes, queries and keys, unlike this model"
        raise UserError(said, do=written_as("gemma2" if c.norms == "sandwich" else "gemma"))
    refuse_fields(c, "Gemma 3", {"score_cap": ""})
    local = c.rotary if c.local_rotary is None else c.local_rotary
    if local != Frequencies(local.base):
        do = "keep it in headway's own layout"
        raise UserError(f"there, layers with a window turn without a scaling, and here by {local}", do=do)
    base = {"rope_local_base_freq": local.base}
    return {**write_top(c, "gemma3_text", "Gemma3Text", "Gemma3ForCausalLM"), **write_sandwich(c), **base}
