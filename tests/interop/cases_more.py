"""Encoders, encoder–decoders and mixtures beside BERT's, BART's and Mixtral's."""

from __future__ import annotations

from typing import Any

from tests.interop.cases_bert import SIZES as BERT
from tests.interop.cases_decoders import LOCAL, WHOLE
from tests.interop.cases_decoders import case as decoder
from tests.interop.cases_llama import YARN
from tests.interop.cases_seq2seq import PAIR, biased
from tests.interop.parity import Case, Kind

NARROW = {**BERT, "embedding_size": 8}
DISTANT = {name: size for name, size in BERT.items() if name != "type_vocab_size"}
DISENTANGLED = {
    **BERT,
    "type_vocab_size": 0,
    "relative_attention": True,
    "position_buckets": 4,
    "max_relative_positions": 8,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
}
FIRST_VERSION = {
    **{name: DISENTANGLED[name] for name in (*BERT, "relative_attention", "pos_att_type", "position_biased_input")},
    "max_relative_positions": 5,
}
MODERN = {
    **BERT,
    "local_attention": 4,
    "layer_types": [WHOLE, LOCAL, LOCAL],
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "cls_token_id": 1,
    "sep_token_id": 2,
}
WINDOWED = {**BERT, "type_vocab_size": 1, "attention_window": 4, "pad_token_id": 1, "sep_token_id": 2}
LONG = {"max_encoder_position_embeddings": 32, "max_decoder_position_embeddings": 24, "attention_window": 4}
SEGMENTED = {"vocab_size": 60, "d_model": 20, "n_layer": 3, "n_head": 4, "d_inner": 24}
EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "norm_topk_prob": True,
    "head_dim": 8,
}
SHARED = {
    **{name: size for name, size in EXPERTS.items() if name not in ("norm_topk_prob", "head_dim")},
    "shared_expert_intermediate_size": 20,
}
SINKS = {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 8, "sliding_window": 3}
MLA = {
    "num_key_value_heads": 4,
    "q_lora_rank": 12,
    "kv_lora_rank": 10,
    "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4,
    "v_head_dim": 5,
    "n_routed_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "n_group": 3,
    "topk_group": 2,
}
SHARP = {"rope_type": "yarn", "rope_theta": 1e4, **YARN, "mscale": 0.7, "mscale_all_dim": 0.7}


def model(architecture: str, sizes: dict[str, Any]) -> Any:
    import transformers

    kind = getattr(transformers, architecture)
    config = kind.config_class(**sizes, architectures=[architecture])
    return kind._from_config(config, attn_implementation="eager")


def encoder(name: str, architecture: str, sizes: dict[str, Any], **options: Any) -> Case:
    return Case(name, lambda: model(architecture, {**sizes, **options}), Kind.ENCODER)


SIDE = {
    "vocab_size": 80,
    "max_position_embeddings": 32,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "intermediate_size": 40,
    "query_pre_attn_scalar": 5,
    "sliding_window": 3,
    "attn_logit_softcapping": 2.0,
    "final_logit_softcapping": 3.0,
}


def t5gemma(name: str, decoder: dict[str, Any], **options: Any) -> Case:
    def make() -> Any:
        sizes = {"encoder": {**SIDE, **options}, "decoder": {**SIDE, **options, **decoder}, "vocab_size": 80}
        return model("T5GemmaForConditionalGeneration", sizes)

    return Case(name, make, Kind.SEQ2SEQ)


def pair(name: str, architecture: str, **options: Any) -> Case:
    def make() -> Any:
        made = model(architecture, {**PAIR, **options})
        return biased(made) if hasattr(made, "final_logits_bias") else made

    return Case(name, make, Kind.SEQ2SEQ)


