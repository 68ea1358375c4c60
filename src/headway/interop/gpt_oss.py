"""GPT-OSS in Hugging Face's layout, its experts as matrices; those in four bits (MXFP4) are not read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headway.errors import UserError
from headway.interop.config_reader import NUMBER, ConfigMap, Field, Options, without_aliases
from headway.interop.keymap import KeyMap, Rule, Transpose, Unstack
from headway.interop.llama import WHOLE, WINDOWED, attention, decoder_keymap, layer_types, linear, local_layers
from headway.interop.rotary import read_frequencies, write_frequencies
from headway.zoo.choices import check_range
from headway.zoo.gpt_oss import Config

FIELDS = ConfigMap(
    Field("vocab_size", "vocab", 201_088),
    Field("max_position_embeddings", "context", 131_072),
    Field("hidden_size", "dim", 2880),
    Field("num_hidden_layers", "layers", 36),
    Field("num_attention_heads", "heads", 64),
    Field("num_key_value_heads", "kv_heads", 8),
    Field("head_dim", "head_dim", 64),
    Field("intermediate_size", "hidden", 2880),
    Field("num_local_experts", "experts", 128),
    Field("num_experts_per_tok", "top", 4),
    Field("swiglu_limit", "limit", 7.0, NUMBER),
    Field("rms_norm_eps", "eps", 1e-5),
    Field("tie_word_embeddings", "tied", False),
    Field("attention_dropout", "attention_dropout", 0.0, NUMBER),
)
ALIASES = {"num_experts": "num_local_experts", "experts_per_token": "num_experts_per_tok"}
ROPE = {
    "rope_theta": 150_000.0,
    "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "truncate": False, "original_max_position_embeddings": 4096},
}


def read_config(values: Mapping[str, Any]) -> Config:
    if (packed := values.get("quantization_config")) is not None:
        method = packed.get("quant_method") if isinstance(packed, Mapping) else packed
        do = "load it in transformers with Mxfp4Config(dequantize=True) and save it with save_pretrained"
        raise UserError(f"weights quantised by {method!r} are not read", allowed="weights in bf16, fp16 or fp32", do=do)
    rope = {} if values.get("rope_parameters") or values.get("rope_scaling") else ROPE
    o = Options({**rope, **without_aliases(values, ALIASES, "gpt_oss")}, "gpt_oss")
    o.architecture("GptOssForCausalLM", "GptOssModel")
    o.expect(attention_bias=True, hidden_act="silu", swiglu_alpha=1.702)
    o.ignore("output_router_logits", "router_aux_loss_coef", "initial_context_length")
    found = FIELDS.read(o)
    check_range("layers", found["layers"], "num_hidden_layers")
    usual = [WHOLE if layer % 2 else WINDOWED for layer in range(found["layers"])]
    windows = local_layers(o, usual, o.take("sliding_window", None))
    return o.done(Config(**found, **windows, rotary=read_frequencies(o, found["context"])))


def write_config(c: Config) -> dict[str, Any]:
    return {
        "model_type": "gpt_oss",
        "architectures": ["GptOssForCausalLM"],
        **FIELDS.write(c),
        **write_frequencies(c.rotary, c.context),
        "attention_bias": True,
        "sliding_window": c.window,
        "layer_types": layer_types(c),
    }


def keymap(c: Config) -> KeyMap:
    """One tensor holds a matrix of all experts, transposed, the columns of gate and up in turn."""
    ours, there = "stack.blocks.*.ffn.body", "layers.*.mlp.experts"

    def every(kind: str, *parts: str) -> tuple[str, ...]:
        return tuple(f"{ours}.experts.{expert}.{part}.{kind}" for part in parts for expert in range(c.experts))

    apart = Unstack(c.experts)
    return decoder_keymap(
        c.tied,
        *attention(),
        Rule("layers.*.self_attn.sinks", "stack.blocks.*.attn.body.sink"),
        *linear("mlp.router", "ffn.body.router"),
        Rule(f"{there}.gate_up_proj", every("weight", "gate", "up"), (Interleaved(), apart, Transpose())),
        Rule(f"{there}.gate_up_proj_bias", every("bias", "gate", "up"), (Interleaved(), apart)),
        Rule(f"{there}.down_proj", every("weight", "down"), (apart, Transpose())),
        Rule(f"{there}.down_proj_bias", every("bias", "down"), (apart,)),
    )


@dataclass(frozen=True)
class Interleaved:
    """One tensor there, whose last axis has the entries of two here in turn."""

    def load(self, tensors: list[Tensor]) -> list[Tensor]:
        return list(tensors[0].unflatten(-1, (-1, 2)).unbind(-1))

    def save(self, tensors: list[Tensor]) -> list[Tensor]:
        return [torch.stack(tensors, -1).flatten(-2)]
