"""GPT-NeoX and Pythia in Hugging Face's layout, and what other decoders with LayerNorm share with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.errors import UserError
from headway.interop.bloom import grouped_qkv
from headway.interop.config_reader import NUMBER, ConfigMap, Field, Options, without_aliases, written_as
from headway.interop.decoders import HEAD, prefixes, read_top, settle, write_top
from headway.interop.keymap import Grouped, KeyMap, Rule, linear, linears
from headway.interop.llama import FIELDS as LLAMA
from headway.interop.rotary import read_frequencies, write_frequencies
from headway.nn.ffn import ffn_width
from headway.zoo.gpt_neox import Config

__all__ = ["keymap", "read_config", "settle", "write_config"]

# what the other library takes where an option is absent
ABSENT = {
    "vocab_size": 50_432,
    "hidden_size": 6144,
    "num_hidden_layers": 44,
    "num_attention_heads": 64,
    "intermediate_size": 24_576,
    "hidden_act": "gelu",
    "max_position_embeddings": 2048,
    "rope_theta": 10_000.0,
    "partial_rotary_factor": 0.25,
}
ALIASES = {"rotary_pct": "partial_rotary_factor", "rotary_emb_base": "rope_theta"}
SHARED = LLAMA.without("head_dim", "eps", "kv_heads")  # what all of them call the same
FIELDS = ConfigMap(
    *SHARED.fields,
    Field("layer_norm_eps", "eps", 1e-5),
    Field("hidden_dropout", "dropout", 0.0, NUMBER),
    Field("attention_dropout", "attention_dropout", 0.0, NUMBER),
    Field("tie_word_embeddings", "tied", False),
)
ORDERS = {True: "parallel", False: "sequential"}


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options({**ABSENT, **without_aliases(values, ALIASES, "gpt_neox")}, "gpt_neox")
    o.ignore("classifier_dropout")
    fields = FIELDS.read(o)
    biases = {True: "all", False: "ffn"}[o.take("attention_bias", True)]
    order = ORDERS[o.take("use_parallel_residual", True)]
    top = read_top(o, "GPTNeoX", "GPTNeoXForCausalLM", tied=fields["tied"])
    rotary = read_frequencies(o, fields["context"], parts=True)
    return o.done(Config(**fields, **top, rotary=rotary, biases=biases, order=order))


def write_config(c: Config) -> dict[str, Any]:
    check(c, "GPT-NeoX", order=("parallel", "sequential"), biases=("all", "ffn"))
    turns = write_frequencies(c.rotary, c.context, parts=True)
    return {
        **write_top(c, "gpt_neox", "GPTNeoX", "GPTNeoXForCausalLM"),
        **FIELDS.write(c),
        **{theirs: turns.pop(now) for theirs, now in ALIASES.items()},
        **turns,
        "intermediate_size": ffn_width(c.dim, c.hidden),
        "attention_bias": c.biases == "all",
        "use_parallel_residual": c.order == "parallel",
    }


# what most of these families compute; the others say what they do
USUAL: dict[str, tuple[object, ...]] = {
    "norm": ("affine",),
    "ffn": ("plain",),
    "layout": ("halves",),
    "window": (None,),
    "head_bias": (False,),
    "embed_dropout": (0.0,),
}
# where a choice belongs, {(field, value): model_type}
HOMES = {
    ("layout", "pairs"): "gptj",
    ("ffn", "gated"): "stablelm",
    ("head_bias", True): "phi",
    ("norm", "affine, queries and keys"): "phi",
}


def check(c: Config, name: str, **allowed: tuple[object, ...]) -> None:
    """Refuses what a family does not compute there."""
    kv_heads = {"kv_heads": (None, c.heads)} if "kv_heads" not in allowed else {}
    for field, values in {**USUAL, **kv_heads, **allowed}.items():
        if (value := getattr(c, field)) not in values:
            said = f"there, a {name} has {field} {' or '.join(repr(one) for one in values)}, and this model {value!r}"
            home = HOMES.get((field, value), "starcoder2" if field in ("window", "kv_heads") else "gpt_neox")
            raise UserError(said, do=written_as(home))


PARTS = {
    "input_layernorm": "attn.before",
    "attention.dense": "attn.body.out",
    "post_attention_layernorm": "ffn.before",
    "mlp.dense_h_to_4h": "ffn.body.up",
    "mlp.dense_4h_to_h": "ffn.body.down",
}


def keymap(c: Config) -> KeyMap:
    stored = ("attention.bias", "attention.masked_bias", "attention.rotary_emb.inv_freq")
    return KeyMap(
        rules=(
            Rule("embed_in.weight", "embed.token.weight"),
            *grouped_qkv("layers.*.attention.query_key_value", Grouped(c.heads, (1, 1, 1))),
            *linears("layers.*", "stack.blocks.*", PARTS),
            *linear("final_layer_norm", "stack.norm"),
            Rule("embed_out.weight", "head.weight", outside=True),  # in files; in memory as in other families
            *HEAD,
        ),
        prefixes=prefixes("gpt_neox.", c.top),
        ignored=tuple(f"layers.*.{name}" for name in stored),
        ties=dict.fromkeys(("embed_out.weight", "lm_head.weight"), "embed_in.weight") if c.tied else None,
    )
