"""Superposition of features: the toy models of Elhage et al. (2022, arXiv:2209.10652), all sparsities trained at once.

x′ = relu(W Wᵀ x + b): features pass through fewer dimensions than there are features, and are to be reconstructed.
Row i of W is the direction of feature i (the paper's W is this one transposed).  Dense features: the most important
ones get a dimension each.  Sparse features: several share a dimension.

Every sparsity has its own random numbers, so that its result does not depend on which others are trained with it.

Axes:  S sparsities   R restarts of each   B batch   F features   M hidden dimensions
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.data.order import keyed
from headway.errors import UserError
from headway.figures import Drawing, HeatMap, Plot, colour_map
from headway.inspect.presentation import Result, check_counts, format_number, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SPARSITIES = (0.0, 0.7, 0.9, 0.99)
REPRESENTED = 0.5  # norm of a direction from which its feature counts as represented; norms are near 0 or near 1
EVAL_BATCHES = 64  # by which restarts are compared
MAX_FEATURES = 8  # whose dimensionality stands in the table
FRACTIONS = {"1": 1.0, "1/2": 1 / 2, "2/5": 2 / 5}  # a dimension of its own, an antipodal pair, a pentagon


def superposition(
    features: int = 5,
    hidden: int = 2,
    sparsity: Sequence[float] = SPARSITIES,
    *,
    decay: float = 0.9,
    steps: int = 2000,
    seed: int = 0,
) -> SuperpositionResult:
    """Trains a toy model for each sparsity and measures how it represents its features."""
    world, training = ToyFeatures(features, hidden, tuple(sparsity), decay), ToyTraining(steps, seed=seed)
    return SuperpositionResult(world, training, train_toy_models(world, training))


@dataclass(frozen=True)
class ToyFeatures:
    """The synthetic features: each is 0 with the probability `sparsity`, else uniform from 0 to 1.

    The squared error of feature i has the weight `decay` to the power of i.
    """

    features: int = 5
    hidden: int = 2
    sparsities: tuple[float, ...] = SPARSITIES
    decay: float = 0.9

    def __post_init__(self) -> None:
        check_counts(features=self.features, hidden=self.hidden)
        if not self.sparsities:
            raise UserError("no sparsity is given", allowed="one or more, each from 0 up to, but not, 1")
        for sparsity in self.sparsities:
            if not 0.0 <= sparsity < 1.0:
                do = "0.9 means that nine of ten features are absent"
                raise UserError(f"sparsity={sparsity:g}", allowed="from 0 up to, but not, 1", do=do)
        if not 0.0 < self.decay <= 1.0:
            raise UserError(f"decay={self.decay:g}", allowed="above 0 and at most 1, where all weigh the same")

    @property
    def importance(self) -> Tensor:
        return self.decay ** torch.arange(self.features, dtype=torch.float32)  # F


@dataclass(frozen=True)
class ToyTraining:
    """How the models are trained.  The best of several restarts is taken: some end in bad local minima."""

    steps: int = 2000
    batch: int = 512
    lr: float = 1e-2
    restarts: int = 6
    seed: int = 0

    def __post_init__(self) -> None:
        check_counts(steps=self.steps, batch=self.batch, restarts=self.restarts)


@dataclass(frozen=True, eq=False)
class ToyRepresentation:
    """How a trained model represents features of one sparsity."""

    sparsity: float
    weight: Tensor  # F M
    bias: Tensor  # F
    loss: float  # the mean squared error of a feature, weighted by its importance

    @property
    def gram(self) -> Tensor:
        """The dot product of each pair of directions, F F: the paper's WᵀW."""
        return self.weight @ self.weight.mT

    @property
    def norms(self) -> Tensor:
        """How strongly each feature is represented, F: 0 not at all, 1 fully."""
        return self.weight.norm(dim=1)

    @property
    def interference(self) -> Tensor:
        """How much of the other features is read along the direction of feature i, F: Σ over j ≠ i of (ŵᵢ · wⱼ)²."""
        return self.overlap - self.norms**2

    @property
    def dimensionality(self) -> Tensor:
        """The fraction of a dimension that each feature has, F: ‖wᵢ‖² / Σ over all j of (ŵᵢ · wⱼ)².

        1 for a dimension of its own, 1/2 for each of an antipodal pair, 2/5 for each of a pentagon.
        """
        present = self.norms > 1e-3
        return torch.where(present, self.norms**2 / self.overlap.clamp(min=1e-12), 0.0)

    @property
    def overlap(self) -> Tensor:
        """Σ over all j of (ŵᵢ · wⱼ)², F."""
        return (self.gram**2).sum(1) / (self.norms**2).clamp(min=1e-12)

    @property
    def count(self) -> int:
        """How many features are represented."""
        return int((self.norms > REPRESENTED).sum())

    @property
    def dimensions_per_feature(self) -> float:
        """M / ‖W‖², where each represented feature adds about 1 to ‖W‖²."""
        return self.weight.shape[1] / float((self.weight**2).sum())

    def plane(self) -> list[list[float]]:
        """Directions as points of a plane, F 2: of more than two dimensions the first two principal components."""
        weight = self.weight
        if weight.shape[1] > 2:
            weight = weight @ torch.linalg.svd(weight, full_matrices=False).Vh[:2].mT
        return F.pad(weight, (0, 2 - weight.shape[1])).tolist()

    def data(self) -> dict[str, Any]:
        names = ("dimensions_per_feature", "dimensionality", "norms", "interference", "weight", "bias", "gram")
        numbers = {name: getattr(self, name) for name in names}
        return {"sparsity": self.sparsity, "loss": self.loss, "represented": self.count, **numbers}

    def draw_directions(self, axes: Axes) -> None:
        """The direction of each feature, the darker the more important."""
        points = self.plane()
        reach = 1.25 * max(1.0, float(self.norms.max()))
        colours = colour_map()
        for at, (x, y) in enumerate(points):
            colour = colours(1 - 0.7 * at / max(1, len(points) - 1))
            axes.plot([0, x], [0, y], color=colour, linewidth=1.6)
            axes.plot([x], [y], "o", color=colour, markersize=5)
            if x**2 + y**2 > REPRESENTED**2:
                axes.annotate(str(at), (x, y), (1.12 * x, 1.12 * y), ha="center", va="center", fontsize=7)
        axes.axhline(0, color="0.85", linewidth=0.6, zorder=0)
        axes.axvline(0, color="0.85", linewidth=0.6, zorder=0)
        axes.set_xlim(-reach, reach)
        axes.set_ylim(-reach, reach)
        axes.set_aspect("equal")

    def draw_dimensionality(self, axes: Axes) -> None:
        """The fraction of a dimension that each feature has, with those of regular polytopes as lines."""
        shares = self.dimensionality.tolist()
        for name, share in FRACTIONS.items():
            axes.axhline(share, color="0.7", linestyle="--", linewidth=0.8, zorder=0)
            axes.annotate(name, (1.0, share), xycoords=("axes fraction", "data"), fontsize=7, va="bottom", ha="right")
        axes.bar(range(len(shares)), shares, color="C0")
        axes.set_ylim(0, 1.12)
        axes.set_xlabel("feature")


