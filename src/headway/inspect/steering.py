"""The direction between two groups of samples in each layer, and steering a model along it.

Axes:  C width   A B rows of two groups
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import comb
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

RARE = 0.05  # a probability


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

    Each vector is judged by the means of the others, leave-one-out: in many dimensions the difference of two means
    separates the very vectors that it was made from, whatever they are.  `accuracy` is the share that is nearer to the
    mean of its own group; `d_prime` is how far the groups lie apart along the difference, in standard deviations.
    """

    difference: Tensor  # C: mean of the first group − mean of the second
    d_prime: float
    accuracy: float
    above_chance: bool  # whether so many right of so many would be rare (1 in 20) by chance

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
    along = depth(first, second), depth(second, first)  # A, B
    deviation = ((along[0].var() + along[1].var()) / 2).sqrt()
    d_prime = (along[0].mean() + along[1].mean()) / deviation
    right = torch.cat(along) > 0
    above = tail(int(right.sum()), len(right)) <= RARE
    return SteeringDirection(difference, float(d_prime), float(right.double().mean()), above)


def depth(own: Tensor, other: Tensor) -> Tensor:
    """How far each of `own` (A C) lies beyond the midpoint of the other group's mean and that of its fellows."""
    fellows = (own.sum(0) - own) / (len(own) - 1)  # A C: the mean without each
    away, middle = fellows - other.mean(0), (fellows + other.mean(0)) / 2
    return ((own - middle) * away).sum(-1) / away.norm(dim=-1).clamp(min=torch.finfo(own.dtype).tiny)


def tail(right: int, count: int) -> float:
    """The probability of as many or more right answers of `count` by tossing a coin."""
    return sum(comb(count, k) for k in range(right, count + 1)) / 2**count


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
            {
                "layer": name,
                "accuracy": one.accuracy,
                "above_chance": one.above_chance,
                "d_prime": one.d_prime,
                "length": float(one.difference.norm()),
            }
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
        yield "accuracy: share of samples on their own side of the midpoint of the means; both leave-one-out"
        if unsure := [name for name, one in self.layers.items() if not one.above_chance]:
            where = "in any layer" if len(unsure) == len(self.layers) else f"after {listed(unsure)}"
            yield f"warning: the groups are not told apart better than by chance {where}; give more samples"
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
