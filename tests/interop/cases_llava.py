"""LLaVA: CLIP's tower of images, two layers, and a Llama."""

from __future__ import annotations

from typing import Any

from tests.interop.parity import Case, Kind

IMAGE = {
    **{"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4},
    **{"image_size": 12, "patch_size": 4},
}
TEXT = {
    **{"hidden_size": 24, "intermediate_size": 28, "num_hidden_layers": 2, "num_attention_heads": 4},
    **{"num_key_value_heads": 2, "vocab_size": 99, "max_position_embeddings": 64},
}


def model(text: dict[str, Any] | None = None, **options: Any) -> Any:
    import transformers

    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**IMAGE),
        text_config=transformers.LlamaConfig(**TEXT, **(text or {})),
        **{"image_token_index": 90, "image_seq_length": 9, "architectures": ["LlavaForConditionalGeneration"]},
        **options,
    )
    return transformers.LlavaForConditionalGeneration._from_config(config, attn_implementation="eager")


CASES = [
    Case("llava", model, Kind.ILLUSTRATED),
    Case(
        "llava, several layers, whole",
        lambda: model(vision_feature_layer=[-1, 1], vision_feature_select_strategy="full"),
        Kind.ILLUSTRATED,
    ),
    Case(
        "llava, tied, no biases",
        lambda: model({"tie_word_embeddings": True}, multimodal_projector_bias=False, projector_hidden_act="relu"),
        Kind.ILLUSTRATED,
    ),
]