CASES = [
    encoder("electra", "ElectraModel", NARROW),
    encoder("electra, masked words", "ElectraForMaskedLM", NARROW),
    encoder("electra, replaced words", "ElectraForPreTraining", BERT, embedding_size=16),
    encoder("electra, classes of rows", "ElectraForSequenceClassification", NARROW, num_labels=3, hidden_act="relu"),
    encoder("electra, classes of tokens", "ElectraForTokenClassification", NARROW, num_labels=4),
    encoder("electra, answer spans", "ElectraForQuestionAnswering", NARROW),
    encoder("mpnet", "MPNetModel", DISTANT),
    encoder("mpnet, masked words", "MPNetForMaskedLM", DISTANT, layer_norm_eps=1e-5),
    encoder("mpnet, classes of rows", "MPNetForSequenceClassification", DISTANT, num_labels=3),
    encoder("deberta-v2", "DebertaV2Model", DISENTANGLED),
    encoder("deberta-v2, masked words", "DebertaV2ForMaskedLM", DISENTANGLED, pos_att_type="p2c|c2p"),
    encoder("deberta-v2, classes of rows", "DebertaV2ForSequenceClassification", DISENTANGLED, num_labels=3),
    encoder(
        "deberta-v2, answer spans, positions", "DebertaV2ForQuestionAnswering", DISENTANGLED, position_biased_input=True
    ),
    encoder("deberta", "DebertaModel", FIRST_VERSION),
    encoder("deberta, masked words", "DebertaForMaskedLM", {**FIRST_VERSION, "max_relative_positions": -1}),
    encoder("deberta, classes of rows", "DebertaForSequenceClassification", FIRST_VERSION, num_labels=3),
    encoder("deberta, classes of tokens", "DebertaForTokenClassification", FIRST_VERSION, type_vocab_size=2),
    encoder(
        "deberta, answer spans, positions", "DebertaForQuestionAnswering", FIRST_VERSION, position_biased_input=True
    ),
    encoder("modernbert", "ModernBertModel", MODERN),
    encoder("modernbert, masked words", "ModernBertForMaskedLM", MODERN),
    encoder("modernbert, classes of rows", "ModernBertForSequenceClassification", MODERN, num_labels=3),
    encoder("modernbert, classes of means", "ModernBertForSequenceClassification", MODERN, classifier_pooling="mean"),
    encoder("modernbert, classes of tokens", "ModernBertForTokenClassification", MODERN, num_labels=4),
    encoder("longformer", "LongformerModel", WINDOWED),
    encoder("longformer, masked words", "LongformerForMaskedLM", WINDOWED, attention_window=[4, 8, 4]),
    encoder("longformer, classes of rows", "LongformerForSequenceClassification", WINDOWED, num_labels=3),
    encoder("longformer, classes of tokens", "LongformerForTokenClassification", WINDOWED, num_labels=4),
    encoder("xlnet", "XLNetModel", SEGMENTED),
    encoder("xlnet, words", "XLNetLMHeadModel", SEGMENTED, ff_activation="relu"),
    encoder("xlnet, classes of rows", "XLNetForSequenceClassification", SEGMENTED, num_labels=3, layer_norm_eps=1e-5),
    encoder("xlnet, classes of tokens", "XLNetForTokenClassification", SEGMENTED, num_labels=4),
    pair("led", "LEDForConditionalGeneration", **LONG),
    pair("led, windows of their own", "LEDForConditionalGeneration", **{**LONG, "attention_window": [4, 8, 4]}),
    t5gemma("t5gemma", {}),
    t5gemma("t5gemma, a small decoder", {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 6}),
    t5gemma(
        "t5gemma, all whole, no caps",
        {"sliding_window": 5, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
        layer_types=[WHOLE] * 3,
        attn_logit_softcapping=None,
        final_logit_softcapping=None,
    ),
    pair("mbart", "MBartForConditionalGeneration", scale_embedding=True),
    pair("m2m_100", "M2M100ForConditionalGeneration"),
    pair("pegasus", "PegasusForConditionalGeneration", activation_function="relu"),
    decoder("qwen3_moe", "Qwen3MoeForCausalLM", **EXPERTS),
    decoder(
        "qwen3_moe, window, tied",
        "Qwen3MoeForCausalLM",
        **EXPERTS,
        use_sliding_window=True,
        sliding_window=3,
        tie_word_embeddings=True,
    ),
    decoder("qwen2_moe", "Qwen2MoeForCausalLM", **SHARED),
    decoder(
        "qwen2_moe, some layers dense and some local, tied",
        "Qwen2MoeForCausalLM",
        **SHARED,
        decoder_sparse_step=2,
        use_sliding_window=True,
        sliding_window=3,
        norm_topk_prob=True,
        tie_word_embeddings=True,
    ),
    decoder("qwen2_moe, listed layers dense", "Qwen2MoeForCausalLM", **SHARED, mlp_only_layers=[0, 2]),
    decoder("gpt_oss", "GptOssForCausalLM", **SINKS),
    decoder(
        "gpt_oss, all whole, plain frequencies, tied",
        "GptOssForCausalLM",
        **SINKS,
        layer_types=[WHOLE] * 3,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4},
        tie_word_embeddings=True,
    ),
    decoder("deepseek_v3", "DeepseekV3ForCausalLM", **MLA),
    decoder(
        "deepseek_v3, halves, YaRN, whole queries, two shared",
        "DeepseekV3ForCausalLM",
        **{**MLA, "q_lora_rank": None, "n_shared_experts": 2},
        rope_interleave=False,
        rope_parameters=SHARP,
    ),
    decoder("deepseek_v2", "DeepseekV2ForCausalLM", **MLA, attention_bias=True),
    decoder(
        "deepseek_v2, groups, YaRN",
        "DeepseekV2ForCausalLM",
        **MLA,
        topk_method="group_limited_greedy",
        routed_scaling_factor=4.0,
        rope_parameters=SHARP,
    ),
]
