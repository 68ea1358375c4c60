"""Swin and Swin-V2 at sizes where nothing is padded: there the libraries agree."""

from __future__ import annotations

from typing import Any

import torch

from tests.interop.parity import Case, Kind

SIZES = {
    "image_size": 32,
    "patch_size": 2,
    "embed_dim": 8,
    "depths": [2, 2, 2],
    "num_heads": [1, 2, 4],
    "window_size": 4,
}


def case(name: str, architecture: str, **options: Any) -> Case:
    # of Swin-V2 the reference's own gradients are 1.1e-5 off in single precision, where a processor has AVX-512
    precision = torch.float64 if architecture.startswith("Swinv2") else torch.float32
    return Case(name, lambda: model(architecture, **options), Kind.PYRAMID, precision)


def model(architecture: str, **options: Any) -> Any:
    import transformers

    kind = getattr(transformers, architecture)
    config = kind.config_class(**{**SIZES, **options}, architectures=[architecture])
    return kind._from_config(config, attn_implementation="eager")


OTHERS = {"num_channels": 1, "mlp_ratio": 2.5, "hidden_act": "relu", "depths": [1, 3], "num_heads": [2, 2]}

CASES = [
    case("swin", "SwinModel"),
    case("swin, classes", "SwinForImageClassification", num_labels=5),
    case("swin, other options", "SwinForImageClassification", num_labels=3, **OTHERS),
    case("swin, odd windows", "SwinForImageClassification", image_size=24, window_size=3, num_labels=5),
    case("swinv2", "Swinv2Model"),
    case("swinv2, classes", "Swinv2ForImageClassification", num_labels=5),
    case("swinv2, other options", "Swinv2ForImageClassification", num_labels=3, **OTHERS),
    case("swinv2, windows that fit two stages", "Swinv2ForImageClassification", window_size=8, num_labels=5),
    case("swinv2, pre-trained windows", "Swinv2ForImageClassification", pretrained_window_sizes=[3, 3, 2]),
]
