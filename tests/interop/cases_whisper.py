"""Whisper, with the options its configs name."""

from __future__ import annotations

from typing import Any

from tests.interop.parity import Case, Kind

WHISPER = {
    "vocab_size": 99,
    "num_mel_bins": 6,
    "max_source_positions": 8,
    "max_target_positions": 20,
    "d_model": 16,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 20,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 2,
    "pad_token_id": 1,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 3,
    "begin_suppress_tokens": [4],
}


def whisper(**options: Any) -> Any:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(**(WHISPER | options))
    return WhisperForConditionalGeneration._from_config(config, attn_implementation="eager")


CASES = [
    Case("whisper", whisper, Kind.SOUND),
    Case("whisper, turbo's shape", lambda: whisper(num_mel_bins=10, decoder_layers=1), Kind.SOUND),
    Case("whisper, ReLU", lambda: whisper(activation_function="relu", scale_embedding=True), Kind.SOUND),
]
