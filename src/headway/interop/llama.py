"""Llama in Hugging Face's layout, and what Mistral, Mixtral, Qwen2 and Phi-3 share with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from headway.errors import UserError
from headway.interop.config_reader import ACTIVATION, ConfigMap, Field, Options, refuse_fields, written_as
from headway.interop.decoders import HEAD, prefixes, read_top, settle, write_top
from headway.interop.keymap import KeyMap, Rule
from headway.interop.keymap import linear as plain_linear
from headway.interop.rotary import read_frequencies, write_frequencies
from headway.nn.attention import share
from headway.zoo import mixtral, olmo, qwen2_moe
from headway.zoo.choices import check_range, window_of
from headway.zoo.llama import Config, gated_hidden

__all__ = ["keymap", "read_config", "settle", "write_config"]

# what all these architectures have; where a default is None, the others say it
FIELDS = ConfigMap(
    Field("vocab_size", "vocab", 32_000),
    Field("max_position_embeddings", "context"),
    Field("hidden_size", "dim", 4096),
    Field("num_hidden_layers", "layers", 32),
    Field("num_attention_heads", "heads", 32),
    Field("num_key_value_heads", "kv_heads", None),
    Field("head_dim", "head_dim", None),
    Field("intermediate_size", "hidden"),
    Field("hidden_act", "act", "silu", ACTIVATION),
    Field("rms_norm_eps", "eps"),
)
# our name of whether attention and feed-forward layers have biases
SETS = {(False, False): "none", (True, False): "attention", (False, True): "ffn", (True, True): "all"}
# what the other library takes where an option is absent; where it is null, it may take something else
ABSENT = {"max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "intermediate_size": 11_008, "rope_theta": 10_000.0}


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options({**ABSENT, **values}, "llama")
    biases = SETS[o.take("attention_bias", False), o.take("mlp_bias", False)]
    return o.done(Config(**read_decoder(o), **named_top(o, "Llama"), biases=biases))


def write_config(c: Config) -> dict[str, Any]:
    """A Llama's config; a Mistral's or a Qwen2's where there is a window, or a bias, that no Llama has."""
    refuse_others(c, "Llama", "biases", "window", "local_layers")
    if c.biases == "qkv":
        return write_qwen2(c)
    if c.window is not None:
        return write_mistral(c)
    return {**write_named(c, "llama", "Llama"), **write_biases(c, "Llama")}


def write_biases(c: Config, name: str) -> dict[str, Any]:
    flags = next((flags for flags, biases in SETS.items() if biases == c.biases), None)
    if flags is None:
        raise UserError(f"there, a {name} has no biases of {c.biases!r}", allowed=", ".join(SETS.values()))
    return {"attention_bias": flags[0], "mlp_bias": flags[1]}


# fields that some of these families have, each with the family that it is written as
OTHERS = {
    "window": "mistral",
    "local_layers": "qwen2",
    "unplaced_layers": "smollm3",
    "biases": "qwen2",
    "qk_norm": "qwen3",
    "multipliers": "granite",
}


def refuse_others(c: Config, name: str, *known: str) -> None:
    """Refuses what a family does not compute there."""
    refuse_fields(c, name, {field: other for field, other in OTHERS.items() if field not in known})


def write_mistral(c: Config) -> dict[str, Any]:
    refuse_others(c, "Mistral", "biases", "window")
    if c.biases != "none":
        said = "there, a Mistral has no bias vectors and a Llama no window, and this model has both"
        raise UserError(said, do="keep it in headway's own layout")
    window = {"sliding_window": c.window}
    return {**write_named(c, "mistral", "Mistral"), **window}


def write_qwen2(c: Config) -> dict[str, Any]:
    if c.biases != "qkv":
        said = f"there, a Qwen2 has biases of queries, keys and values, and this model {c.biases!r}"
        raise UserError(said, do=written_as("llama"))
    refuse_others(c, "Qwen2", "biases", "window", "local_layers")
    return {**write_named(c, "qwen2", "Qwen2"), **write_windows(c)}


def read_windows(o: Options) -> dict[str, Any]:
    """The window, and the layers that have it, as Qwen2 and its like tell them."""
    layers, given = o.take("num_hidden_layers", 32), o.take("sliding_window", None)
    used, first = o.take("use_sliding_window", False), o.take("max_window_layers", 28)
    check_range("layers", layers, "num_hidden_layers")
    usual = [WINDOWED if used and given and i >= first else WHOLE for i in range(layers)]
    return {**local_layers(o, usual, given if used else None)}


