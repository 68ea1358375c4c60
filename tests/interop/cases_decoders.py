"""Decoders of many families, with the options that their configs name."""

from __future__ import annotations

from typing import Any

from tests.interop.cases_llama import SIZES, YARN, rope
from tests.interop.parity import Case, Kind

LOCAL, WHOLE = "sliding_attention", "full_attention"
SPECIAL = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


def model(architecture: str, **options: Any) -> Any:
    import transformers

    kind = getattr(transformers, architecture)
    config = kind.config_class(**{**SIZES, **SPECIAL, **options}, architectures=[architecture])
    return kind._from_config(config, attn_implementation="eager")


def case(name: str, architecture: str, **options: Any) -> Case:
    return Case(name, lambda: model(architecture, **options), Kind.DECODER)


WINDOWS = {"use_sliding_window": True, "sliding_window": 3}
MULTIPLIERS = {
    "embedding_multiplier": 12.0,
    "residual_multiplier": 0.3,
    "attention_multiplier": 0.2,
    "logits_scaling": 7.0,
}

CASES = [
    case("qwen2, windows in some layers", "Qwen2ForCausalLM", **WINDOWS, max_window_layers=1),
    case("qwen3", "Qwen3ForCausalLM", head_dim=16),
    case(
        "qwen3, biased, tied, windows in some layers",
        "Qwen3ForCausalLM",
        **WINDOWS,
        max_window_layers=1,
        attention_bias=True,
        tie_word_embeddings=True,
    ),
    case("qwen3, classes of rows", "Qwen3ForSequenceClassification", num_labels=3, **rope("yarn", **YARN)),
    case("smollm3", "SmolLM3ForCausalLM", no_rope_layer_interval=2),
    case("smollm3, biased, a window", "SmolLM3ForCausalLM", **WINDOWS, no_rope_layers=[1, 0, 1], attention_bias=True),
    case("granite", "GraniteForCausalLM", **MULTIPLIERS),
    case("granite, biased, tied", "GraniteForCausalLM", attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
]
