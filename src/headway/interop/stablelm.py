"""StableLM in Hugging Face's layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.interop.config_reader import ConfigMap, Field, Options
from headway.interop.decoders import read_top, settle, write_top
from headway.interop.gpt_neox import FIELDS as NEOX
from headway.interop.gpt_neox import check
from headway.interop.keymap import KeyMap
from headway.interop.llama import attention, decoder_keymap, linear
from headway.interop.rotary import read_frequencies, write_frequencies
from headway.nn.ffn import ffn_width
from headway.zoo.gpt_neox import Config

__all__ = ["keymap", "read_config", "settle", "write_config"]

# what the other library takes where an option is absent; where it is null, kv_heads = heads
ABSENT = {
    "vocab_size": 50_304,
    "hidden_size": 2560,
    "intermediate_size": 6912,
    "num_key_value_heads": 32,
    "max_position_embeddings": 4096,
    "rope_theta": 10_000.0,
    "partial_rotary_factor": 0.25,
}
FIELDS = ConfigMap(*NEOX.fields, Field("num_key_value_heads", "kv_heads", None))
ORDERS = {True: "parallel, one norm", False: "sequential"}
BIASES = {True: "qkv", False: "none"}


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options({**ABSENT, **values}, "stablelm")
    o.expect(qk_layernorm=False)  # norms with other weights for each head
    fields = FIELDS.read(o)
    chosen = {"order": ORDERS[o.take("use_parallel_residual", False)], "biases": BIASES[o.take("use_qkv_bias", False)]}
    top = read_top(o, "StableLm", "StableLmForCausalLM", tied=fields["tied"])
    rotary = read_frequencies(o, fields["context"], parts=True)
    return o.done(Config(**fields, **chosen, **top, rotary=rotary, ffn="gated"))


def write_config(c: Config) -> dict[str, Any]:
    chosen = {"order": tuple(ORDERS.values()), "biases": tuple(BIASES.values()), "kv_heads": (c.kv_heads,)}
    check(c, "StableLM", ffn=("gated",), **chosen)
    return {
        **write_top(c, "stablelm", "StableLm", "StableLmForCausalLM"),
        **FIELDS.write(c),
        **write_frequencies(c.rotary, c.context, parts=True),
        "num_key_value_heads": c.heads if c.kv_heads is None else c.kv_heads,
        "intermediate_size": ffn_width(c.dim, c.hidden),
        "use_parallel_residual": c.order != "sequential",
        "use_qkv_bias": c.biases == "qkv",
    }


def keymap(c: Config) -> KeyMap:
    ffn = (rule for part in ("gate", "up", "down") for rule in linear(f"mlp.{part}_proj", f"ffn.body.{part}"))
    return decoder_keymap(c.tied, *attention(), *ffn, top=c.top)