def train_toy_models(world: ToyFeatures, training: ToyTraining) -> list[ToyRepresentation]:
    """The best model of each sparsity, in their order; x′ = relu(W Wᵀ x + b) of S × R models side by side."""
    size = (training.restarts, world.features, world.hidden)
    std = (2.0 / (world.features + world.hidden)) ** 0.5  # Xavier
    initial = [torch.randn(size, generator=random) * std for random in generators(world, training, "begin")]
    weight = torch.stack(initial).requires_grad_()  # S R F M
    bias = torch.zeros(weight.shape[:3], requires_grad=True)  # S R F

    def losses(draws: Sequence[torch.Generator]) -> Tensor:
        """The mean of importance · (x − x′)² over a batch of random features, S R."""
        x = sample_features(world, training.batch, draws)
        rebuilt = torch.relu(x @ weight @ weight.mT + bias[:, :, None])
        return (world.importance * (x - rebuilt) ** 2).mean((-2, -1))

    optimiser = torch.optim.Adam([weight, bias], training.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, training.steps)
    draws = generators(world, training, "learn")
    for _ in range(training.steps):
        losses(draws).sum().backward()
        optimiser.step()
        optimiser.zero_grad()
        schedule.step()
    draws = generators(world, training, "examine")  # features that all restarts of a sparsity share
    with torch.no_grad():
        measured = torch.stack([losses(draws) for _ in range(EVAL_BATCHES)]).mean(0)  # S R
    return [
        ToyRepresentation(sparsity, weight[at, best].detach(), bias[at, best].detach(), measured[at, best].item())
        for at, (sparsity, best) in enumerate(zip(world.sparsities, measured.argmin(1).tolist(), strict=True))
    ]


