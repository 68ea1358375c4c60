"""The memory that a run needs, known from shapes alone, before any weight is made; and the refusal where it has less.

Numbers are 32 bits wide, and activations are counted so in mixed precision too.  A step holds weights, in mixed
precision with copies in bf16, gradients, the optimiser's state, the EMA of the weights, and the activations that its
largest batch keeps for the gradient.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from math import inf
from typing import Any

from torch import nn

from headway.dtype import BF16
from headway.errors import UserError
from headway.nn.recompute import innermost_blocks
from headway.recipe import Recipe
from headway.system import gibibytes, memory_limit, resident_memory
from headway.training.dataset import EncodedDataset
from headway.training.groups import freeze
from headway.zoo.build import architecture_of, on_meta
from headway.zoo.cost import activation_bytes
from headway.zoo.presets import PRESETS

STATE = {"adamw": 8, "adam": 8, "muon": 4, "adafactor": 0}  # bytes of the optimiser for each number that learns
MAX_MEETINGS = 1000  # of a weight with the cells of an image or the frames of a sound, whose results are kept
MARGIN = 0.9  # of the memory there is, for a batch that is advised: a process is not always equally large
FIRST_STEP = 2**26  # bytes of libraries that a first step loads, and of what allocators leave unused


@dataclass(frozen=True)
class TrainingMemory:
    """Bytes that the steps of a run hold; `activations` are a whole batch's, `process` was there before."""

    weights: int
    gradients: int
    optimiser: int
    activations: float = 0.0
    process: int = field(default_factory=lambda: resident_memory() + FIRST_STEP)

    @property
    def total(self) -> float:
        return self.process + self.weights + self.gradients + self.optimiser + self.activations

    def __str__(self) -> str:
        return ", ".join(f"{name} {gibibytes(size)}" for name, size in asdict(self).items() if size)


def training_memory(config: Any, recipe: Recipe, encoded: EncodedDataset, limit: float = inf) -> TrainingMemory:
    """What training the model of a config by a resolved recipe takes; no activations where the rest is over a limit."""
    model = on_meta(config)
    if recipe.model.freeze is not None:
        freeze(model, recipe.model.freeze)
    weights, learned = numbers(model.parameters()), numbers(one for one in model.parameters() if one.requires_grad)
    copies = (4 * weights if recipe.train.ema_decay else 0) + (2 * weights if recipe.train.dtype == BF16 else 0)
    found = TrainingMemory(4 * weights + copies, 4 * learned, STATE[recipe.train.optimiser] * learned)
    if found.total > limit:
        return found
    row, recompute = usual_row(recipe, encoded), recipe.train.recompute or False
    each = activation_bytes(config, model, encoded.unit, row, recompute=recompute)
    return replace(found, activations=(recipe.train.batch or 1) * each)


def surely_fits(config: Any, recipe: Recipe, unit: str, limit: float) -> bool:
    """Whether a model is so small that nothing needs to be counted: a token keeps fewer numbers than it meets weights.

    An image or a sound meets them many times.
    """
    kept = (recipe.train.batch or 1) * (1 if unit == "tokens" else MAX_MEETINGS)
    return resident_memory() + FIRST_STEP + 4 * numbers(on_meta(config).parameters()) * (5 + kept) <= limit


def usual_row(recipe: Recipe, encoded: EncodedDataset) -> int:
    """Tokens, frames or vectors of a usual row."""
    longest = recipe.data.max_length or 1
    usual = longest if encoded.rows == encoded.tokens else encoded.tokens // max(1, encoded.rows)
    return max(1, usual if encoded.unit == "frames" else min(longest, usual))


def numbers(parameters: Iterable[nn.Parameter]) -> int:
    return sum(one.numel() for one in parameters)


def fitted_to_memory(config: Any, recipe: Recipe, encoded: EncodedDataset, others: Iterable[tuple[str, Any]]) -> Recipe:
    """The recipe with activation checkpointing where it is asked for, or nothing is and the memory does not suffice.

    Refuses a model that cannot be trained in the memory there is; `others` are presets to name in its place.
    """
    limit, asked = memory_limit() or inf, recipe.train.recompute
    recipe = with_checkpointing(recipe, asked or False)
    if surely_fits(config, recipe, encoded.unit, limit):
        return recipe
    needed = training_memory(config, recipe, encoded, limit)
    if needed.total > limit and needed.activations and asked is None and innermost_blocks(on_meta(config)):
        recipe = with_checkpointing(recipe, True)
        needed = training_memory(config, recipe, encoded, limit)
    if needed.total <= limit:
        return recipe
    name = recipe.model.preset or architecture_of(config)
    said = f"training {name} needs {gibibytes(needed.total)} of memory or more ({needed})"
    fitting = (other for other, one in others if training_memory(one, recipe, encoded, limit).total <= limit)
    fits = next((f"model.preset {other} fits" for other in fitting), "give a smaller model")
    if needed.activations:
        room = MARGIN * (limit - needed.total + needed.activations)
        batch = int((recipe.train.batch or 1) * room / needed.activations)
        fits += f", or a train.batch of {batch}" if batch >= usual_row(recipe, encoded) else ""
    raise UserError(f"{said}, and there are {gibibytes(limit)}", do=fits)


def with_checkpointing(recipe: Recipe, on: bool) -> Recipe:
    return replace(recipe, train=replace(recipe.train, recompute=on))


def check_blocks(model: nn.Module, recipe: Recipe) -> None:
    """Refuses activation checkpointing for a model that has nothing to recompute."""
    if recipe.train.recompute and not innermost_blocks(model):
        said = f"train.recompute: {type(model).__name__} has no blocks to recompute"
        raise UserError(said, do="leave it out")


def smaller_presets(architecture: str, recipe: Recipe) -> list[str]:
    """The presets of an architecture, the largest first: those below the one of the recipe, if it has one."""
    same = [name for name, one in PRESETS.items() if one.architecture == architecture]
    largest = inf if recipe.model.preset is None else rough_size(recipe.model.preset)
    return sorted((name for name in same if rough_size(name) < largest), key=rough_size, reverse=True)


def rough_size(name: str) -> int:
    """In the order of parameters, among presets of one architecture."""
    sizes: Mapping[str, Any] = PRESETS[name].sizes
    layers = sizes.get("layers", 1)
    return sizes.get("dim", 1) ** 2 * (sum(layers) if isinstance(layers, tuple) else layers)
