"""ResNet in Hugging Face's layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.errors import UserError
from headway.interop.config_reader import LIST, ConfigMap, Field, Options
from headway.interop.encoders import classes, labels
from headway.interop.keymap import KeyMap, Rule, batch_norm, linear
from headway.zoo.resnet import Config

CLASSES, FEATURES = "ResNetForImageClassification", "ResNetModel"
FIELDS = ConfigMap(
    Field("num_channels", "channels", 3),
    Field("embedding_size", "dim", 64),
    Field("layer_type", "block", "bottleneck"),
    Field("depths", "layers", (3, 4, 6, 3), LIST),
    Field("hidden_sizes", "widths", (256, 512, 1024, 2048), LIST),
)
FIXED = {"hidden_act": "relu", "downsample_in_first_stage": False, "downsample_in_bottleneck": False}


def read_config(values: Mapping[str, Any]) -> Config:
    o = Options(values, "resnet")
    o.require("layer_type", "basic", "bottleneck", default="bottleneck")
    o.expect(**FIXED)
    o.ignore("stage_names", "out_features", "out_indices", "_out_features", "_out_indices")
    classified = o.architecture(CLASSES, FEATURES) == CLASSES
    return o.done(Config(**FIELDS.read(o), classes=classes(o) if classified else 0))


def write_config(c: Config) -> dict[str, Any]:
    check(c, "transformers")
    return {
        "model_type": "resnet",
        "architectures": [CLASSES if c.classes else FEATURES],
        **FIELDS.write(c),
        **FIXED,
        **labels("rows" if c.classes else "none", c.classes),
    }


def check(c: Config, library: str) -> None:
    """Refuses what the other library's ResNet does not have."""
    if c.attention:
        raise UserError(f"ResNets have no attention in {library}, and this one attention={c.attention}")
    if c.stem != "large":
        raise UserError(f"ResNets have no stem={c.stem!r} in {library}", allowed="'large'")


def keymap(c: Config) -> KeyMap:
    there, here = "encoder.stages.*.layers.*", "stack.blocks.*.stack.blocks.*.conv"
    return KeyMap(
        rules=(
            *layer("embedder.embedder", "embed.blocks.0"),
            *layer(f"{there}.layer.*", f"{here}.body.blocks.*"),
            *layer(f"{there}.shortcut", f"{here}.skip"),
            *linear("classifier.1", "head.out", outside=True),
        ),
        prefixes=("resnet.",) if c.classes else ("", "resnet."),
    )


def layer(theirs: str, ours: str) -> tuple[Rule, ...]:
    return (
        Rule(f"{theirs}.convolution.weight", f"{ours}.body.weight"),
        *batch_norm(f"{theirs}.normalization", f"{ours}.norm"),
    )
