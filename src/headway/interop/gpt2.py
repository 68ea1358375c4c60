"""GPT-2 in Hugging Face's layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.interop.config_reader import ACTIVATION, ConfigMap, Field, Options, refuse_fields, without_aliases
from headway.interop.decoders import HEAD, prefixes, read_top, settle, write_top
from headway.interop.keymap import KeyMap, Rule, Split, Transpose
from headway.zoo.gpt2 import Config

__all__ = ["keymap", "read_config", "settle", "write_config"]

NAME, WORDS = "GPT2", "GPT2LMHeadModel"
FIELDS = ConfigMap(
    Field("vocab_size", "vocab", 50_257),
    Field("n_positions", "context", 1024),
    Field("n_embd", "dim", 768),
    Field("n_layer", "layers", 12),
    Field("n_head", "heads", 12),
    Field("n_inner", "hidden", None),
    Field("activation_function", "act", "gelu_new", ACTIVATION),
    Field("layer_norm_epsilon", "eps", 1e-5),
    Field("resid_pdrop", "dropout", 0.1),
    Field("embd_pdrop", "embed_dropout", 0.1),
    Field("attn_pdrop", "attention_dropout", 0.1),
    Field("tie_word_embeddings", "tied", True),
)
ALIASES = {
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(without_aliases(values, ALIASES, "gpt2"), "gpt2")
    o.expect(scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False)
    o.ignore("reorder_and_upcast_attn", "n_ctx")
    fields = FIELDS.read(o)
    return o.done(Config(**fields, **read_top(o, NAME, WORDS, tied=fields["tied"])))


def write_config(c: Config) -> dict[str, Any]:
    others = {
        **dict.fromkeys(("first", "order", "width"), "opt"),
        **dict.fromkeys(("window", "score", "biases"), "gpt_neo"),
    }
    refuse_fields(c, "GPT-2", others)
    return {**write_top(c, "gpt2", NAME, WORDS), **FIELDS.write(c)}


def keymap(c: Config) -> KeyMap:
    def both(theirs: str, ours: str | tuple[str, ...], *changes: Transpose | Split) -> tuple[Rule, Rule]:
        """Weight and bias; a bias is a vector, and is not transposed."""
        names = (ours,) if isinstance(ours, str) else ours
        kept = tuple(change for change in changes if not isinstance(change, Transpose))
        return (
            Rule(f"{theirs}.weight", tuple(f"{name}.weight" for name in names), changes),
            Rule(f"{theirs}.bias", tuple(f"{name}.bias" for name in names), kept),
        )

    block, turned = "stack.blocks.*", Transpose()  # GPT-2 stores Conv1D, the transpose of a linear layer's weight
    return KeyMap(
        rules=(
            Rule("wte.weight", "embed.token.weight"),
            Rule("wpe.weight", "embed.position.table.weight"),
            *both("h.*.ln_1", f"{block}.attn.before"),
            *both("h.*.attn.c_attn", tuple(f"{block}.attn.body.{part}" for part in "qkv"), turned, Split(3)),
            *both("h.*.attn.c_proj", f"{block}.attn.body.out", turned),
            *both("h.*.ln_2", f"{block}.ffn.before"),
            *both("h.*.mlp.c_fc", f"{block}.ffn.body.up", turned),
            *both("h.*.mlp.c_proj", f"{block}.ffn.body.down", turned),
            *both("ln_f", "stack.norm"),
            *HEAD,
        ),
        prefixes=prefixes("transformer.", c.top),
        ignored=("h.*.attn.bias", "h.*.attn.masked_bias"),
        ties={"lm_head.weight": "wte.weight"} if c.tied else None,
    )
