"""`headway plan`: training past this machine, as numbers."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter


def plan(
    preset: str,
    /,
    *,
    devices: str,
    tokens: float,
    batch: float | None = None,
    length: int | None = None,
    network: float | None = None,
    sizes: Annotated[dict[str, str] | None, Parameter(name="--model")] = None,
    json: bool = False,
) -> None:
    """Estimate memory, communication, time and MFU of training on many devices, and recommend a layout.

    Parameters
    ----------
    preset
        One of headway list.
    devices
        How many of which, as in 64xH100 or 8xA100-40GB; cpu is one process on this machine, whose speed is measured.
    tokens
        Tokens (images, frames) of the whole training run, as in 300e9.
    batch
        Tokens (images, frames) of a batch, over all devices; by default as published for models of this size.
    length
        Sequence length in tokens; by default the model's context length.
    network
        Speed of the network between nodes in GB a second for each device; by default that of the maker's system.
    sizes
        Sizes other than the preset's, as in --model.layers 48.
    json
        Print the plan as JSON, and nothing else.
    """
    from json import dumps

    from headway.errors import UserError
    from headway.zoo import presets

    presets.preset(preset)  # a mistyped name is told before torch is imported
    if length is not None and length < 1:
        raise UserError(f"length={length}", allowed="1 or more")
    from headway.training.cluster_plan import cluster_plan
    from headway.training.settings import parse_sizes

    found = cluster_plan(preset, devices, tokens, batch=batch, length=length, network=network, sizes=parse_sizes(sizes))
    print(dumps(found.to_dict(), indent=1) if json else found.to_text())
