"""SigLIP, with the options its configs name."""

from __future__ import annotations

from typing import Any

from tests.interop.cases_clip import IMAGE, TEXT
from tests.interop.parity import LENGTHS, Case, Kind

TEXTS = {**TEXT, "max_position_embeddings": LENGTHS[0], "pad_token_id": 3, "projection_size": IMAGE["hidden_size"]}


def siglip(**options: Any) -> Any:
    from transformers import SiglipConfig, SiglipModel

    config = SiglipConfig(text_config={**TEXTS, **options}, vision_config={**IMAGE, **options})
    return SiglipModel._from_config(config, attn_implementation="eager")


def tower(**options: Any) -> Any:
    from transformers import SiglipVisionConfig, SiglipVisionModel

    config = SiglipVisionConfig(**{**IMAGE, **options}, architectures=["SiglipVisionModel"])
    return SiglipVisionModel._from_config(config, attn_implementation="eager")


CASES = [
    Case("siglip", siglip, Kind.TOWERS),
    Case("siglip, ReLU", lambda: siglip(hidden_act="relu", layer_norm_eps=1e-4), Kind.TOWERS),
    Case("siglip_vision_model", tower, Kind.TOWER),
    Case("siglip_vision_model, patches that leave pixels", lambda: tower(patch_size=5), Kind.TOWER),
]
