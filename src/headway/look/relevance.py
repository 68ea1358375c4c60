"""Attention rollout weighted by the gradient of one output's score: what of a picture speaks for what was said.

The formula is that of Chefer, Gur and Wolf (`ops/attention_rollout.py`).  Each row of a map is the share of each token
in what is relevant to a token besides itself, so that rows sum to 1, or to 0 where nothing is.

Axes:  H heads   T tokens
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from headway.look.grid_map import GridMap
from headway.look.recording import MAX_ROLLOUT_ROWS, RecordedSite, Recording, RunEdit
from headway.nn.low_precision import Int8Linear
from headway.nn.trace import Edit
from headway.ops.attention_map import Weights
from headway.ops.attention_rollout import gradient_rollout, identity, row_normalised
from headway.tasks.tracing import Choices, GridAxis

RELEVANCE_PREFIX = "relevance."  # of the name of a site that is the relevance up to another


class WeightGradient(NamedTuple):
    """The weights of a site, and the derivative of a score by each of them: H T S both."""

    weights: Tensor
    gradient: Tensor


class Tap(RunEdit):
    """Adds zeros to the weights of sites: their gradient is that of the weights."""

    def __init__(self, names: Iterable[str]):
        self.names = frozenset(names)
        self.calls = defaultdict[str, list[tuple[Tensor, Tensor]]](list)

    def edits(self, recording: Recording) -> Iterator[tuple[str, Edit]]:
        for name in self.names:
            yield name, self.edit(name)

    def edit(self, name: str) -> Edit:
        def edit(weights: Tensor) -> Tensor:
            zeros = torch.zeros_like(weights, requires_grad=True)
            self.calls[name].append((weights.detach(), zeros))
            return weights + zeros

        return edit


def weight_gradients(recording: Recording, step: int, choice: int, sites: Iterable[str]) -> dict[str, WeightGradient]:
    """Weights and gradients at some sites, in the coordinates of the input; 0 where the score does not depend on it."""
    sources = {name: recording.sources[name] for name in sites}
    tap, outputs = Tap(source.site.weights_name for source in sources.values()), recording.run.reader
    assert isinstance(outputs, Choices)
    with torch.enable_grad(), recording.editing([*recording.changes, tap]):
        outputs.head(recording.run.call()[step : step + 1])[0, choice].backward()
    found = dict[str, WeightGradient]()
    for name, source in sources.items():
        weights, zeros = tap.calls[source.site.weights_name][source.call]
        both = weights, torch.zeros_like(weights) if zeros.grad is None else zeros.grad
        if source.tiling is not None:
            tiling = source.tiling
            both = (GridMap(Weights(one), tiling).full() for one in both)
        found[name] = WeightGradient(*(one[0] for one in both))
    return found


def relevance(recording: Recording) -> Mapping[str, RecordedSite]:
    """Of a classifier of pictures: relevance for its class up to each layer of self-attention over cells of a grid."""
    reader = recording.run.reader
    axes = {axis: sites for axis, sites in recording.self_attention().items() if isinstance(axis, GridAxis)}
    axes = {axis: sites for axis, sites in axes.items() if len(axis) <= MAX_ROLLOUT_ROWS}
    exact = not any(isinstance(part, Int8Linear) for part in recording.run.model.modules())
    if not (isinstance(reader, Choices) and reader.kind == "classes" and reader.said and axes and exact):
        return {}
    gradients = weight_gradients(recording, 0, reader.said[0], [site for sites in axes.values() for site in sites])
    found = dict[str, RecordedSite]()
    for axis, sites in axes.items():
        rolled = gradient_rollout(*zip(*(gradients[site] for site in sites), strict=True))
        for site, layer in zip(sites, rolled, strict=True):
            name, shares = f"{RELEVANCE_PREFIX}{site}", row_normalised(layer) - identity(layer)
            found[name] = RecordedSite(name, axis, axis, Weights(shares[None, None], (shares > 0)[None]))
    return found
