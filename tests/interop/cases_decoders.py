"""Decoders of many families, with the options that their configs name."""

from __future__ import annotations

from typing import Any

from tests.interop.cases_llama import LLAMA3, SIZES, TIED, YARN, rope
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


def plain(name: str, architecture: str, sizes: dict[str, Any]) -> Case:
    """Of a family that calls its sizes otherwise."""

    def make() -> Any:
        import transformers

        kind = getattr(transformers, architecture)
        config = kind.config_class(vocab_size=99, **SPECIAL, **sizes, architectures=[architecture])
        return kind._from_config(config, attn_implementation="eager")

    return Case(name, make, Kind.DECODER)


def neox(name: str, architecture: str, **options: Any) -> Case:
    sizes = {name: size for name, size in SIZES.items() if name not in ("num_key_value_heads", "vocab_size", *SPECIAL)}
    return plain(name, architecture, sizes | options)


def gptj(name: str, architecture: str, **options: Any) -> Case:
    return plain(
        name, architecture, {"n_positions": 32, "n_embd": 32, "n_layer": 3, "n_head": 4, "rotary_dim": 4} | options
    )


def falcon(name: str, **options: Any) -> Case:
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "ffn_hidden_size": 40}
    return plain(name, "FalconForCausalLM", sizes | options)


def gpt_neo(name: str, architecture: str, **options: Any) -> Case:
    kinds = [[["global", "local"], 1], [["local"], 1]]
    sizes = {"max_position_embeddings": 32, "hidden_size": 16, "num_layers": 3, "num_heads": 4, "window_size": 3}
    return plain(name, architecture, {**sizes, "attention_types": kinds, **options})


def opt(name: str, architecture: str, **options: Any) -> Case:
    sizes = {"max_position_embeddings": 32, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4}
    return plain(name, architecture, {**sizes, "ffn_dim": 24, "word_embed_proj_dim": 16, **options})


def bloom(name: str, architecture: str, **options: Any) -> Case:
    return plain(name, architecture, {"hidden_size": 16, "n_layer": 3, "n_head": 4} | options)


def mpt(name: str, **options: Any) -> Case:
    return plain(name, "MptForCausalLM", {"d_model": 16, "n_layers": 3, "n_heads": 4} | options)


WINDOWS = {"use_sliding_window": True, "sliding_window": 3}
MULTIPLIERS = {
    "embedding_multiplier": 12.0,
    "residual_multiplier": 0.3,
    "attention_multiplier": 0.2,
    "logits_scaling": 7.0,
}

