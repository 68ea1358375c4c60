"""Llama, Mistral, Mixtral, Qwen2 and Phi-3, with the options their configs name."""

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
LONG = {"short_factor": [1.0, 1.1, 1.5, 2.0], "long_factor": [1.0, 2.0, 5.0, 9.0]}
ORIGINAL = "original_max_position_embeddings"
ROOM = {"attention_factor": 1.2, ORIGINAL: 9}
HALF = {
    "partial_rotary_factor": 0.5,
    "original_max_position_embeddings": 5,
    "rope_scaling": {"type": "longrope", "short_factor": [1.0, 1.1], "long_factor": [2.0, 5.0]},
}
TIED = {"tie_word_embeddings": True}
BETWEEN = {"truncate": False, "beta_fast": 2.0, "beta_slow": 0.2}  # a ramp from pair 0.16 to 1.64
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


def qwen2(**options: Any) -> Any:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    return Qwen2ForCausalLM._from_config(Qwen2Config(**SIZES | options), attn_implementation="eager")


def phi3(**options: Any) -> Any:
    from transformers import Phi3Config, Phi3ForCausalLM

    sizes = SIZES | {"pad_token_id": 0, "original_max_position_embeddings": 16}
    return Phi3ForCausalLM._from_config(Phi3Config(**sizes | options), attn_implementation="eager")


def topped(architecture: str, **options: Any) -> Any:
    """A decoder with another head than that of words, or none."""
    import transformers

    kind = getattr(transformers, architecture)
    config = kind.config_class(**SIZES | {"architectures": [architecture], "pad_token_id": 0} | options)
    return kind._from_config(config, attn_implementation="eager")


def rope(kind: str, **numbers: Any) -> dict[str, Any]:
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
    Case("llama, YaRN between pairs", lambda: llama(**rope("yarn", **YARN, **BETWEEN)), Kind.DECODER),
    Case("llama, LongRoPE, short", lambda: llama(**rope("longrope", **LONG, **ROOM)), Kind.DECODER),
    Case("llama, LongRoPE, long", lambda: llama(**rope("longrope", **LONG, **ROOM | {ORIGINAL: 8})), Kind.DECODER),
    Case("mistral, LongRoPE", lambda: mistral(**rope("longrope", **LONG, factor=3.0, **{ORIGINAL: 5})), Kind.DECODER),
    Case("mistral", lambda: mistral(sliding_window=None), Kind.DECODER),
    Case("mistral, window of 3", lambda: mistral(sliding_window=3), Kind.DECODER),
    Case("mixtral", mixtral, Kind.DECODER),
    Case("mixtral, window, tied", lambda: mixtral(sliding_window=4, tie_word_embeddings=True), Kind.DECODER),
    Case("mixtral, YaRN", lambda: mixtral(head_dim=8, **rope("yarn", **YARN)), Kind.DECODER),
    Case("mixtral, one expert of three", lambda: mixtral(num_local_experts=3, num_experts_per_tok=1), Kind.DECODER),
    Case("qwen2", qwen2, Kind.DECODER),
    Case("qwen2, tied, YaRN", lambda: qwen2(tie_word_embeddings=True, **rope("yarn", **YARN)), Kind.DECODER),
    Case(
        "qwen2, window of 3",
        lambda: qwen2(use_sliding_window=True, sliding_window=3, max_window_layers=0),
        Kind.DECODER,
    ),
    Case("phi3", phi3, Kind.DECODER),
    Case("phi3, LongRoPE, half of each head, window", lambda: phi3(sliding_window=4, **HALF), Kind.DECODER),
    Case("llama, classes of rows", lambda: topped("LlamaForSequenceClassification", num_labels=3), Kind.DECODER),
    Case("llama, bare", lambda: topped("LlamaModel"), Kind.DECODER),
    Case("mistral, classes of rows", lambda: topped("MistralForSequenceClassification"), Kind.DECODER),
    Case("qwen2, classes of rows", lambda: topped("Qwen2ForSequenceClassification", num_labels=1), Kind.DECODER),
    Case("phi3, classes of rows", lambda: topped("Phi3ForSequenceClassification", num_labels=3), Kind.DECODER),
    Case("phi3, a quarter of each head, tied", lambda: phi3(partial_rotary_factor=0.25, **TIED), Kind.DECODER),
]
