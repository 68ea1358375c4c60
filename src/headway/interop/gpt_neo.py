"""GPT-Neo in Hugging Face's layout: a GPT-2 with a window in some layers, whose scores are not divided."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.errors import UserError
from headway.interop.config_reader import (
    ACTIVATION,
    NUMBER,
    ConfigMap,
    Field,
    Options,
    refuse_fields,
    without_aliases,
    written_as,
)
from headway.interop.decoders import HEAD, prefixes, read_top, settle, write_top
from headway.interop.keymap import KeyMap, Rule, linear, linears
from headway.zoo.choices import window_of
from headway.zoo.gpt2 import Config

__all__ = ["keymap", "read_config", "settle", "write_config"]

NAME, WORDS = "GPTNeo", "GPTNeoForCausalLM"
FIELDS = ConfigMap(
    Field("vocab_size", "vocab", 50_257),
    Field("max_position_embeddings", "context", 2048),
    Field("hidden_size", "dim", 2048),
    Field("num_layers", "layers", 24),
    Field("num_heads", "heads", 16),
    Field("intermediate_size", "hidden", None),
    Field("window_size", "window", 256),
    Field("activation_function", "act", "gelu_new", ACTIVATION),
    Field("layer_norm_epsilon", "eps", 1e-5),
    Field("resid_dropout", "dropout", 0.0, NUMBER),
    Field("embed_dropout", "embed_dropout", 0.0, NUMBER),
    Field("attention_dropout", "attention_dropout", 0.0, NUMBER),
    Field("tie_word_embeddings", "tied", True),
)
ALIASES = {"num_attention_heads": "num_heads", "num_hidden_layers": "num_layers"}
LOCAL, GLOBAL = "local", "global"


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(without_aliases(values, ALIASES, "gpt_neo"), "gpt_neo")
    o.ignore("attention_layers", "classifier_dropout")  # the former follows from attention_types
    fields = FIELDS.read(o)
    kinds = layer_kinds(o, fields["layers"])
    found = tuple(at for at, kind in enumerate(kinds) if kind == LOCAL)
    windows = {"local_layers": found} if found else {"window": None}
    top = read_top(o, NAME, WORDS, tied=fields["tied"])
    return o.done(Config(**{**fields, **windows}, **top, score=1.0, biases="out"))


def layer_kinds(o: Options, layers: int) -> list[str]:
    """Kinds of layers in turn, told by groups that are repeated: [[["global", "local"], 12]]."""
    told: Any = o.take("attention_types", [[[GLOBAL, LOCAL], 12]])
    try:
        kinds = [kind for group, times in told for _ in range(min(int(times), layers)) for kind in group]
    except (TypeError, ValueError):
        kinds = []
    if len(kinds) != layers or set(kinds) - {LOCAL, GLOBAL}:
        allowed = f'groups of "{GLOBAL}" and "{LOCAL}" with their numbers, {layers} layers in all'
        raise UserError(f"attention_types={told!r:.60} in config.json", allowed=allowed)
    return kinds


def write_config(c: Config) -> dict[str, Any]:
    refuse_fields(c, "GPT-Neo", dict.fromkeys(("first", "order", "width"), "opt"))
    if c.score != 1.0 or c.biases != "out":
        said = "there, a GPT-Neo divides no scores and adds no biases to queries, keys and values, unlike this model"
        raise UserError(said, do=written_as("gpt2"))
    windows = (window_of(layer, c.window, c.local_layers) for layer in range(c.layers))
    kinds = {"attention_types": [[[GLOBAL if window is None else LOCAL], 1] for window in windows]}
    window = {"window_size": 256 if c.window is None else c.window}
    return {**write_top(c, "gpt_neo", NAME, WORDS), **FIELDS.write(c), **window, **kinds}


PARTS = {
    "ln_1": "attn.before",
    "attn.attention.q_proj": "attn.body.q",
    "attn.attention.k_proj": "attn.body.k",
    "attn.attention.v_proj": "attn.body.v",
    "attn.attention.out_proj": "attn.body.out",
    "ln_2": "ffn.before",
    "mlp.c_fc": "ffn.body.up",
    "mlp.c_proj": "ffn.body.down",
}


def keymap(c: Config) -> KeyMap:
    return KeyMap(
        rules=(
            Rule("wte.weight", "embed.token.weight"),
            Rule("wpe.weight", "embed.position.table.weight"),
            *linears("h.*", "stack.blocks.*", PARTS),
            *linear("ln_f", "stack.norm"),
            *HEAD,
        ),
        prefixes=prefixes("transformer.", c.top),
        ignored=("h.*.attn.attention.bias", "h.*.attn.attention.masked_bias"),  # stored masks
        ties={"lm_head.weight": "wte.weight"} if c.tied else None,
    )
