"""Models in GGUF as Hugging Face's layout has them, both ways: a table of options and a `KeyMap` for each architecture.

llama.cpp turns neighbouring dims of a Llama's queries and keys, and Hugging Face the halves of each head: their rows
are in another order.  A Gemma's norms have 1 added there, and a GPT-2's matrices are transposed as those of a linear
layer.  What an architecture of llama.cpp does not compute is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headway.errors import UserError, malformed
from headway.interop.gguf_file import GGUF, read_gguf
from headway.interop.keymap import KeyMap, Rule, Transpose
from headway.interop.llama import WHOLE, WINDOWED
from headway.interop.rotary import ORIGINAL
from headway.ops.rotary import Llama3, inverse_frequencies

Values = Mapping[str, Any]
FACTORS = "rope_freqs.weight"  # how many times slower each pair of dims turns
BIG_GEMMA = {"gemma2": 46, "gemma3": 62}  # layers of the 27B models, whose scores llama.cpp scales otherwise


@dataclass(frozen=True)
class Pairs:
    """Rows of each head as neighbouring pairs there, as halves here."""

    heads: int

    def load(self, tensors: list[Tensor]) -> list[Tensor]:
        if self.heads < 1 or len(tensors[0]) % (2 * self.heads):
            raise UserError(f"{self.heads} heads do not fit a tensor of {len(tensors[0])} rows")
        return [x.unflatten(0, (self.heads, -1, 2)).transpose(1, 2).flatten(0, 2) for x in tensors]

    def save(self, tensors: list[Tensor]) -> list[Tensor]:
        return [x.unflatten(0, (self.heads, 2, -1)).transpose(1, 2).flatten(0, 2) for x in tensors]


@dataclass(frozen=True)
class PlusOne:
    """A weight of which there is 1 more there."""

    def load(self, tensors: list[Tensor]) -> list[Tensor]:
        return [x.float() - 1 for x in tensors]

    def save(self, tensors: list[Tensor]) -> list[Tensor]:
        return [x.float() + 1 for x in tensors]


def named(theirs: str, ours: str, *changes: Any) -> tuple[Rule, ...]:
    """Weight and bias of a part of each layer; a bias is not transposed."""
    kept = tuple(one for one in changes if not isinstance(one, Transpose))
    return (
        Rule(f"blk.*.{theirs}.weight", f"{ours}.weight", changes),
        Rule(f"blk.*.{theirs}.bias", f"{ours}.bias", kept),
    )


def llama_rules(c: Values) -> tuple[Rule, ...]:
    queries, keys = Pairs(c["num_attention_heads"]), Pairs(c["num_key_value_heads"])
    return decoder_rules({"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}, (queries,), (keys,))


def qwen_rules(c: Values) -> tuple[Rule, ...]:
    return decoder_rules({"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"})


def gemma_rules(c: Values) -> tuple[Rule, ...]:
    names = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
    return decoder_rules(names, norm=(PlusOne(),))


def sandwich_rules(c: Values) -> tuple[Rule, ...]:
    names = {
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "post_attention_norm",
        "pre_feedforward_layernorm": "ffn_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
    }
    return decoder_rules(names, norm=(PlusOne(),))


def decoder_rules(
    norms: Mapping[str, str],
    queries: tuple[Pairs, ...] = (),
    keys: tuple[Pairs, ...] = (),
    norm: tuple[PlusOne, ...] = (),
) -> tuple[Rule, ...]:
    layer = "model.layers.*"
    return (
        Rule("token_embd.weight", "model.embed_tokens.weight"),
        Rule("output_norm.weight", "model.norm.weight", norm),
        Rule("output.weight", "lm_head.weight"),
        *(rule for ours, theirs in norms.items() for rule in named(theirs, f"{layer}.{ours}", *norm)),
        *named("attn_q", f"{layer}.self_attn.q_proj", *queries),
        *named("attn_k", f"{layer}.self_attn.k_proj", *keys),
        *named("attn_v", f"{layer}.self_attn.v_proj"),
        *named("attn_output", f"{layer}.self_attn.o_proj"),
        *named("attn_q_norm", f"{layer}.self_attn.q_norm", *norm),
        *named("attn_k_norm", f"{layer}.self_attn.k_norm", *norm),
        *(rule for part in ("gate", "up", "down") for rule in named(f"ffn_{part}", f"{layer}.mlp.{part}_proj")),
    )


def gpt2_rules(c: Values) -> tuple[Rule, ...]:
    turned = {
        "attn_qkv": "attn.c_attn",
        "attn_output": "attn.c_proj",
        "ffn_up": "mlp.c_fc",
        "ffn_down": "mlp.c_proj",
    }
    return (
        Rule("token_embd.weight", "transformer.wte.weight"),
        Rule("position_embd.weight", "transformer.wpe.weight"),
        Rule("output.weight", "lm_head.weight"),
        *(Rule(f"output_norm.{kind}", f"transformer.ln_f.{kind}") for kind in ("weight", "bias")),
        *named("attn_norm", "transformer.h.*.ln_1"),
        *named("ffn_norm", "transformer.h.*.ln_2"),
        *(rule for there, ours in turned.items() for rule in named(there, f"transformer.h.*.{ours}", Transpose())),
    )


SIZES = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
}
ROTARY = {
    **SIZES,
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.key_length": "head_dim",
    "rope.freq_base": "rope_theta",
}
WINDOW = {"attention.sliding_window": "sliding_window"}
CAPS = {"attn_logit_softcapping": "attn_logit_softcapping", "final_logit_softcapping": "final_logit_softcapping"}
LOCAL = {"rope.freq_base_swa": "rope_local_base_freq"}
GPT2 = {
    "context_length": "n_positions",
    "embedding_length": "n_embd",
    "block_count": "n_layer",
    "feed_forward_length": "n_inner",
    "attention.head_count": "n_head",
    "attention.layer_norm_epsilon": "layer_norm_epsilon",
}


class Architecture(NamedTuple):
    """One of llama.cpp's: its options, {GGUF's name: Hugging Face's}, its tensors, and what it is alone able to do."""

    model_type: str
    options: Mapping[str, str]
    rules: Callable[[Values], tuple[Rule, ...]]
    only: Mapping[str, object]  # option: the one value that llama.cpp computes
    period: int | None = None  # every so manyth layer has no window