def sample_features(world: ToyFeatures, batch: int, draws: Sequence[torch.Generator]) -> Tensor:
    """Random features, S 1 B F: all restarts of a sparsity see the same."""
    size = (batch, world.features)
    features = [
        torch.rand(size, generator=draw) * (torch.rand(size, generator=draw) >= sparsity)
        for sparsity, draw in zip(world.sparsities, draws, strict=True)
    ]
    return torch.stack(features)[:, None]


def generators(world: ToyFeatures, training: ToyTraining, purpose: str) -> list[torch.Generator]:
    """Random numbers for each sparsity alone."""
    seeds = (keyed("superposition", training.seed, repr(float(one)), purpose) for one in world.sparsities)
    return [torch.Generator().manual_seed(seed) for seed in seeds]


@dataclass(frozen=True, eq=False)
class SuperpositionResult(Result):
    world: ToyFeatures
    training: ToyTraining
    models: Sequence[ToyRepresentation]

    def data(self) -> dict[str, Any]:
        world = self.world
        sizes = {"features": world.features, "hidden": world.hidden, "decay": world.decay}
        run = {"steps": self.training.steps, "seed": self.training.seed}
        return {**sizes, **run, "models": [model.data() for model in self.models]}

    def blocks(self) -> Iterator[str]:
        world = self.world
        decay = "equally important" if world.decay == 1 else f"each {world.decay:g} times as important as the previous"
        yield f"{self.title}, {decay}"
        rows = [
            (
                f"{one.sparsity:g}",
                f"{one.loss:.6f}",
                one.count,
                one.dimensions_per_feature,
                " ".join(format_number(share, ".2f") for share in one.dimensionality[:MAX_FEATURES].tolist()),
            )
            for one in self.models
        ]
        yield table(["sparsity", "loss", "represented", "dimensions per feature", "feature dimensionality"], rows)

    @property
    def title(self) -> str:
        return f"{self.world.features} features in {self.world.hidden} dimensions"

    def plot(self) -> Plot:
        names = [str(at) for at in range(self.world.features)]
        largest = max(float(one.gram.abs().max()) for one in self.models)
        heat_map = partial(HeatMap, rows=names, columns=names, signed=True, limits=(-largest, largest))
        grams = [heat_map(f"sparsity {one.sparsity:g}: WᵀW", one.gram.tolist()) for one in self.models]
        small = partial(Drawing, width=1.9, height=1.9)
        of, per = f"of {self.world.features} represented", "dimensions per feature"
        directions = [small(f"{one.count} {of}", one.draw_directions) for one in self.models]
        shares = [
            small(f"{format_number(one.dimensions_per_feature, '.2f')} {per}", one.draw_dimensionality)
            for one in self.models
        ]
        return Plot(self.title, [*grams, *directions, *shares], columns=len(self.models))
