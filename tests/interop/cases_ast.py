"""The Audio Spectrogram Transformer, on patches that overlap and on such that do not."""

from __future__ import annotations

from typing import Any

from tests.interop.parity import Case, Kind

SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "patch_size": 4,
    "num_mel_bins": 10,
    "max_length": 14,
}


def case(name: str, architecture: str, **options: Any) -> Case:
    def make() -> Any:
        import transformers

        known = getattr(transformers, architecture)
        config = known.config_class(**{**SIZES, **options}, architectures=[architecture])
        return known._from_config(config, attn_implementation="eager")

    return Case(name, make, Kind.IMAGE)


OVERLAPPING = {"frequency_stride": 2, "time_stride": 3}
CASES = [
    case("audio-spectrogram-transformer", "ASTModel", **OVERLAPPING),
    case("audio-spectrogram-transformer, classes", "ASTForAudioClassification", num_labels=5, **OVERLAPPING),
    case("audio-spectrogram-transformer, no biases", "ASTModel", qkv_bias=False, frequency_stride=4, time_stride=4),
]
