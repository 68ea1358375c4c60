"""Qwen3-MoE in Hugging Face's layout: a Mixtral of small experts that norms the queries and keys of each head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.errors import UserError
from headway.interop.config_reader import ConfigMap, Field, Options, without_aliases, written_as
from headway.interop.keymap import KeyMap, Rule, Split, Unstack
from headway.interop.llama import FIELDS as LLAMA
from headway.interop.llama import attention, decoder_keymap, read_decoder, write_decoder
from headway.zoo.mixtral import Config

# what the other library takes where an option is absent; where it is null, kv_heads = heads
ABSENT = {
    "vocab_size": 151_936,
    "hidden_size": 2048,
    "num_hidden_layers": 24,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "max_position_embeddings": 32_768,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10_000.0,
}
FIELDS = ConfigMap(*LLAMA.without("hidden").fields, Field("moe_intermediate_size", "hidden", 768))
EXPERTS = ConfigMap(Field("num_experts", "experts", 128), Field("num_experts_per_tok", "top", 8))


ALIASES = {"num_local_experts": "num_experts"}


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options({**ABSENT, **without_aliases(values, ALIASES, "qwen3_moe")}, "qwen3_moe")
    o.architecture("Qwen3MoeForCausalLM", "Qwen3MoeModel")
    o.expect(attention_bias=False, decoder_sparse_step=1, mlp_only_layers=[])
    o.require("norm_topk_prob", True, default=False)
    o.ignore("output_router_logits", "router_aux_loss_coef", "intermediate_size", "max_window_layers")
    used = o.take("use_sliding_window", False)
    window = o.take("sliding_window", 4096 if used else None)
    found = read_decoder(o, FIELDS)
    return o.done(Config(**found, **EXPERTS.read(o), window=window if used else None, qk_norm="heads"))


def write_config(c: Config) -> dict[str, Any]:
    if c.qk_norm != "heads":
        raise UserError("there, a Qwen3-MoE norms queries and keys, and this model does not", do=written_as("mixtral"))
    sizes = write_decoder(c)
    sizes["moe_intermediate_size"] = sizes.pop("intermediate_size")
    names = {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "norm_topk_prob": True}
    windows = {"use_sliding_window": c.window is not None, "sliding_window": c.window}
    return {**names, **sizes, **EXPERTS.write(c), **windows}


def keymap(c: Config) -> KeyMap:
    return decoder_keymap(c.tied, *attention(), *expert_rules("stack.blocks.*.ffn.body", "layers.*.mlp", c.experts))


def expert_rules(ours: str, there: str, experts: int) -> tuple[Rule, ...]:
    """Published files hold each expert's matrices; `transformers` holds all of a layer's as one, and may save it so."""

    def every(part: str) -> tuple[str, ...]:
        return tuple(f"{ours}.experts.{expert}.{part}.weight" for expert in range(experts))

    apart = Unstack(experts)
    return (
        Rule(f"{there}.gate.weight", f"{ours}.router.weight"),
        *(Rule(f"{there}.experts.*.{part}_proj.weight", f"{ours}.experts.*.{part}.weight") for part in GATED),
        Rule(f"{there}.experts.gate_up_proj", every("gate") + every("up"), (Split(2, 1), apart)),
        Rule(f"{there}.experts.down_proj", every("down"), (apart,)),
    )


GATED = ("gate", "up", "down")
