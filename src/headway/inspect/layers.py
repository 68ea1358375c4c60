"""What a model holds of samples, layer by layer: the mean over each sample's tokens of what its layers give on.

Axes:  N samples   T tokens   Y X grid   C width of a layer
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from headway.nn.context import Context
from headway.nn.head import MeanPool
from headway.nn.model import Trunk
from headway.nn.trace import record, sites_of

FEATURES = "features"  # what the head reads, where layers show nothing by themselves: a recurrent encoder's


def layers_of(model: nn.Module, trunk: Trunk) -> list[str]:
    """The sites of a trunk's layers, as the model that it is a part of names them: its embedding, and all its blocks.

    Of blocks within blocks, such as the stages of a pyramid, these are the innermost.
    """
    showing = {module: name for name, (module, what) in sites_of(model).items() if what == "out"}
    inside = set(trunk.stack.modules())
    return [
        name
        for module, name in showing.items()
        if module is trunk.embed or (module in inside and not around(module, showing))
    ]


def around(module: nn.Module, others: Iterable[nn.Module]) -> bool:
    """Whether one of the others is a part of a module."""
    parts = set(module.modules()) - {module}
    return any(other in parts for other in others)


@torch.no_grad()
def pooled_layers(
    model: nn.Module, trunk: Trunk, inputs: Tensor, ctx: Context, real: Context | None = None
) -> dict[str, Tensor]:
    """The mean of each sample's tokens after each layer, N C, by the layers' names.

    `real` tells which tokens these are, where the model is to see more of them than are counted.  A layer that is
    called several times, because others share its parameters, has a name for each turn: `0.out@2`.
    """
    sites = layers_of(model, trunk)
    with record(model, *sites) as trace:
        features = trunk.features(inputs, ctx)
    inner, mean, found = trunk.inner(ctx) if real is None else real, MeanPool(), dict[str, Tensor]()
    for site in sites:
        values = trace.all(site)
        for turn, value in enumerate(values):
            assert isinstance(value, Tensor)
            found[site if len(values) == 1 else f"{site}@{turn}"] = mean(value, inner)
    return found if len(found) > 1 else {**found, FEATURES: mean(features, inner)}
