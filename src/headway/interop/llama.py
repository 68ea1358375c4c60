"""Llama in Hugging Face's layout, and what Mistral and Mixtral share with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.errors import UserError
from headway.interop.keymap import KeyMap, Rule
from headway.interop.options import SPELLED, Options
from headway.interop.rotary import read_frequencies, write_frequencies
from headway.nn.attention import share
from headway.zoo import mixtral
from headway.zoo.llama import Config, gated_hidden

# what the other library takes where an option is absent; where it is null, it may take something else
ABSENT = {"max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "intermediate_size": 11_008, "rope_theta": 10_000.0}


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options({**ABSENT, **values}, "llama")
    attention_bias, ffn_bias = o.take("attention_bias", False), o.take("mlp_bias", False)
    config = Config(**read_decoder(o), attention_bias=attention_bias, ffn_bias=ffn_bias)
    o.done()
    return config


def write_config(c: Config) -> dict[str, Any]:
    """A Llama's config, or a Mistral's where there is a window, which no Llama has."""
    if c.window is not None:
        return write_mistral(c)
    biases = {"attention_bias": c.attention_bias, "mlp_bias": c.ffn_bias}
    return {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **write_decoder(c), **biases}


def write_mistral(c: Config) -> dict[str, Any]:
    if c.attention_bias or c.ffn_bias:
        said = "there, a Mistral has no bias vectors and a Llama no window, and this model has both"
        raise UserError(said, do="keep it in headway's own layout")
    window = {"sliding_window": c.window}
    return {"model_type": "mistral", "architectures": ["MistralForCausalLM"], **write_decoder(c), **window}


def keymap(c: Config) -> KeyMap:
    ffn = (rule for part in ("gate", "up", "down") for rule in linear(f"mlp.{part}_proj", f"ffn.body.{part}"))
    return decoder_keymap(c.tied, *ffn)


def read_decoder(o: Options) -> dict[str, Any]:
    """The fields that all three architectures have."""
    o.ignore("attention_dropout")
    heads, context = o.take("num_attention_heads", 32), o.need("max_position_embeddings")
    return {
        "vocab": o.take("vocab_size", 32_000),
        "context": context,
        "dim": o.take("hidden_size", 4096),
        "layers": o.take("num_hidden_layers", 32),
        "heads": heads,
        "kv_heads": o.take("num_key_value_heads", heads),
        "head_dim": o.take("head_dim", None),
        "hidden": o.need("intermediate_size"),
        "act": o.activation("hidden_act", "silu"),
        "eps": o.need("rms_norm_eps"),
        "rotary": read_frequencies(o, context),
        "tied": o.take("tie_word_embeddings", False),
    }


def write_decoder(c: Config | mixtral.Config) -> dict[str, Any]:
    return {
        "vocab_size": c.vocab,
        "max_position_embeddings": c.context,
        "hidden_size": c.dim,
        "num_hidden_layers": c.layers,
        "num_attention_heads": c.heads,
        "num_key_value_heads": c.heads if c.kv_heads is None else c.kv_heads,
        "head_dim": share(c.dim, c.heads) if c.head_dim is None else c.head_dim,
        "intermediate_size": gated_hidden(c.dim) if c.hidden is None else c.hidden,
        "hidden_act": SPELLED[c.act],
        "rms_norm_eps": c.eps,
        **write_frequencies(c.rotary, c.context),
        "tie_word_embeddings": c.tied,
    }


def decoder_keymap(tied: bool, *ffn: Rule) -> KeyMap:
    """Embedding, attention, norms and head, with the rules of the feed-forward layers given."""
    block = "stack.blocks.*"
    projections = (("q_proj", "q"), ("k_proj", "k"), ("v_proj", "v"), ("o_proj", "out"))
    return KeyMap(
        rules=(
            Rule("embed_tokens.weight", "embed.token.weight"),
            Rule("layers.*.input_layernorm.weight", f"{block}.attn.before.weight"),
            *(rule for theirs, ours in projections for rule in linear(f"self_attn.{theirs}", f"attn.body.{ours}")),
            Rule("layers.*.post_attention_layernorm.weight", f"{block}.ffn.before.weight"),
            *ffn,
            Rule("norm.weight", "stack.norm.weight"),
            Rule("lm_head.weight", "head.weight", outside=True),
        ),
        prefixes=("model.", ""),
        ignored=("layers.*.self_attn.rotary_emb.inv_freq",),  # early conversions stored the frequencies
        ties={"lm_head.weight": "embed_tokens.weight"} if tied else None,
    )


def linear(theirs: str, ours: str) -> tuple[Rule, Rule]:
    """Weight and bias of a layer's part; a model without biases has none to rename."""
    weight, bias = (Rule(f"layers.*.{theirs}.{part}", f"stack.blocks.*.{ours}.{part}") for part in ("weight", "bias"))
    return weight, bias
