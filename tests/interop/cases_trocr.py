"""TrOCR: vision-encoder-decoders of a ViT or a DeiT and its own decoder."""

from __future__ import annotations

from typing import Any

from tests.interop.cases_vit import SIZES
from tests.interop.parity import Case, Kind

WORDS = {
    "vocab_size": 99,
    "d_model": 20,
    "decoder_layers": 2,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 40,
    "cross_attention_hidden_size": SIZES["hidden_size"],
    "decoder_start_token_id": 2,
}


def model(encoder: str, options: dict[str, Any] | None = None, **words: Any) -> Any:
    import transformers

    eye = transformers.AutoConfig.for_model(encoder, **SIZES, **(options or {}))
    decoder = transformers.TrOCRConfig(**{**WORDS, **words}, is_decoder=True, add_cross_attention=True)
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(eye, decoder)
    config.architectures = ["VisionEncoderDecoderModel"]
    return transformers.VisionEncoderDecoderModel._from_config(config, attn_implementation="eager")


CASES = [
    Case("vision-encoder-decoder, vit", lambda: model("vit", {"qkv_bias": False}), Kind.PICTURED),
    Case(
        "vision-encoder-decoder, deit, scaled",
        lambda: model("deit", scale_embedding=True, activation_function="relu", tie_word_embeddings=False),
        Kind.PICTURED,
    ),
    Case(
        "vision-encoder-decoder, not normed, as wide",
        lambda: model("vit", d_model=16, cross_attention_hidden_size=None, layernorm_embedding=False),
        Kind.PICTURED,
    ),
]