TANH = {"hidden_activation": "gelu_pytorch_tanh"}
ARCHITECTURES = {
    "llama": Architecture("llama", ROTARY, llama_rules, {"hidden_act": "silu"}),
    "qwen2": Architecture("qwen2", ROTARY, qwen_rules, {"hidden_act": "silu", "sliding_window": None}),
    "qwen3": Architecture(
        "qwen3", ROTARY, qwen_rules, {"hidden_act": "silu", "sliding_window": None, "attention_bias": False}
    ),
    "gemma": Architecture("gemma", ROTARY, gemma_rules, {"hidden_act": "gelu_pytorch_tanh"}),
    "gemma2": Architecture("gemma2", {**ROTARY, **WINDOW, **CAPS}, sandwich_rules, TANH, 2),
    "gemma3": Architecture(
        "gemma3_text", {**ROTARY, **WINDOW, **LOCAL}, sandwich_rules, {**TANH, "final_logit_softcapping": None}, 6
    ),
    "gpt2": Architecture("gpt2", GPT2, gpt2_rules, {"activation_function": "gelu_new"}),
}
BY_TYPE = {**{one.model_type: name for name, one in ARCHITECTURES.items()}, "mistral": "llama"}


class HuggingFaceModel(NamedTuple):
    """What config.json and model.safetensors would hold, and the values of the file."""

    config: dict[str, Any]
    tensors: dict[str, Tensor]
    values: Values


