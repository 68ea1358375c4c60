"""ConvNeXt and its second version."""

from __future__ import annotations

from typing import Any

from tests.interop.parity import Case, Kind

SIZES = {"hidden_sizes": [8, 12, 16], "depths": [2, 1, 2], "num_stages": 3, "patch_size": 4}


def case(name: str, architecture: str, **options: Any) -> Case:
    def make() -> Any:
        import transformers

        known = getattr(transformers, architecture)
        return known(known.config_class(**{**SIZES, **options}, architectures=[architecture]))

    return Case(name, make, Kind.CONVOLUTIONS)


CASES = [
    case("convnext", "ConvNextModel", layer_scale_init_value=0.7),
    case("convnext, classes", "ConvNextForImageClassification", num_labels=5, layer_scale_init_value=0.7),
    case("convnext, unscaled, one channel", "ConvNextModel", layer_scale_init_value=0.0, num_channels=1),
    case("convnextv2", "ConvNextV2Model"),
    case("convnextv2, classes, ReLU", "ConvNextV2ForImageClassification", num_labels=5, hidden_act="relu"),
]
