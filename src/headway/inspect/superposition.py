"""Features in superposition: the toy model of Elhage et al. (2022), with many sparsities learned at once.

x′ = relu(W Wᵀ x + b): features are squeezed through fewer dimensions than there are of them, and are to come out again.
Row i of W is the direction of feature i (the paper's W is this one transposed).  Where all features are there all the
time, the most important ones get a dimension each; where they are rare, more of them share the dimensions.

Every sparsity has random numbers of its own, so that what is learned of it does not depend on which others are asked.

Axes:  S sparsities   R tries of each   B batch   F features   M hidden dimensions
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headway.data.keyed import keyed
from headway.errors import UserError

PRESENT = 0.5  # length of a direction, from which on its feature counts as represented; they are near 0 or near 1
EXAMINED = 64  # batches by which the tries are compared


@dataclass(frozen=True)
class World:
    """What there is to represent: each feature is 0 with the probability `sparsity`, else anything from 0 to 1.

    An error in feature i weighs `decay` to the power of i.
    """

    features: int = 5
    hidden: int = 2
    sparsities: tuple[float, ...] = (0.0, 0.7, 0.9, 0.99)
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
class Practice:
    """How the models learn: the best of `tries` is taken, because some end where features are packed badly."""

    steps: int = 2000
    batch: int = 512
    rate: float = 1e-2
    tries: int = 6
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "tries"):
            if getattr(self, name) < 1:
                raise UserError(f"{name}={getattr(self, name)}", allowed="1 or more")


@dataclass(frozen=True, eq=False)
class Represented:
    """What a model has made of features of one sparsity."""

    sparsity: float
    weight: Tensor  # F M
    bias: Tensor  # F
    loss: float  # the mean squared error of a feature, weighed by its importance

    @property
    def gram(self) -> Tensor:
        """What each feature says to each other one, F F: the paper's WᵀW."""
        return self.weight @ self.weight.mT

    @property
    def norms(self) -> Tensor:
        """How strongly each feature is represented, F: 0 not at all, 1 fully."""
        return self.weight.norm(dim=1)

    @property
    def interference(self) -> Tensor:
        """How much of the others is read where feature i is looked for, F: Σ over j ≠ i of (ŵᵢ · wⱼ)²."""
        return self.overlap - self.norms**2

    @property
    def dimensionality(self) -> Tensor:
        """The share of a dimension that each feature has, F: ‖wᵢ‖² / Σ over all j of (ŵᵢ · wⱼ)².

        1 for a dimension of its own, 1/2 for two features back to back, 2/5 for each of a pentagon.
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
        return int((self.norms > PRESENT).sum())

    @property
    def dimensions_per_feature(self) -> float:
        """M / ‖W‖², where each feature that is represented adds about 1 to ‖W‖²."""
        return self.weight.shape[1] / float((self.weight**2).sum())


class ToyModels(nn.Module):
    """x′ = relu(W Wᵀ x + b) for S × R small models side by side: S R B F → S R B F."""

    def __init__(self, world: World, practice: Practice):
        super().__init__()
        size = (practice.tries, world.features, world.hidden)
        std = (2.0 / (world.features + world.hidden)) ** 0.5  # Xavier's
        drawn = [torch.randn(size, generator=source(practice, at, "begin")) * std for at in world.sparsities]
        self.weight = nn.Parameter(torch.stack(drawn))  # S R F M
        self.bias = nn.Parameter(torch.zeros(self.weight.shape[:3]))  # S R F

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x @ self.weight @ self.weight.mT + self.bias[:, :, None])


def represented(world: World, practice: Practice) -> list[Represented]:
    """What is learned for each sparsity, in their order."""
    models = ToyModels(world, practice)
    learn(models, world, practice)
    losses = examined(models, world, practice)  # S R
    best = losses.argmin(1)
    return [
        Represented(sparsity, models.weight[at, pick].detach(), models.bias[at, pick].detach(), losses[at, pick].item())
        for at, (sparsity, pick) in enumerate(zip(world.sparsities, best.tolist(), strict=True))
    ]


def learn(models: ToyModels, world: World, practice: Practice) -> None:
    optimiser = torch.optim.Adam(models.parameters(), practice.rate)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, practice.steps)
    draws = [source(practice, sparsity, "learn") for sparsity in world.sparsities]
    for _ in range(practice.steps):
        errors(models, world, drawn_features(world, practice.batch, draws)).sum().backward()
        optimiser.step()
        optimiser.zero_grad()
        falling.step()


@torch.no_grad()
def examined(models: ToyModels, world: World, practice: Practice) -> Tensor:
    """The loss of each try on features that all tries of a sparsity share, S R."""
    draws = [source(practice, sparsity, "examine") for sparsity in world.sparsities]
    batches = (drawn_features(world, practice.batch, draws) for _ in range(EXAMINED))
    return torch.stack([errors(models, world, x) for x in batches]).mean(0)


def errors(models: ToyModels, world: World, x: Tensor) -> Tensor:
    """The mean of importance · (x − x′)² over batch and features, S R."""
    return (world.importance * (x - models(x)) ** 2).mean((-2, -1))


def drawn_features(world: World, batch: int, draws: list[torch.Generator]) -> Tensor:
    """Features by chance, S 1 B F: all tries of a sparsity see the same."""
    size = (batch, world.features)
    drawn = [
        torch.rand(size, generator=draw) * (torch.rand(size, generator=draw) >= sparsity)
        for sparsity, draw in zip(world.sparsities, draws, strict=True)
    ]
    return torch.stack(drawn)[:, None]


def source(practice: Practice, sparsity: float, what: str) -> torch.Generator:
    """Random numbers for one sparsity alone."""
    return torch.Generator().manual_seed(keyed("superposition", practice.seed, repr(float(sparsity)), what))
