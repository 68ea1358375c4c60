"""GPT-2 in Hugging Face's layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.interop.config_reader import SPELLED, Options
from headway.interop.keymap import KeyMap, Rule, Split, Transpose
from headway.zoo.gpt2 import Config


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(values, "gpt2")
    o.require("scale_attn_weights", True, default=True)
    o.require("scale_attn_by_inverse_layer_idx", False, default=False)
    o.ignore("reorder_and_upcast_attn", "n_ctx")
    config = Config(
        vocab=o.take("vocab_size", 50_257),
        context=o.take("n_positions", 1024),
        dim=o.take("n_embd", 768),
        layers=o.take("n_layer", 12),
        heads=o.take("n_head", 12),
        hidden=o.take("n_inner", None),
        act=o.activation("activation_function", "gelu_new"),
        eps=o.take("layer_norm_epsilon", 1e-5),
        dropout=o.take("resid_pdrop", 0.1),
        tied=o.take("tie_word_embeddings", True),
        attention_dropout=o.take("attn_pdrop", 0.1),
        embed_dropout=o.take("embd_pdrop", 0.1),
    )
    o.done()
    return config


def write_config(c: Config) -> dict[str, Any]:
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": c.vocab,
        "n_positions": c.context,
        "n_embd": c.dim,
        "n_layer": c.layers,
        "n_head": c.heads,
        "n_inner": c.hidden,
        "activation_function": SPELLED[c.act],
        "layer_norm_epsilon": c.eps,
        "resid_pdrop": c.dropout,
        "embd_pdrop": c.embed_dropout,
        "attn_pdrop": c.attention_dropout,
        "tie_word_embeddings": c.tied,
    }


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
            Rule("lm_head.weight", "head.weight", outside=True),
        ),
        prefixes=("transformer.", ""),
        ignored=("h.*.attn.bias", "h.*.attn.masked_bias"),
        ties={"lm_head.weight": "wte.weight"} if c.tied else None,
    )
