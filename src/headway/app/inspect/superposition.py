"""`headway inspect superposition`: how a toy model packs more features than it has dimensions, sparsity by sparsity.

Axes:  F features   M hidden dimensions
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headway.app.inspect.cells import digits, number, table
from headway.app.inspect.figures import Drawing, Heat
from headway.app.inspect.told import Found
from headway.inspect.superposition import PRESENT, Practice, Represented, World, represented

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEATURES = 8  # whose shares of a dimension stand in the table
FRACTIONS = {"1": 1.0, "1/2": 1 / 2, "2/5": 2 / 5}  # a dimension of its own, back to back, a pentagon


def superposition(
    features: int, hidden: int, sparsity: Sequence[float], *, decay: float, steps: int, seed: int
) -> Superposed:
    """Learns a toy model for each sparsity: what has it made of its features?"""
    world, practice = World(features, hidden, tuple(sparsity), decay), Practice(steps, seed=seed)
    return Superposed(world, practice, represented(world, practice))


@dataclass(frozen=True, eq=False)
class Superposed(Found):
    """What was learned for each sparsity."""

    world: World
    practice: Practice
    models: Sequence[Represented]

    def plain(self) -> dict[str, Any]:
        world = self.world
        told = {"features": world.features, "hidden": world.hidden, "decay": world.decay}
        return {
            **told,
            "steps": self.practice.steps,
            "seed": self.practice.seed,
            "models": [model_plain(one) for one in self.models],
        }

    def shown(self) -> str:
        world = self.world
        decay = "all as important" if world.decay == 1 else f"each {world.decay:g} times as important as the one before"
        rows = [
            (
                f"{one.sparsity:g}",
                f"{one.loss:.6f}",
                f"{one.count}",
                digits(one.dimensions_per_feature),
                " ".join(digits(share, ".2f") for share in one.dimensionality[:FEATURES].tolist()),
            )
            for one in self.models
        ]
        heads = ["sparsity", "loss", "represented", "dimensions per feature", "share of a dimension, by feature"]
        return "\n\n".join([f"{world.features} features in {world.hidden} dimensions, {decay}", table(heads, rows)])

    def drawn(self) -> Drawing:
        names = [str(at) for at in range(self.world.features)]
        most = max(float(one.gram.abs().max()) for one in self.models)
        grams = [
            Heat(f"sparsity {one.sparsity:g}: WᵀW", one.gram.tolist(), names, names, signed=True, limits=(-most, most))
            for one in self.models
        ]
        ways = [Directions(f"{one.count} of {self.world.features} represented", one) for one in self.models]
        shares = [
            Shares(f"{digits(one.dimensions_per_feature, '.2f')} dimensions per feature", one) for one in self.models
        ]
        title = f"{self.world.features} features in {self.world.hidden} dimensions"
        return Drawing(title, [*grams, *ways, *shares], abreast=len(self.models))


@dataclass(frozen=True, eq=False)
class Directions:
    """Each feature's direction, the darker the more important; of more than two dimensions the two largest."""

    title: str
    model: Represented
    width: float = 1.9
    height: float = 1.9

    def draw(self, axes: Axes, figure: Figure) -> None:
        from matplotlib import colormaps

        weight = flat(self.model)
        reach = 1.25 * max(1.0, float(self.model.norms.max()))
        colours = colormaps["cividis"]
        for at, (across, up) in enumerate(weight):
            colour = colours(0.85 * at / max(1, len(weight) - 1))
            axes.plot([0, across], [0, up], color=colour, linewidth=1.6)
            axes.plot([across], [up], "o", color=colour, markersize=5)
            if across**2 + up**2 > PRESENT**2:
                axes.annotate(str(at), (across, up), (1.12 * across, 1.12 * up), ha="center", va="center", fontsize=7)
        axes.axhline(0, color="0.85", linewidth=0.6, zorder=0)
        axes.axvline(0, color="0.85", linewidth=0.6, zorder=0)
        axes.set_xlim(-reach, reach)
        axes.set_ylim(-reach, reach)
        axes.set_aspect("equal")


@dataclass(frozen=True, eq=False)
class Shares:
    """The share of a dimension that each feature has, with the shares of regular shapes as lines."""

    title: str
    model: Represented
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


def flat(model: Represented) -> list[list[float]]:
    """Directions as points of a plane, F 2: as they are, or along the two axes that they lie along most."""
    import torch

    weight = model.weight
    if weight.shape[1] > 2:
        weight = weight @ torch.linalg.svd(weight, full_matrices=False).Vh[:2].mT
    return torch.nn.functional.pad(weight, (0, 2 - weight.shape[1])).tolist()


def model_plain(one: Represented) -> dict[str, Any]:
    return {
        "sparsity": one.sparsity,
        "loss": number(one.loss),
        "represented": one.count,
        "dimensions_per_feature": number(one.dimensions_per_feature),
        "dimensionality": one.dimensionality.tolist(),
        "norms": one.norms.tolist(),
        "interference": one.interference.tolist(),
        "weight": one.weight.tolist(),
        "bias": one.bias.tolist(),
        "gram": one.gram.tolist(),
    }
