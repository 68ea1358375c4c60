"""Llama, Mistral and Mixtral, with the options their configs name."""

from __future__ import annotations

from typing import Any

from tests.interop.parity import Case, Kind

SIZES = {
    "vocab_size": 99,
    "max_position_embeddings": 32,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
YARN = {"factor": 4.0, "original_max_position_embeddings": 16}


def llama(**options: Any) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM._from_config(LlamaConfig(**SIZES | options), attn_implementation="eager")


def mistral(**options: Any) -> Any:
    from transformers import MistralConfig, MistralForCausalLM

    return MistralForCausalLM._from_config(MistralConfig(**SIZES | options), attn_implementation="eager")


def mixtral(**options: Any) -> Any:
    from transformers import MixtralConfig, MixtralForCausalLM

    sizes = SIZES | {"num_local_experts": 4, "num_experts_per_tok": 2}
    return MixtralForCausalLM._from_config(MixtralConfig(**sizes | options), attn_implementation="eager")


def rope(kind: str, **numbers: float) -> dict[str, Any]:
    """In the older spelling; configs of today hold the newer."""
    return {"rope_theta": 500.0, "rope_scaling": {"rope_type": kind, **numbers}}


CASES = [
    Case("llama", llama, Kind.DECODER),
    Case(
        "llama, biased and tied",
        lambda: llama(attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
        Kind.DECODER,
    ),
    Case("llama, GELU, wide heads", lambda: llama(hidden_act="gelu", head_dim=16, rms_norm_eps=1e-3), Kind.DECODER),
    Case("llama, one kv-head", lambda: llama(num_key_value_heads=1, rope_theta=100.0), Kind.DECODER),
    Case("llama, linear scaling", lambda: llama(**rope("linear", factor=3.0)), Kind.DECODER),
    Case(
        "llama, dynamic scaling", lambda: llama(**rope("dynamic", factor=3.0), max_position_embeddings=5), Kind.DECODER
    ),
    Case("llama, llama3 scaling", lambda: llama(**rope("llama3", **LLAMA3)), Kind.DECODER),
    Case("llama, YaRN", lambda: llama(**rope("yarn", **YARN)), Kind.DECODER),
    Case("llama, YaRN, sharpened", lambda: llama(**rope("yarn", **YARN, mscale=0.7, mscale_all_dim=0.3)), Kind.DECODER),
    Case("mistral", lambda: mistral(sliding_window=None), Kind.DECODER),
    Case("mistral, window of 3", lambda: mistral(sliding_window=3), Kind.DECODER),
    Case("mixtral", mixtral, Kind.DECODER),
    Case("mixtral, window, tied", lambda: mixtral(sliding_window=4, tie_word_embeddings=True), Kind.DECODER),
    Case("mixtral, one expert of three", lambda: mixtral(num_local_experts=3, num_experts_per_tok=1), Kind.DECODER),
]
