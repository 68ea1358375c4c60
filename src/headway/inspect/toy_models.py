"""Superposition of features: the toy models of Elhage et al. (2022, arXiv:2209.10652), all sparsities trained at once.

x′ = relu(W Wᵀ x + b): features pass through fewer dimensions than there are features, and are to be reconstructed.
Row i of W is the direction of feature i (the paper's W is this one transposed).  Dense features: the most important
ones get a dimension each.  Sparse features: several share a dimension.

Every sparsity has its own random numbers, so that its result does not depend on which others are trained with it.

Axes:  S sparsities   R restarts of each   B batch   F features   M hidden dimensions
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.data.order import keyed
from headway.errors import UserError
from headway.figures import HeatMap, Plot
from headway.inspect.presentation import Result, finite, format_number, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
        for name, count in (("features", self.features), ("hidden", self.hidden)):
            if count < 1:
                raise UserError(f"{name}={count}", allowed="1 or more")
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
        for name in ("steps", "batch", "restarts"):
            if getattr(self, name) < 1:
                raise UserError(f"{name}={getattr(self, name)}", allowed="1 or more")


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

    def to_dict(self) -> dict[str, Any]:
        return {
            "sparsity": self.sparsity,
            "loss": finite(self.loss),
            "represented": self.count,
            "dimensions_per_feature": finite(self.dimensions_per_feature),
            "dimensionality": self.dimensionality.tolist(),
            "norms": self.norms.tolist(),
            "interference": self.interference.tolist(),
            "weight": self.weight.tolist(),
            "bias": self.bias.tolist(),
            "gram": self.gram.tolist(),
        }


class ToyModels(nn.Module):
    """x′ = relu(W Wᵀ x + b) for S × R small models side by side: S R B F → S R B F."""

    def __init__(self, world: ToyFeatures, training: ToyTraining):
        super().__init__()
        size = (training.restarts, world.features, world.hidden)
        std = (2.0 / (world.features + world.hidden)) ** 0.5  # Xavier
        drawn = [torch.randn(size, generator=generator(training, at, "begin")) * std for at in world.sparsities]
        self.weight = nn.Parameter(torch.stack(drawn))  # S R F M
        self.bias = nn.Parameter(torch.zeros(self.weight.shape[:3]))  # S R F

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x @ self.weight @ self.weight.mT + self.bias[:, :, None])


def train_toy_models(world: ToyFeatures, training: ToyTraining) -> list[ToyRepresentation]:
    """The best model of each sparsity, in their order."""
    models = ToyModels(world, training)
    optimiser = torch.optim.Adam(models.parameters(), training.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, training.steps)
    draws = [generator(training, sparsity, "learn") for sparsity in world.sparsities]
    for _ in range(training.steps):
        losses(models, world, sample_features(world, training.batch, draws)).sum().backward()
        optimiser.step()
        optimiser.zero_grad()
        schedule.step()
    measured = evaluate(models, world, training)  # S R
    found = list[ToyRepresentation]()
    for at, (sparsity, best) in enumerate(zip(world.sparsities, measured.argmin(1).tolist(), strict=True)):
        weight, bias = models.weight[at, best].detach(), models.bias[at, best].detach()
        found.append(ToyRepresentation(sparsity, weight, bias, measured[at, best].item()))
    return found


@torch.no_grad()
def evaluate(models: ToyModels, world: ToyFeatures, training: ToyTraining) -> Tensor:
    """The loss of each restart on features that all restarts of a sparsity share, S R."""
    draws = [generator(training, sparsity, "examine") for sparsity in world.sparsities]
    batches = (sample_features(world, training.batch, draws) for _ in range(EVAL_BATCHES))
    return torch.stack([losses(models, world, x) for x in batches]).mean(0)


def losses(models: ToyModels, world: ToyFeatures, x: Tensor) -> Tensor:
    """The mean of importance · (x − x′)² over batch and features, S R."""
    return (world.importance * (x - models(x)) ** 2).mean((-2, -1))


def sample_features(world: ToyFeatures, batch: int, draws: list[torch.Generator]) -> Tensor:
    """Random features, S 1 B F: all restarts of a sparsity see the same."""
    size = (batch, world.features)
    drawn = [
        torch.rand(size, generator=draw) * (torch.rand(size, generator=draw) >= sparsity)
        for sparsity, draw in zip(world.sparsities, draws, strict=True)
    ]
    return torch.stack(drawn)[:, None]


def generator(training: ToyTraining, sparsity: float, purpose: str) -> torch.Generator:
    """Random numbers for one sparsity alone."""
    return torch.Generator().manual_seed(keyed("superposition", training.seed, repr(float(sparsity)), purpose))


@dataclass(frozen=True, eq=False)
class SuperpositionResult(Result):
    world: ToyFeatures
    training: ToyTraining
    models: Sequence[ToyRepresentation]

    def to_dict(self) -> dict[str, Any]:
        world = self.world
        sizes = {"features": world.features, "hidden": world.hidden, "decay": world.decay}
        run = {"steps": self.training.steps, "seed": self.training.seed}
        return {**sizes, **run, "models": [model.to_dict() for model in self.models]}

    def to_text(self) -> str:
        world = self.world
        decay = "equally important" if world.decay == 1 else f"each {world.decay:g} times as important as the previous"
        rows = [
            (
                f"{one.sparsity:g}",
                f"{one.loss:.6f}",
                f"{one.count}",
                format_number(one.dimensions_per_feature),
                " ".join(format_number(share, ".2f") for share in one.dimensionality[:MAX_FEATURES].tolist()),
            )
            for one in self.models
        ]
        header = ["sparsity", "loss", "represented", "dimensions per feature", "feature dimensionality"]
        return "\n\n".join([f"{world.features} features in {world.hidden} dimensions, {decay}", table(header, rows)])

    def plot(self) -> Plot:
        names = [str(at) for at in range(self.world.features)]
        most = max(float(one.gram.abs().max()) for one in self.models)
        grams = [
            HeatMap(
                f"sparsity {one.sparsity:g}: WᵀW", one.gram.tolist(), names, names, signed=True, limits=(-most, most)
            )
            for one in self.models
        ]
        arrows = [FeatureArrows(f"{one.count} of {self.world.features} represented", one) for one in self.models]
        shares = [
            DimensionalityBars(f"{format_number(one.dimensions_per_feature, '.2f')} dimensions per feature", one)
            for one in self.models
        ]
        title = f"{self.world.features} features in {self.world.hidden} dimensions"
        return Plot(title, [*grams, *arrows, *shares], columns=len(self.models))


@dataclass(frozen=True, eq=False)
class FeatureArrows:
    """The direction of each feature, the darker the more important."""

    title: str
    model: ToyRepresentation
    width: float = 1.9
    height: float = 1.9

    def draw(self, axes: Axes, figure: Figure) -> None:
        from matplotlib import colormaps

        points = self.model.plane()
        reach = 1.25 * max(1.0, float(self.model.norms.max()))
        colours = colormaps["cividis"]
        for at, (x, y) in enumerate(points):
            colour = colours(0.85 * at / max(1, len(points) - 1))
            axes.plot([0, x], [0, y], color=colour, linewidth=1.6)
            axes.plot([x], [y], "o", color=colour, markersize=5)
            if x**2 + y**2 > REPRESENTED**2:
                axes.annotate(str(at), (x, y), (1.12 * x, 1.12 * y), ha="center", va="center", fontsize=7)
        axes.axhline(0, color="0.85", linewidth=0.6, zorder=0)
        axes.axvline(0, color="0.85", linewidth=0.6, zorder=0)
        axes.set_xlim(-reach, reach)
        axes.set_ylim(-reach, reach)
        axes.set_aspect("equal")


@dataclass(frozen=True, eq=False)
class DimensionalityBars:
    """The fraction of a dimension that each feature has, with those of regular polytopes as lines."""

    title: str
    model: ToyRepresentation
    width: float = 1.9
    height: float = 1.9

    def draw(self, axes: Axes, figure: Figure) -> None:
        shares = self.model.dimensionality.tolist()
        for name, share in FRACTIONS.items():
            axes.axhline(share, color="0.7", linestyle="--", linewidth=0.8, zorder=0)
            axes.annotate(name, (1.0, share), xycoords=("axes fraction", "data"), fontsize=7, va="bottom", ha="right")
        axes.bar(range(len(shares)), shares, color="C0")
        axes.set_ylim(0, 1.12)
        axes.set_xlabel("feature")
