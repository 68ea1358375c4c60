"""Falcon in Hugging Face's layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.errors import UserError
from headway.interop.bloom import grouped_qkv
from headway.interop.config_reader import ACTIVATION, NUMBER, ConfigMap, Field, Options, without_aliases
from headway.interop.decoders import HEAD, prefixes, read_top, settle, write_top
from headway.interop.gpt_neox import check
from headway.interop.keymap import Grouped, KeyMap, Rule, linear, linears
from headway.interop.rotary import read_frequencies, write_frequencies
from headway.nn.ffn import ffn_width
from headway.zoo.gpt_neox import Config

__all__ = ["keymap", "read_config", "settle", "write_config"]

NAME, WORDS = "Falcon", "FalconForCausalLM"
FIELDS = ConfigMap(
    Field("vocab_size", "vocab", 65_024),
    Field("max_position_embeddings", "context", 2048),
    Field("hidden_size", "dim", 4544),
    Field("num_hidden_layers", "layers", 32),
    Field("num_attention_heads", "heads", 71),
    Field("ffn_hidden_size", "hidden", None),
    Field("activation", "act", "gelu", ACTIVATION),
    Field("layer_norm_epsilon", "eps", 1e-5),
    Field("hidden_dropout", "dropout", 0.0, NUMBER),
    Field("attention_dropout", "attention_dropout", 0.0, NUMBER),
    Field("tie_word_embeddings", "tied", True),
)
# early files
ALIASES = {
    "n_embed": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_head_kv": "num_kv_heads",
}
BIASES = {True: "all", False: "none"}
NORMS = {1: "parallel, one norm", 2: "parallel"}


def read_config(values: Mapping[str, Any]) -> Config:
    given = without_aliases(values, ALIASES, "falcon")
    o = Options({"rope_theta": 10_000.0, **given}, "falcon")
    o.expect(alibi=False)  # there, its slopes are rounded to 16 bits
    o.ignore("apply_residual_connection_post_layernorm")
    fields = FIELDS.read(o)
    heads, grouped = o.take("num_kv_heads", fields["heads"]), o.take("new_decoder_architecture", False)
    single, parallel = o.take("multi_query", True), o.take("parallel_attn", True)
    norms = o.take("num_ln_in_parallel_attn", 2 if grouped else 1)
    if norms not in NORMS or (norms == 2 and not grouped):
        allowed = "1, or 2 with new_decoder_architecture"
        raise UserError(f"num_ln_in_parallel_attn={norms} in config.json", allowed=allowed)
    if grouped and not parallel:
        raise UserError("parallel_attn=False with new_decoder_architecture is not supported for falcon models")
    kv_heads = heads if grouped or not single else 1
    chosen = {"order": NORMS[norms] if parallel else "sequential", "biases": BIASES[o.take("bias", False)]}
    top = read_top(o, NAME, WORDS, tied=fields["tied"])
    rotary = read_frequencies(o, fields["context"])
    return o.done(Config(**fields, **chosen, **top, kv_heads=kv_heads, rotary=rotary))


def write_config(c: Config) -> dict[str, Any]:
    kv_heads = kv_heads_of(c)
    chosen = {"biases": tuple(BIASES.values()), "kv_heads": (c.kv_heads,), "order": (*NORMS.values(), "sequential")}
    check(c, NAME, **chosen)
    grouped = c.order == "parallel" or (kv_heads not in (1, c.heads) and c.order != "sequential")
    if c.order == "sequential" and kv_heads not in (1, c.heads):
        said = f"there, a Falcon with sublayers in turn has one key for all heads or for each, and this one {kv_heads}"
        raise UserError(said, do="keep it in headway's own layout")
    return {
        **write_top(c, "falcon", NAME, WORDS),
        **FIELDS.write(c),
        **write_frequencies(c.rotary, c.context),
        "ffn_hidden_size": ffn_width(c.dim, c.hidden),
        "new_decoder_architecture": grouped,
        "num_ln_in_parallel_attn": {name: count for count, name in NORMS.items()}.get(c.order) if grouped else None,
        "multi_query": kv_heads == 1 and not grouped,
        "num_kv_heads": kv_heads,
        "parallel_attn": c.order != "sequential",
        "bias": c.biases == "all",
    }


def kv_heads_of(c: Config) -> int:
    return c.heads if c.kv_heads is None else c.kv_heads


PARTS = {
    "self_attention.dense": "attn.body.out",
    "mlp.dense_h_to_4h": "ffn.body.up",
    "mlp.dense_4h_to_h": "ffn.body.down",
}
ONE_NORM = {"input_layernorm": "attn.before", "post_attention_layernorm": "ffn.before"}
TWO_NORMS = {"ln_attn": "attn.before", "ln_mlp": "ffn.before"}


def keymap(c: Config) -> KeyMap:
    groups = kv_heads_of(c)
    norms = TWO_NORMS if c.order == "parallel" else ONE_NORM
    return KeyMap(
        rules=(
            Rule("word_embeddings.weight", "embed.token.weight"),
            *grouped_qkv("h.*.self_attention.query_key_value", Grouped(groups, (c.heads // groups, 1, 1))),
            *linears("h.*", "stack.blocks.*", PARTS | norms),
            *linear("ln_f", "stack.norm"),
            *HEAD,
        ),
        prefixes=prefixes("transformer.", c.top),
        ties={"lm_head.weight": "word_embeddings.weight"} if c.tied else None,
    )