UNTIED = {"tie_word_embeddings": False}
CAPPED = {
    "head_dim": 16,
    "sliding_window": 3,
    "attn_logit_softcapping": 0.5,
    "final_logit_softcapping": 2.0,
    "query_pre_attn_scalar": 9,
}
UNCAPPED = {"head_dim": 8, "sliding_window": 4, "attn_logit_softcapping": None, "final_logit_softcapping": None}
GEMMA3 = {"head_dim": 8, "sliding_window": 3, "layer_types": [LOCAL, WHOLE, LOCAL], "query_pre_attn_scalar": 5}
HALF = {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5}
TWO_TURNS = {
    WHOLE: {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000.0},
    LOCAL: {"rope_type": "default", "rope_theta": 100.0},
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
    case("gemma", "GemmaForCausalLM", head_dim=16),
    case("gemma, classes of rows", "GemmaForSequenceClassification", num_labels=3),
    case("gemma2", "Gemma2ForCausalLM", **CAPPED),
    case("gemma2, no caps, other layers", "Gemma2ForCausalLM", **UNCAPPED, layer_types=[WHOLE, LOCAL, LOCAL]),
    case("gemma2, classes of rows", "Gemma2ForSequenceClassification", **CAPPED, num_labels=3),
    case("gemma3_text", "Gemma3ForCausalLM", **GEMMA3),
    case(
        "gemma3_text, a slower turn, capped logits",
        "Gemma3ForCausalLM",
        **GEMMA3,
        final_logit_softcapping=5.0,
        rope_parameters=TWO_TURNS,
    ),
    case("olmo2", "Olmo2ForCausalLM"),
    case(
        "olmo2, biased, tied, llama3 scaling",
        "Olmo2ForCausalLM",
        **TIED,
        attention_bias=True,
        **rope("llama3", **LLAMA3),
    ),
    case("olmo3", "Olmo3ForCausalLM", sliding_window=3, layer_types=[LOCAL, LOCAL, WHOLE]),
    case(
        "olmo3, YaRN", "Olmo3ForCausalLM", sliding_window=3, layer_types=[LOCAL, WHOLE, LOCAL], **rope("yarn", **YARN)
    ),
    neox("gpt_neox", "GPTNeoXForCausalLM"),
    neox(
        "gpt_neox, in turn, tied, half",
        "GPTNeoXForCausalLM",
        **TIED,
        use_parallel_residual=False,
        attention_bias=False,
        rope_parameters=HALF,
    ),
    neox("gpt_neox, classes of rows", "GPTNeoXForSequenceClassification", num_labels=3),
    gptj("gptj", "GPTJForCausalLM"),
    gptj("gptj, classes of rows, all turned", "GPTJForSequenceClassification", rotary_dim=8, n_inner=24),
    case("phi", "PhiForCausalLM"),
    case("phi, normed, one kv-head", "PhiForCausalLM", qk_layernorm=True, num_key_value_heads=1),
    case("stablelm", "StableLmForCausalLM"),
    case(
        "stablelm, side by side, biased, tied",
        "StableLmForCausalLM",
        **TIED,
        use_parallel_residual=True,
        use_qkv_bias=True,
    ),
    case("starcoder2", "Starcoder2ForCausalLM"),
    case("starcoder2, window, unbiased", "Starcoder2ForCausalLM", sliding_window=3, use_bias=False, **UNTIED),
    case("olmo", "OlmoForCausalLM"),
    case("olmo, biased, tied", "OlmoForCausalLM", **TIED, attention_bias=True),
    case("olmo, clipped", "OlmoForCausalLM", clip_qkv=0.1),
    falcon("falcon"),
    falcon("falcon, two norms, groups", new_decoder_architecture=True, num_kv_heads=2),
    falcon(
        "falcon, one norm, groups", new_decoder_architecture=True, num_kv_heads=2, num_ln_in_parallel_attn=1, bias=True
    ),
    falcon("falcon, in turn, biased, untied", parallel_attn=False, multi_query=False, bias=True, **UNTIED),
    gpt_neo("gpt_neo", "GPTNeoForCausalLM"),
    gpt_neo(
        "gpt_neo, classes of rows, all global", "GPTNeoForSequenceClassification", attention_types=[[["global"], 3]]
    ),
    opt("opt", "OPTForCausalLM"),
    opt("opt, classes of rows, GELU", "OPTForSequenceClassification", activation_function="gelu", num_labels=3),
    opt("opt, bare, untied", "OPTModel", **UNTIED),
    opt("opt, post-norm, narrow words", "OPTForCausalLM", do_layer_norm_before=False, word_embed_proj_dim=8),
    opt(
        "opt, narrow words, classes of rows",
        "OPTForSequenceClassification",
        word_embed_proj_dim=8,
        num_labels=3,
        **UNTIED,
    ),
    bloom("bloom", "BloomForCausalLM"),
    bloom("bloom, six heads, classes of rows", "BloomForSequenceClassification", n_head=6, hidden_size=24),
    mpt("mpt"),
    mpt("mpt, clipped", attn_config={"clip_qkv": 0.1}),
    mpt("mpt, six heads, untied", n_heads=6, d_model=24, **UNTIED),
    case("olmo3, classes of rows", "Olmo3ForSequenceClassification", sliding_window=3, num_labels=3),
]