def local_layers(o: Options, usual: list[str], window: int | None) -> dict[str, Any]:
    """Which layers have the window by `layer_types`; none, where there is none."""
    kinds = o.take("layer_types", usual)
    if set(kinds) - {WINDOWED, WHOLE} or len(kinds) != len(usual):
        allowed = f"{len(usual)} of {WINDOWED} and {WHOLE}"
        raise UserError(f"layer_types={kinds!r:.60} is not supported for {o.family} models", allowed=allowed)
    found = tuple(at for at, kind in enumerate(kinds) if kind == WINDOWED)
    if window is None or not found:
        return {"window": None}
    return {"window": window, "local_layers": None if len(found) == len(usual) else found}


def write_windows(c: Config) -> dict[str, Any]:
    windows = {"use_sliding_window": c.window is not None, "sliding_window": c.window, "max_window_layers": 0}
    return {**windows, "layer_types": layer_types(c)}


def layer_types(c: LocalLayers) -> list[str]:
    return [WHOLE if window_of(i, c.window, c.local_layers) is None else WINDOWED for i in range(c.layers)]


class LocalLayers(Protocol):
    """A config of which some layers have a window."""

    @property
    def layers(self) -> int: ...
    @property
    def window(self) -> int | None: ...
    @property
    def local_layers(self) -> tuple[int, ...] | None: ...


WINDOWED, WHOLE = "sliding_attention", "full_attention"


def keymap(c: Config | olmo.Config) -> KeyMap:
    ffn = (rule for part in ("gate", "up", "down") for rule in linear(f"mlp.{part}_proj", f"ffn.body.{part}"))
    return decoder_keymap(c.tied, *attention(), *ffn, top=c.top)


def named_top(o: Options, name: str) -> dict[str, Any]:
    """The top of a model whose classes begin with `name`."""
    return read_top(o, name, f"{name}ForCausalLM", tied=o.take("tie_word_embeddings", False))


def write_named(c: Config, model_type: str, name: str, *, parts: bool = False) -> dict[str, Any]:
    return {**write_top(c, model_type, name, f"{name}ForCausalLM"), **write_decoder(c, parts=parts)}


def read_decoder(o: Options, fields: ConfigMap = FIELDS, *, parts: bool = False) -> dict[str, Any]:
    """The fields that all these architectures have."""
    found = fields.read(o)
    return {
        **found,
        "kv_heads": o.take("num_key_value_heads", found["heads"]),
        "rotary": read_frequencies(o, found["context"], parts=parts),
        "tied": o.take("tie_word_embeddings", False),
        "attention_dropout": o.take("attention_dropout", 0.0),
    }


def write_decoder(c: Config | mixtral.Config | qwen2_moe.Config, *, parts: bool = False) -> dict[str, Any]:
    return {
        **FIELDS.write(c),
        "num_key_value_heads": c.heads if c.kv_heads is None else c.kv_heads,
        "head_dim": share(c.dim, c.heads) if c.head_dim is None else c.head_dim,
        "intermediate_size": gated_hidden(c.dim) if c.hidden is None else c.hidden,
        **write_frequencies(c.rotary, c.context, parts=parts),
        "tie_word_embeddings": c.tied,
        "attention_dropout": c.attention_dropout,
    }


def attention() -> tuple[Rule, ...]:
    projections = (("q_proj", "q"), ("k_proj", "k"), ("v_proj", "v"), ("o_proj", "out"))
    norms = (("q_norm", "q_norm"), ("k_norm", "k_norm"))
    pairs = (*projections, *norms)
    return tuple(rule for theirs, ours in pairs for rule in linear(f"self_attn.{theirs}", f"attn.body.{ours}"))


PRE_NORM = {"input_layernorm": "attn.before", "post_attention_layernorm": "ffn.before"}


def decoder_keymap(
    tied: bool, *layers: Rule, top: str = "words", norms: Mapping[str, str] = PRE_NORM, last: str = "norm"
) -> KeyMap:
    """Embedding, norms and head, with the rules of the attention and feed-forward layers given."""
    return KeyMap(
        rules=(
            Rule("embed_tokens.weight", "embed.token.weight"),
            *(rule for theirs, ours in norms.items() for rule in linear(theirs, ours)),
            *layers,
            *plain_linear(last, "stack.norm"),
            *HEAD,
        ),
        prefixes=prefixes("model.", top),
        ignored=("layers.*.self_attn.rotary_emb.inv_freq",),  # early conversions stored the frequencies
        ties={"lm_head.weight": "embed_tokens.weight"} if tied else None,
    )


def linear(theirs: str, ours: str) -> tuple[Rule, Rule]:
    """Weight and bias of a layer's part; a model without biases has none to rename."""
    weight, bias = (Rule(f"layers.*.{theirs}.{part}", f"stack.blocks.*.{ours}.{part}") for part in ("weight", "bias"))
    return weight, bias
