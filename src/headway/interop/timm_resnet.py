"""ResNet in timm's layout, whose names are torchvision's too: a file of torchvision's is read by `keymap` alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.errors import UserError, listed, nearest
from headway.interop.config_reader import Arguments, written_as
from headway.interop.keymap import KeyMap, Rule, batch_norm, linear
from headway.interop.resnet import check
from headway.interop.timm_folder import write_named
from headway.zoo.resnet import Config

SIZES = {
    "resnet18": ("basic", (2, 2, 2, 2)),
    "resnet26": ("bottleneck", (2, 2, 2, 2)),
    "resnet34": ("basic", (3, 4, 6, 3)),
    "resnet50": ("bottleneck", (3, 4, 6, 3)),
    "resnet101": ("bottleneck", (3, 4, 23, 3)),
    "resnet152": ("bottleneck", (3, 8, 36, 3)),
}
CONVOLUTIONS = {"basic": 2, "bottleneck": 3}
EXPANSION = {"basic": 1, "bottleneck": 4}  # the width of a stage is so many times its `channels`
DIM = 64  # of every stem there


def read_config(values: Mapping[str, Any]) -> Config:
    name = str(values.get("architecture"))
    if name not in SIZES:
        said = f"the architecture {name!r} is not supported for timm's ResNets"
        raise UserError(said, allowed=listed(SIZES, 10), meant=nearest(name, SIZES))
    told: Mapping[str, Any] = values.get("pretrained_cfg") or {}
    o = Arguments({"num_classes": values.get("num_classes"), **(values.get("model_args") or {})}, name)
    o.expect(global_pool="avg", drop_rate=0.0)
    o.ignore("zero_init_last")
    block, layers = SIZES[name]
    config = Config(
        image=(told.get("input_size") or [3, 224, 224])[1],
        channels=o.take("in_chans", 3),
        dim=DIM,
        block=block,
        layers=tuple(o.take("layers", layers)),
        widths=tuple(EXPANSION[block] * width for width in o.take("channels", (64, 128, 256, 512))),
        classes=o.take("num_classes", 1000),
    )
    return o.done(config)


def write_config(c: Config) -> dict[str, Any]:
    check(c, "timm")
    if c.dim != DIM or len(c.layers) != 4:
        said = f"timm's ResNets have no dim={c.dim} with {len(c.layers)} stages"
        raise UserError(said, allowed=f"dim={DIM} with 4 stages", do=written_as("resnet"))
    known = [name for name, sizes in SIZES.items() if sizes == (c.block, c.layers)]
    other = [name for name, (block, _) in SIZES.items() if block == c.block]
    channels = [width // EXPANSION[c.block] for width in c.widths]
    changes = {"in_chans": c.channels, "layers": list(c.layers), "channels": channels}
    return write_named((known or other)[0], c, c.widths[-1], changes)


def keymap(c: Config) -> KeyMap:
    stages = (stage(number, CONVOLUTIONS[c.block]) for number in range(len(c.layers)))
    return KeyMap(
        rules=(
            Rule("conv1.weight", "embed.blocks.0.body.weight"),
            *batch_norm("bn1", "embed.blocks.0.norm"),
            *(rule for rules in stages for rule in rules),
            *linear("fc", "head.out"),
        ),
    )


def stage(number: int, convolutions: int) -> tuple[Rule, ...]:
    """Stages and convolutions are counted from 1 there."""
    there, here = f"layer{number + 1}.*", f"stack.blocks.{number}.stack.blocks.*.conv"
    rules = [
        *(Rule(f"{there}.conv{at + 1}.weight", f"{here}.body.blocks.{at}.body.weight") for at in range(convolutions)),
        *(
            rule
            for at in range(convolutions)
            for rule in batch_norm(f"{there}.bn{at + 1}", f"{here}.body.blocks.{at}.norm")
        ),
        Rule(f"{there}.downsample.0.weight", f"{here}.skip.body.weight"),
        *batch_norm(f"{there}.downsample.1", f"{here}.skip.norm"),
    ]
    return tuple(rules)
