"""Llama in Hugging Face's layout, and what Mistral, Mixtral, Qwen2 and Phi-3 share with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.errors import UserError
from headway.interop.config_reader import ACTIVATION, ConfigMap, Field, Options, written_as
from headway.interop.decoders import HEAD, prefixes, read_top, settle, write_top
from headway.interop.keymap import KeyMap, Rule
from headway.interop.rotary import read_frequencies, write_frequencies
from headway.nn.attention import share
from headway.zoo import mixtral
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
    if c.biases == "qkv":
        return write_qwen2(c)
    if c.window is not None:
        return write_mistral(c)
    attention, ffn = next(flags for flags, name in SETS.items() if name == c.biases)
    biases = {"attention_bias": attention, "mlp_bias": ffn}
    return {**write_named(c, "llama", "Llama"), **biases}


def write_mistral(c: Config) -> dict[str, Any]:
    if c.biases != "none":
        said = "there, a Mistral has no bias vectors and a Llama no window, and this model has both"
        raise UserError(said, do="keep it in headway's own layout")
    window = {"sliding_window": c.window}
    return {**write_named(c, "mistral", "Mistral"), **window}


def write_qwen2(c: Config) -> dict[str, Any]:
    if c.biases != "qkv":
        said = f"there, a Qwen2 has biases of queries, keys and values, and this model {c.biases!r}"
        raise UserError(said, do=written_as("llama"))
    windows = {"use_sliding_window": c.window is not None, "sliding_window": c.window, "max_window_layers": 0}
    return {**write_named(c, "qwen2", "Qwen2"), **windows}


def keymap(c: Config) -> KeyMap:
    ffn = (rule for part in ("gate", "up", "down") for rule in linear(f"mlp.{part}_proj", f"ffn.body.{part}"))
    return decoder_keymap(c.tied, *attention(), *ffn, top=c.top)


def named_top(o: Options, name: str) -> dict[str, Any]:
    """The top of a model whose classes begin with `name`."""
    return read_top(o, name, f"{name}ForCausalLM", tied=o.take("tie_word_embeddings", False))


def write_named(c: Config, model_type: str, name: str, *, parts: bool = False) -> dict[str, Any]:
    return {**write_top(c, model_type, name, f"{name}ForCausalLM"), **write_decoder(c, parts=parts)}


def read_decoder(o: Options, *, parts: bool = False) -> dict[str, Any]:
    """The fields that all these architectures have."""
    found = FIELDS.read(o)
    return {
        **found,
        "kv_heads": o.take("num_key_value_heads", found["heads"]),
        "rotary": read_frequencies(o, found["context"], parts=parts),
        "tied": o.take("tie_word_embeddings", False),
        "attention_dropout": o.take("attention_dropout", 0.0),
    }


def write_decoder(c: Config | mixtral.Config, *, parts: bool = False) -> dict[str, Any]:
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
    return tuple(rule for theirs, ours in projections for rule in linear(f"self_attn.{theirs}", f"attn.body.{ours}"))


def decoder_keymap(tied: bool, *layers: Rule, top: str = "words") -> KeyMap:
    """Embedding, norms and head, with the rules of the attention and feed-forward layers given."""
    block = "stack.blocks.*"
    return KeyMap(
        rules=(
            Rule("embed_tokens.weight", "embed.token.weight"),
            Rule("layers.*.input_layernorm.weight", f"{block}.attn.before.weight"),
            Rule("layers.*.post_attention_layernorm.weight", f"{block}.ffn.before.weight"),
            *layers,
            Rule("norm.weight", "stack.norm.weight"),
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
