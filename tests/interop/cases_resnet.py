"""ResNet, with basic blocks and bottlenecks, and statistics as some training leaves them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.interop.parity import Case, Kind

SIZES = {"embedding_size": 8, "hidden_sizes": [16, 24, 32], "depths": [2, 1, 2]}


def case(name: str, architecture: str = "ResNetForImageClassification", **options: Any) -> Case:
    return Case(name, lambda: model(architecture, **options), Kind.CONVOLUTIONS)


def model(architecture: str = "ResNetForImageClassification", **options: Any) -> Any:
    import transformers

    kind = getattr(transformers, architecture)
    return trained(kind(kind.config_class(**{**SIZES, **options}, architectures=[architecture])))


def trained(model: nn.Module) -> nn.Module:
    """Zeros and ones of fresh statistics would hide one that is lost."""
    for part in model.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.normal_(part.running_mean, std=0.3)
            nn.init.uniform_(part.running_var, 0.5, 2.0)
            part.num_batches_tracked.fill_(int(torch.randint(1, 99, ())))
    return model


CASES = [
    case("resnet", "ResNetModel"),
    case("resnet, classes", num_labels=5),
    case("resnet, basic blocks, one channel", layer_type="basic", num_channels=1, num_labels=3),
    case("resnet, as wide as its stem", hidden_sizes=[8, 8], depths=[1, 3], layer_type="basic"),
]
