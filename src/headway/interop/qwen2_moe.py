"""Qwen2-MoE in Hugging Face's layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.errors import UserError
from headway.interop.config_reader import ConfigMap, Field, Options, without_aliases
from headway.interop.keymap import KeyMap
from headway.interop.llama import (
    WHOLE,
    WINDOWED,
    attention,
    decoder_keymap,
    layer_types,
    linear,
    local_layers,
    read_decoder,
    write_decoder,
)
from headway.interop.qwen3_moe import ALIASES, GATED, expert_rules
from headway.zoo.choices import check_range
from headway.zoo.qwen2_moe import Config

# what the other library takes where an option is absent; where it is null, kv_heads = heads
ABSENT = {
    "vocab_size": 151_936,
    "hidden_size": 2048,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "intermediate_size": 5632,
    "max_position_embeddings": 32_768,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10_000.0,
}
EXPERTS = ConfigMap(
    Field("num_experts", "experts", 60),
    Field("num_experts_per_tok", "top", 4),
    Field("moe_intermediate_size", "expert_hidden", 1408),
    Field("shared_expert_intermediate_size", "shared_hidden", 5632),
)
GATES = {False: "all", True: "chosen"}


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options({**ABSENT, **without_aliases(values, ALIASES, "qwen2_moe")}, "qwen2_moe")
    o.architecture("Qwen2MoeForCausalLM", "Qwen2MoeModel")
    o.expect(qkv_bias=True)
    o.ignore("output_router_logits", "router_aux_loss_coef")
    found = read_decoder(o)
    dense, windows = read_dense_layers(o, found["layers"]), read_windows(o, found["layers"])
    gates = GATES[o.take("norm_topk_prob", False)]
    return o.done(Config(**found, **EXPERTS.read(o), **windows, dense_layers=dense, gates=gates))


def read_dense_layers(o: Options, layers: int) -> tuple[int, ...]:
    """The layers without experts: those that are listed, and all but each `decoder_sparse_step`-th."""
    listed, step = o.sizes("mlp_only_layers", []), o.take("decoder_sparse_step", 1)
    check_range("layers", step, "decoder_sparse_step")
    if any(not 0 <= at < layers for at in listed):
        raise UserError(f"mlp_only_layers={list(listed)!r:.60} in config.json", allowed=f"0 to {layers - 1}")
    return tuple(at for at in range(layers) if at in listed or (at + 1) % step)


def read_windows(o: Options, layers: int) -> dict[str, Any]:
    """The window, and the layers that have it: where nothing else is told, every second of the first ones."""
    used, window = o.take("use_sliding_window", False), o.take("sliding_window", 4096)
    last = o.take("max_window_layers", 28)
    usual = [WINDOWED if used and at % 2 == 0 and at < last else WHOLE for at in range(layers)]
    return local_layers(o, usual, window if used else None)


def write_config(c: Config) -> dict[str, Any]:
    return {
        "model_type": "qwen2_moe",
        "architectures": ["Qwen2MoeForCausalLM"],
        **write_decoder(c),
        **EXPERTS.write(c),
        "mlp_only_layers": list(c.dense_layers),
        "decoder_sparse_step": 1,
        "norm_topk_prob": c.gates == "chosen",
        "use_sliding_window": c.window is not None,
        "sliding_window": c.window,
        "layer_types": layer_types(c),
    }


DENSE = {"mlp.shared_expert": "ffn.body.shared.expert", "mlp": "ffn.body"}


def keymap(c: Config) -> KeyMap:
    pairs = ((f"{there}.{part}_proj", f"{ours}.{part}") for there, ours in DENSE.items() for part in GATED)
    return decoder_keymap(
        c.tied,
        *attention(),
        *expert_rules("stack.blocks.*.ffn.body.routed", "layers.*.mlp", c.experts),
        *linear("mlp.shared_expert_gate", "ffn.body.shared.gate"),
        *(rule for pair in pairs for rule in linear(*pair)),
    )
