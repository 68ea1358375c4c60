"""T5, mT5, BART and Marian, with the options their configs name."""

from __future__ import annotations

from typing import Any

from torch import nn

from tests.interop.parity import Case, Kind

T5 = {"vocab_size": 99, "d_model": 16, "d_kv": 5, "d_ff": 24, "num_layers": 3, "num_heads": 3}
PAIR = {
    "vocab_size": 99,
    "max_position_embeddings": 32,
    "d_model": 16,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 20,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 2,
    "pad_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": 2,
}


def t5(**options: Any) -> Any:
    from transformers import T5Config, T5ForConditionalGeneration

    return T5ForConditionalGeneration._from_config(T5Config(**T5 | options), attn_implementation="eager")


def t5_1_1(**options: Any) -> Any:
    """As loaded from the published files, whose output is a tensor of its own."""
    model = t5(feed_forward_proj="gated-gelu", tie_word_embeddings=False, **options)
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())
    return model


def mt5(**options: Any) -> Any:
    from transformers import MT5Config, MT5ForConditionalGeneration

    model = MT5ForConditionalGeneration._from_config(MT5Config(**T5, **options), attn_implementation="eager")
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())
    return model


def t5_encoder() -> Any:
    from transformers import T5Config, T5EncoderModel

    return T5EncoderModel._from_config(T5Config(**T5), attn_implementation="eager")


def bart(**options: Any) -> Any:
    from transformers import BartConfig, BartForConditionalGeneration

    config = BartConfig(**PAIR, **options)
    return biased(BartForConditionalGeneration._from_config(config, attn_implementation="eager"))


def bart_classifier(**options: Any) -> Any:
    from transformers import BartConfig, BartForSequenceClassification

    config = BartConfig(**PAIR | {"architectures": ["BartForSequenceClassification"], "num_labels": 3} | options)
    return BartForSequenceClassification._from_config(config, attn_implementation="eager")


def marian(**options: Any) -> Any:
    from transformers import MarianConfig, MarianMTModel

    return biased(MarianMTModel._from_config(MarianConfig(**PAIR, **options), attn_implementation="eager"))


def biased(model: Any) -> Any:
    """The bias of the output is a buffer there, and zero at first."""
    model.final_logits_bias.normal_()
    return model


CASES = [
    Case("t5 1.0", t5, Kind.SEQ2SEQ),
    Case(
        "t5 1.0, few buckets",
        lambda: t5(relative_attention_num_buckets=6, relative_attention_max_distance=5),
        Kind.SEQ2SEQ,
    ),
    Case("t5 1.1", t5_1_1, Kind.SEQ2SEQ),
    Case(
        "t5, gated SiLU, 1 decoder layer",
        lambda: t5(feed_forward_proj="gated-silu", num_decoder_layers=1),
        Kind.SEQ2SEQ,
    ),
    Case("mt5", mt5, Kind.SEQ2SEQ),
    Case("mt5, ReLU", lambda: mt5(feed_forward_proj="relu", num_decoder_layers=2), Kind.SEQ2SEQ),
    Case("t5 encoder", t5_encoder, Kind.ENCODER),
    Case("bart", bart, Kind.SEQ2SEQ),
    Case("bart, scaled, ReLU", lambda: bart(scale_embedding=True, activation_function="relu"), Kind.SEQ2SEQ),
    Case("bart, untied", lambda: bart(tie_word_embeddings=False), Kind.SEQ2SEQ),
    Case("bart, classes of rows", bart_classifier, Kind.REREAD),
    Case("marian", lambda: marian(scale_embedding=True, activation_function="swish"), Kind.SEQ2SEQ),
    Case(
        "marian, two vocabularies",
        lambda: marian(share_encoder_decoder_embeddings=False, decoder_vocab_size=120),
        Kind.SEQ2SEQ,
    ),
    Case("marian, untied", lambda: marian(tie_word_embeddings=False), Kind.SEQ2SEQ),
    Case(
        "marian, untied, two vocabularies",
        lambda: marian(tie_word_embeddings=False, share_encoder_decoder_embeddings=False, decoder_vocab_size=120),
        Kind.SEQ2SEQ,
    ),
]