def read_model(path: Path) -> HuggingFaceModel:
    file = read_gguf(path)
    name = file.values.get("general.architecture")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        do = "take the model in Hugging Face's layout, of which more families are read"
        raise UserError(
            f"{path} holds a model of the architecture {name!r:.60}", allowed=", ".join(ARCHITECTURES), do=do
        )
    with malformed(str(path)):
        config = read_options(file, name, path)
        tensors = file.load_tensors()
        factors = tensors.pop(FACTORS, None)
        if factors is not None:
            config["rope_scaling"] = own_factors(factors, config)
        return HuggingFaceModel(config, KeyMap(ARCHITECTURES[name].rules(config)).load(tensors), file.values)


def read_options(file: GGUF, name: str, path: Path) -> dict[str, Any]:
    """A config.json's options."""
    known, values = ARCHITECTURES[name], file.values
    found = {ours: values[f"{name}.{theirs}"] for theirs, ours in known.options.items() if f"{name}.{theirs}" in values}
    needed = [theirs for theirs in GPT2 if theirs in known.options and known.options[theirs] not in found]
    if needed or "token_embd.weight" not in file.tensors:
        lacking = f"no {name}.{needed[0]}" if needed else "no tensor token_embd.weight"
        raise UserError(f"{path} has {lacking}", do="fetch it again, or convert the model anew with llama.cpp")
    for option, value in found.items():
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise UserError(f"{path}: {option} is {value!r:.60}", allowed="one number for all layers")
    found["model_type"], found["vocab_size"] = known.model_type, file.tensors["token_embd.weight"].shape[0]
    ends = [values.get(f"tokenizer.ggml.{part}_token_id") for part in ("eos", "eot")]
    ends = list(dict.fromkeys(id for id in ends if isinstance(id, int) and id < found["vocab_size"]))
    found |= {"eos_token_id": ends if len(ends) > 1 else ends[0]} if ends else {}
    if known.options is GPT2:
        return {**found, "tie_word_embeddings": "output.weight" not in file.tensors}
    heads = max(found["num_attention_heads"], 1)
    found = {"num_key_value_heads": heads, "head_dim": found["hidden_size"] // heads, "rope_theta": 10_000.0, **found}
    turned = values.get(f"{name}.rope.dimension_count", found["head_dim"])
    if turned != found["head_dim"]:
        raise UserError(f"{path} turns {turned} of {found['head_dim']} dims of each head", allowed="all of them")
    if not name.startswith("gemma"):
        found["tie_word_embeddings"] = "output.weight" not in file.tensors
    if name == "llama":
        biases = {"attention_bias": "blk.0.attn_q.bias", "mlp_bias": "blk.0.ffn_up.bias"}
        found |= {option: tensor in file.tensors for option, tensor in biases.items()}
    if name in BIG_GEMMA:
        large = found["num_hidden_layers"] == BIG_GEMMA[name]
        found["query_pre_attn_scalar"] = found["hidden_size"] // heads if large else found["head_dim"]
    return {**found, "rope_scaling": read_scaling(values, name, path)}


def read_scaling(values: Values, name: str, path: Path) -> dict[str, Any] | None:
    kind, factor = values.get(f"{name}.rope.scaling.type", "none"), values.get(f"{name}.rope.scaling.factor", 1.0)
    if kind == "none" or factor == 1.0:
        return None
    if kind not in ("linear", "yarn"):
        raise UserError(f"{path} scales rotary frequencies as {kind!r:.60}", allowed="none, linear, yarn")
    told = {"rope_type": kind, "factor": factor}
    original = values.get(f"{name}.rope.scaling.original_context_length")
    return {**told, "original_max_position_embeddings": original} if original and kind == "yarn" else told


def own_factors(factors: Tensor, config: Values) -> dict[str, Any]:
    """Llama 3's frequencies, of which the file has the factors alone."""
    each = [float(x) for x in factors.float()]
    whole = {
        "factor": 1.0,
        "attention_factor": 1.0,
        "original_max_position_embeddings": config["max_position_embeddings"],
    }
    return {"rope_type": "longrope", **whole, "short_factor": each, "long_factor": each}


def written_model(config: Values, tensors: Mapping[str, Tensor]) -> tuple[dict[str, object], dict[str, Tensor]]:
    """A config.json's options and its tensors as GGUF's values and tensors."""
    model_type, name = config["model_type"], BY_TYPE.get(config["model_type"])
    if name is None:
        raise UserError(
            f"a model of type {model_type!r} is not written as GGUF", allowed=", ".join(BY_TYPE), do="use --to hf"
        )
    known = ARCHITECTURES[name]
    top = config["architectures"][0]
    if not top.endswith(("ForCausalLM", "LMHeadModel")):
        raise UserError(f"a {top} is not written as GGUF", allowed="language models", do="use --to hf")
    window = config.get("sliding_window")
    if name == "llama" and window is not None and window < config["max_position_embeddings"]:
        raise UserError(f"llama.cpp computes a {model_type} without its window of {window}", do="use --to hf")
    wrong = [option for option, value in known.only.items() if config.get(option, value) != value]
    if known.period and config["layer_types"] != layer_types(config, known.period):
        wrong.append("layer_types")
    if name in BIG_GEMMA:
        large = config["num_hidden_layers"] == BIG_GEMMA[name]
        scale = config["hidden_size"] / config["num_attention_heads"] if large else config["head_dim"]
        wrong += ["query_pre_attn_scalar"] if config["query_pre_attn_scalar"] != scale else []
    if wrong:
        said = f"llama.cpp computes no {model_type} with {wrong[0]}={config[wrong[0]]!r:.60}"
        raise UserError(said, do="use --to hf")
    found = {theirs: config.get(ours) for theirs, ours in known.options.items()}
    found = {theirs: float(x) if is_real(theirs) else x for theirs, x in found.items() if x is not None}
    if known.options is GPT2:
        found.setdefault("feed_forward_length", 4 * config["n_embd"])
    else:
        scaling, factors = write_scaling(config, name)
        found |= {"attention.value_length": config["head_dim"], "rope.dimension_count": config["head_dim"], **scaling}
        found["vocab_size"] = config["vocab_size"]
        tensors = {**tensors, **factors}
    keymap = KeyMap((*known.rules(config), Rule(FACTORS, FACTORS)))
    return {"general.architecture": name, **{f"{name}.{key}": value for key, value in found.items()}}, keymap.save(
        tensors
    )


def layer_types(config: Values, period: int) -> list[str]:
    return [WINDOWED if (i + 1) % period else WHOLE for i in range(config["num_hidden_layers"])]


def is_real(name: str) -> bool:
    return name.endswith(("epsilon", "freq_base", "freq_base_swa", "softcapping", "factor"))


def write_scaling(config: Values, name: str) -> tuple[dict[str, object], dict[str, Tensor]]:
    """A scaling of rotary frequencies as values, or as a tensor of factors."""
    told, head_dim, base = config.get("rope_scaling"), config["head_dim"], config["rope_theta"]
    factors: Tensor | None = None
    match told:
        case None:
            return {}, {}
        case {"rope_type": "linear", "factor": factor, **rest} if not rest:
            return {"rope.scaling.type": "linear", "rope.scaling.factor": float(factor)}, {}
        case {
            "rope_type": "yarn",
            "factor": factor,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "original_max_position_embeddings": original,
            **rest,
        } if not rest:
            scaling = {"type": "yarn", "factor": float(factor), "original_context_length": original}
            return {f"rope.scaling.{key}": value for key, value in scaling.items()}, {}
        case {"rope_type": "llama3"}:
            at = torch.zeros(1, 1)
            numbers = (told[key] for key in ("factor", "low_freq_factor", "high_freq_factor", ORIGINAL))
            factors = inverse_frequencies(head_dim, base, at) / Llama3(*numbers).frequencies(head_dim, base, at)
        case {"rope_type": "longrope", "attention_factor": 1.0, "short_factor": short, "long_factor": long}:
            factors = torch.tensor(short) if short == long else None
        case _:
            pass
    if factors is None or name != "llama":
        kind = told.get("rope_type") if isinstance(told, Mapping) else told
        raise UserError(
            f"this scaling of rotary frequencies ({kind}) has no place in a GGUF of {name}", do="use --to hf"
        )
    return {}, {FACTORS: factors}
