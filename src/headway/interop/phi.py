"""Phi-1, Phi-1.5 and Phi-2 in Hugging Face's layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.interop.config_reader import NUMBER, ConfigMap, Field, Options
from headway.interop.decoders import HEAD, prefixes, read_top, settle, write_top
from headway.interop.gpt_neox import SHARED, check
from headway.interop.keymap import KeyMap, Rule, linear, linears
from headway.interop.rotary import read_frequencies, write_frequencies
from headway.nn.ffn import ffn_width
from headway.zoo.gpt_neox import Config

__all__ = ["keymap", "read_config", "settle", "write_config"]

# what the other library takes where an option is absent; where it is null, kv_heads = heads
ABSENT = {
    "vocab_size": 51_200,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 24,
    "num_attention_heads": 32,
    "hidden_act": "gelu_new",
    "max_position_embeddings": 2048,
    "rope_theta": 10_000.0,
    "partial_rotary_factor": 0.5,
}
FIELDS = ConfigMap(
    *SHARED.fields,
    Field("num_key_value_heads", "kv_heads", None),
    Field("layer_norm_eps", "eps", 1e-5),
    Field("resid_pdrop", "dropout", 0.0, NUMBER),
    Field("embd_pdrop", "embed_dropout", 0.0, NUMBER),
    Field("attention_dropout", "attention_dropout", 0.0, NUMBER),
    Field("tie_word_embeddings", "tied", False),
)
NORMS = {True: "affine, queries and keys", False: "affine"}


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options({**ABSENT, **values}, "phi")
    o.expect(tie_word_embeddings=False)  # its output has a bias of its own
    fields = FIELDS.read(o)
    norm = NORMS[o.take("qk_layernorm", False)]
    top = read_top(o, "Phi", "PhiForCausalLM", tied=fields["tied"])
    rotary = read_frequencies(o, fields["context"], parts=True)
    plain = {"order": "parallel, one norm", "head_bias": top["top"] == "words"}
    return o.done(Config(**fields, **plain, **top, rotary=rotary, norm=norm))


def write_config(c: Config) -> dict[str, Any]:
    heads = {
        "head_bias": (c.top == "words",),
        "tied": (False,),
        "kv_heads": (c.kv_heads,),
        "norm": tuple(NORMS.values()),
    }
    check(c, "Phi", order=("parallel, one norm",), biases=("all",), embed_dropout=(c.embed_dropout,), **heads)
    return {
        **write_top(c, "phi", "Phi", "PhiForCausalLM"),
        **FIELDS.write(c),
        **write_frequencies(c.rotary, c.context, parts=True),
        "intermediate_size": ffn_width(c.dim, c.hidden),
        "qk_layernorm": c.norm != "affine",
    }


PARTS = {
    "input_layernorm": "attn.before",
    "self_attn.q_proj": "attn.body.q",
    "self_attn.k_proj": "attn.body.k",
    "self_attn.v_proj": "attn.body.v",
    "self_attn.dense": "attn.body.out",
    "self_attn.q_layernorm": "attn.body.q_norm",
    "self_attn.k_layernorm": "attn.body.k_norm",
    "mlp.fc1": "ffn.body.up",
    "mlp.fc2": "ffn.body.down",
}


def keymap(c: Config) -> KeyMap:
    return KeyMap(
        rules=(
            Rule("embed_tokens.weight", "embed.token.weight"),
            *linears("layers.*", "stack.blocks.*", PARTS),
            *linear("final_layernorm", "stack.norm"),
            *HEAD,
            Rule("lm_head.bias", "head.bias", outside=True),
        ),
        prefixes=prefixes("model.", c.top),
    )
