"""BLOOM in Hugging Face's layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.errors import UserError
from headway.interop.config_reader import (
    NUMBER,
    ConfigMap,
    Field,
    Options,
    refuse_fields,
    without_aliases,
    written_as,
)
from headway.interop.decoders import HEAD, prefixes, read_top, settle, write_top
from headway.interop.keymap import Grouped, KeyMap, Rule, linear, linears
from headway.nn.ffn import ffn_width
from headway.zoo.bloom import Config

__all__ = ["keymap", "read_config", "settle", "write_config"]

NAME, WORDS = "Bloom", "BloomForCausalLM"
FIELDS = ConfigMap(
    Field("vocab_size", "vocab", 250_880),
    Field("seq_length", "context", 2048),  # of training; not computed with
    Field("hidden_size", "dim", 64),
    Field("n_layer", "layers", 2),
    Field("n_head", "heads", 8),
    Field("layer_norm_epsilon", "eps", 1e-5),
    Field("hidden_dropout", "dropout", 0.0, NUMBER),
    Field("attention_dropout", "attention_dropout", 0.0, NUMBER),
    Field("tie_word_embeddings", "tied", True),
)
ALIASES = {"num_attention_heads": "n_head", "num_hidden_layers": "n_layer", "n_embed": "hidden_size"}


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(without_aliases(values, ALIASES, "bloom"), "bloom")
    o.expect(apply_residual_connection_post_layernorm=False)
    # another order of the same sums; what ran the training
    o.ignore("slow_but_exact", "pretraining_tp", "masked_softmax_fusion", "bias_dropout_fusion", "offset_alibi")
    o.ignore("attention_softmax_in_fp32", "skip_bias_add", "skip_bias_add_qkv", "unk_token_id")
    fields = FIELDS.read(o)
    return o.done(Config(**fields, **read_top(o, NAME, WORDS, tied=fields["tied"])))


def write_config(c: Config) -> dict[str, Any]:
    refuse_fields(c, "BLOOM", {"clip": "mpt"})
    plain = c.act == "gelu_tanh" and ffn_width(c.dim, c.hidden) == 4 * c.dim
    if not (c.biased and c.embed_norm and plain):
        said = "there, a BLOOM has biases, a norm behind the embedding, gelu_tanh and hidden = 4 · dim"
        raise UserError(f"{said}, unlike this model", do=written_as("mpt"))
    return {**write_top(c, "bloom", NAME, WORDS), **FIELDS.write(c)}


PARTS = {
    "input_layernorm": "attn.before",
    "self_attention.dense": "attn.body.out",
    "post_attention_layernorm": "ffn.before",
    "mlp.dense_h_to_4h": "ffn.body.up",
    "mlp.dense_4h_to_h": "ffn.body.down",
}


def keymap(c: Config) -> KeyMap:
    return KeyMap(
        rules=(
            Rule("word_embeddings.weight", "embed.token.weight"),
            *linear("word_embeddings_layernorm", "embed.norm"),
            *grouped_qkv("h.*.self_attention.query_key_value", Grouped(c.heads, (1, 1, 1))),
            *linears("h.*", "stack.blocks.*", PARTS),
            *linear("ln_f", "stack.norm"),
            *HEAD,
        ),
        prefixes=prefixes("transformer.", c.top),
        ties={"lm_head.weight": "word_embeddings.weight"} if c.tied else None,
    )


def grouped_qkv(theirs: str, change: Grouped) -> tuple[Rule, ...]:
    """Queries, keys and values that are projected by one matrix there, group by group of heads."""
    return tuple(
        Rule(f"{theirs}.{kind}", tuple(f"stack.blocks.*.attn.body.{part}.{kind}" for part in "qkv"), (change,))
        for kind in ("weight", "bias")
    )
