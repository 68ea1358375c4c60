"""The direction between two groups of samples in each layer, and steering a model along it.

Axes:  C width   A B rows of two groups
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headway.errors import UserError, listed, nearest
from headway.figures import LineChart, Plot, printable
from headway.inspect.ablation import edited
from headway.inspect.activations import FEATURES, layer_means, samples_in
from headway.inspect.presentation import LazyModel, Result, format_number, resolve, table
from headway.model import Model
from headway.tasks.results import Prediction


@dataclass(frozen=True)
class Steering:
    """An input to answer while the hidden states are moved along the direction.

    `by` 1 is the whole distance from the mean of the second group to that of the first.  The layer is the one that
    separates the groups best unless given.
    """

    text: str
    by: float = 1.0
    layer: str | None = None


def direction(
    model: LazyModel,
    first: str | Path | Iterable[Any],
    second: str | Path | Iterable[Any],
    *,
    move: Steering | None = None,
    most: int | None = None,
) -> DirectionResult:
    """The direction from the samples of the second group to those of the first, after each layer.

    A group is a file or folder, or an iterable of inputs or records.
    """
    groups = samples_in(first, most), samples_in(second, most)
    loaded = resolve(model)
    ours, theirs = (layer_means(loaded, group) for group in groups)
    layers = {name: mean_difference(ours[name], theirs[name]) for name in ours}
    sizes = len(groups[0]), len(groups[1])
    steered = None if move is None else steer(loaded, layers, move)
    return DirectionResult(str(groups[0].source), str(groups[1].source), sizes, layers, steered)


def steer(model: Model, layers: Mapping[str, SteeringDirection], move: Steering) -> SteeredAnswer:
    """The model's answer as it is, and with the output of one layer moved at every token."""
    names = [name for name in layers if "@" not in name and name != FEATURES]
    if not (names or move.layer):
        raise UserError("no layer of this model can be moved", do="leave move= out")
    layer = move.layer or max(names, key=lambda name: (layers[name].accuracy, layers[name].d_prime))
    site = f"{layer.removesuffix('.out')}.out"
    if site not in names:
        raise UserError(f"no layer {layer!r} can be moved", allowed=listed(names), meant=nearest(layer, names))
    before = model.predict(move.text)
    with edited(model.model, {site: lambda hidden: layers[site].moved(hidden, move.by)}):
        after = model.predict(move.text)
    return SteeredAnswer(site, move.by, before, after)


@dataclass(frozen=True, eq=False)
class SteeringDirection:
    """The difference of the means of two groups of vectors, and how well it separates the groups.

    `d_prime` is the distance of the two means along the difference, in standard deviations within the groups.
    `accuracy` is the share of vectors nearer to the mean of their own group, leave-one-out.
    """

    difference: Tensor  # C: mean of the first group − mean of the second
    d_prime: float
    accuracy: float

    def moved(self, x: Tensor, by: float) -> Tensor:
        """`x` (… C) moved towards the first group: by 1 is the whole distance of the means."""
        return x + by * self.difference.to(x)


def mean_difference(first: Tensor, second: Tensor) -> SteeringDirection:
    """The direction from the second group (B C) to the first (A C)."""
    if min(len(first), len(second)) < 2:
        said = f"groups of {len(first)} and {len(second)} define no direction"
        raise UserError(said, allowed="2 or more in each group")
    first, second = first.double(), second.double()
    difference = first.mean(0) - second.mean(0)
    along = first @ difference, second @ difference
    deviation = ((along[0].var() + along[1].var()) / 2).sqrt()
    d_prime = (along[0].mean() - along[1].mean()) / deviation
    right = torch.cat([own_side(first, second), own_side(second, first)])
    return SteeringDirection(difference, float(d_prime), float(right.double().mean()))


def own_side(own: Tensor, other: Tensor) -> Tensor:
    """Whether each of `own` (A C) is nearer to the mean of the rest of its group than to the other's."""
    fellows = (own.sum(0) - own) / (len(own) - 1)  # A C: the mean without each
    away, middle = fellows - other.mean(0), (fellows + other.mean(0)) / 2
    return ((own - middle) * away).sum(-1) > 0


@dataclass(frozen=True, eq=False)
class SteeredAnswer:
    layer: str
    by: float
    before: Prediction
    after: Prediction

    def to_dict(self) -> dict[str, Any]:
        return {"layer": self.layer, "by": self.by, "before": self.before.to_dict(), "after": self.after.to_dict()}

    def to_text(self) -> str:
        answers = [("unchanged", self.before), (f"steered by {self.by:g} after {self.layer}", self.after)]
        return "\n".join(f"{name}: {answer.to_text()}" for name, answer in answers)


@dataclass(frozen=True, eq=False)
class DirectionResult(Result):
    first: str
    second: str
    sizes: tuple[int, int]
    layers: Mapping[str, SteeringDirection]
    moved: SteeredAnswer | None

    def data(self) -> dict[str, Any]:
        layers = [
            {"layer": name, "accuracy": one.accuracy, "d_prime": one.d_prime, "length": float(one.difference.norm())}
            for name, one in self.layers.items()
        ]
        fields = {"first": self.first, "second": self.second, "samples": self.sizes, "layers": layers}
        return fields if self.moved is None else {**fields, "moved": self.moved.to_dict()}

    def blocks(self) -> Iterator[str]:
        rows = [
            (name, one.accuracy, format_number(one.d_prime, ".2f"), float(one.difference.norm()))
            for name, one in self.layers.items()
        ]
        yield self.title
        yield table(("layer", "accuracy", "d′", "norm"), rows)
        yield "accuracy: share of samples on their own side of the midpoint of the means, leave-one-out"
        if self.moved is not None:
            yield self.moved.to_text()

    @property
    def title(self) -> str:
        return f"from {printable(self.second)} ({self.sizes[1]}) to {printable(self.first)} ({self.sizes[0]})"

    def plot(self) -> Plot:
        names, layers = list(self.layers), self.layers.values()
        accuracy = LineChart("accuracy", names, {"accuracy": [one.accuracy for one in layers]}, {"chance": 0.5})
        d_prime = LineChart("d′", names, {"d′": [one.d_prime for one in layers]}, {}, bottom=0.0)
        return Plot(self.title, [accuracy, d_prime])
