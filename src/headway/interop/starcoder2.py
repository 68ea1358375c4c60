"""StarCoder 2 in Hugging Face's layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.interop.config_reader import NUMBER, ConfigMap, Field, Options
from headway.interop.decoders import read_top, settle, write_top
from headway.interop.gpt_neox import SHARED, check
from headway.interop.keymap import KeyMap
from headway.interop.llama import attention, decoder_keymap, linear
from headway.interop.rotary import read_frequencies, write_frequencies
from headway.nn.ffn import ffn_width
from headway.zoo.gpt_neox import Config

__all__ = ["keymap", "read_config", "settle", "write_config"]

# what the other library takes where an option is absent; where it is null, kv_heads = heads
ABSENT = {
    "vocab_size": 49_152,
    "hidden_size": 3072,
    "intermediate_size": 12_288,
    "num_hidden_layers": 30,
    "num_attention_heads": 24,
    "num_key_value_heads": 2,
    "hidden_act": "gelu_pytorch_tanh",
    "max_position_embeddings": 4096,
    "rope_theta": 10_000.0,
}
FIELDS = ConfigMap(
    *SHARED.fields,
    Field("num_key_value_heads", "kv_heads", None),
    Field("norm_epsilon", "eps", 1e-5),
    Field("residual_dropout", "dropout", 0.0, NUMBER),
    Field("embedding_dropout", "embed_dropout", 0.0, NUMBER),
    Field("attention_dropout", "attention_dropout", 0.0, NUMBER),
    Field("sliding_window", "window", None),
    Field("tie_word_embeddings", "tied", True),
)
BIASES = {True: "all", False: "none"}


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options({**ABSENT, **values}, "starcoder2")
    o.expect(mlp_type="default", norm_type="layer_norm")
    fields = FIELDS.read(o)
    top = read_top(o, "Starcoder2", "Starcoder2ForCausalLM", tied=fields["tied"])
    chosen = {"order": "sequential", "biases": BIASES[o.take("use_bias", True)]}
    return o.done(Config(**fields, **chosen, **top, rotary=read_frequencies(o, fields["context"])))


def write_config(c: Config) -> dict[str, Any]:
    chosen = {"biases": tuple(BIASES.values()), "kv_heads": (c.kv_heads,), "window": (c.window,)}
    check(c, "StarCoder 2", order=("sequential",), embed_dropout=(c.embed_dropout,), **chosen)
    return {
        **write_top(c, "starcoder2", "Starcoder2", "Starcoder2ForCausalLM"),
        **FIELDS.write(c),
        **write_frequencies(c.rotary, c.context),
        "num_key_value_heads": c.heads if c.kv_heads is None else c.kv_heads,
        "intermediate_size": ffn_width(c.dim, c.hidden),
        "use_bias": c.biases == "all",
        "bos_token_id": None,  # else there are those of the published files, which may lie beyond the vocabulary
        "eos_token_id": None,
    }


def keymap(c: Config) -> KeyMap:
    ffn = (*linear("mlp.c_fc", "ffn.body.up"), *linear("mlp.c_proj", "ffn.body.down"))
    return decoder_keymap(c.tied, *attention(), *ffn, top=c.top)
