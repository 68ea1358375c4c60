"""BLIP: a ViT, and BERT's decoder that writes about what it sees."""

from __future__ import annotations

from typing import Any

from tests.interop.parity import Case, Kind

SIZES = {"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24}
IMAGE = {**SIZES, "hidden_size": 16, "image_size": 12, "patch_size": 4}
TEXT = {**SIZES, "hidden_size": 20, "vocab_size": 99, "max_position_embeddings": 40}
TOKENS = {"bos_token_id": 97, "sep_token_id": 3, "pad_token_id": 0}


def model(image: dict[str, Any] | None = None, **text: Any) -> Any:
    import transformers

    config = transformers.BlipConfig(
        vision_config={**IMAGE, **(image or {})},
        text_config={**TEXT, **TOKENS, **text},
        architectures=["BlipForConditionalGeneration"],
    )
    return transformers.BlipForConditionalGeneration._from_config(config, attn_implementation="eager")


CASES = [
    Case("blip", model, Kind.CAPTIONED),
    Case(
        "blip, other activations",
        lambda: model({"hidden_act": "quick_gelu", "layer_norm_eps": 1e-3}, hidden_act="relu", layer_norm_eps=1e-3),
        Kind.CAPTIONED,
    ),
]
