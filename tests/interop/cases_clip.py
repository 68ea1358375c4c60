"""CLIP, with the options its configs name."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.interop.parity import Case, Kind

TEXT = {
    "vocab_size": 99,
    "max_position_embeddings": 12,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "eos_token_id": 98,
    "bos_token_id": 97,
}
IMAGE = {
    "image_size": 12,
    "patch_size": 4,
    "hidden_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 28,
}


def clip(act: str = "quick_gelu", width: int = 14, **text: Any) -> Any:
    from transformers import CLIPConfig, CLIPModel

    towers = {"text_config": {**TEXT, "hidden_act": act, **text}, "vision_config": {**IMAGE, "hidden_act": act}}
    return CLIPModel._from_config(CLIPConfig(**towers, projection_dim=width), attn_implementation="eager")


def tower(architecture: str, **options: Any) -> Any:
    """One tower alone, by the name of its class."""
    import transformers

    kind = getattr(transformers, architecture)
    sizes = {**(TEXT if "Text" in architecture else IMAGE), "projection_dim": 14, "architectures": [architecture]}
    return kind._from_config(kind.config_class(**sizes | options), attn_implementation="eager")


TOWERS = [f"CLIP{side}Model{head}" for side in ("Text", "Vision") for head in ("", "WithProjection")]
CASES = [
    *(Case(f"clip, {name}", partial(tower, name), Kind.TOWER) for name in TOWERS),
    Case("clip, CLIPTextModel, an old file's end", lambda: tower(TOWERS[0], eos_token_id=2), Kind.TOWER),
    Case("clip, CLIPVisionModel, GELU", lambda: tower(TOWERS[2], hidden_act="gelu"), Kind.TOWER),
    Case("clip", clip, Kind.TOWERS),
    Case("clip, GELU", lambda: clip("gelu", width=10), Kind.TOWERS),
    Case("clip, an old file's end", lambda: clip(eos_token_id=2), Kind.TOWERS),
]
