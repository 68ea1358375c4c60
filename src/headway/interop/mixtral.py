"""Mixtral in Hugging Face's layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.interop.config_reader import ConfigMap, Field, Options, refuse_fields
from headway.interop.keymap import KeyMap, Rule, Split, Unstack
from headway.interop.llama import attention, decoder_keymap, read_decoder, write_decoder
from headway.zoo.mixtral import Config

# what the other library takes where an option is absent; where it is null, kv_heads = heads
ABSENT = {
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-5,
    "intermediate_size": 14_336,
    "num_key_value_heads": 8,
    "rope_theta": 1e6,
}
FIELDS = ConfigMap(
    Field("num_local_experts", "experts"),
    Field("num_experts_per_tok", "top", 2),
    Field("sliding_window", "window", None),
)
EXPERT = {"w1": "gate", "w3": "up", "w2": "down"}


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options({**ABSENT, **values}, "mixtral")
    o.ignore("output_router_logits", "router_aux_loss_coef", "router_jitter_noise")
    fields = FIELDS.with_defaults(experts=o.take("num_experts", 8))
    return o.done(Config(**read_decoder(o), **fields.read(o)))


def write_config(c: Config) -> dict[str, Any]:
    refuse_fields(c, "Mixtral", {"qk_norm": "qwen3_moe"})
    return {
        "model_type": "mixtral",
        "architectures": ["MixtralForCausalLM"],
        **write_decoder(c),
        **FIELDS.write(c),
    }


def keymap(c: Config) -> KeyMap:
    """Published files hold each expert's matrices; `transformers` holds all of a layer's as one, and may save it so."""
    ours, there, held = "stack.blocks.*.ffn.body", "layers.*.block_sparse_moe", "layers.*.mlp"

    def every(part: str) -> tuple[str, ...]:
        return tuple(f"{ours}.experts.{expert}.{part}.weight" for expert in range(c.experts))

    return decoder_keymap(
        c.tied,
        *attention(),
        Rule(f"{there}.gate.weight", f"{ours}.router.weight"),
        *(Rule(f"{there}.experts.*.{w}.weight", f"{ours}.experts.*.{part}.weight") for w, part in EXPERT.items()),
        Rule(f"{held}.gate.weight", f"{ours}.router.weight"),
        Rule(f"{held}.experts.gate_up_proj", every("gate") + every("up"), (Split(2, 1), Unstack(c.experts))),
        Rule(f"{held}.experts.down_proj", every("down"), (Unstack(c.experts),)),
    )
