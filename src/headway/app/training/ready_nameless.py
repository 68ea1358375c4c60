"""Images that are learned from without classes: some of each is hidden, or two views of it are compared."""

from __future__ import annotations

from typing import Any

from headway.app.training.material import Material
from headway.app.training.ready import Ready
from headway.app.training.ready_media import AUGMENTS, Table, sight
from headway.checkpoint import Loaded
from headway.data.transforms.chain import Sometimes
from headway.data.transforms.colour import ColourJitter
from headway.data.transforms.geometry import RandomResizedCrop
from headway.tasks.hidden import HiddenPatches
from headway.tasks.views import TwoViews
from headway.train.recipe import Recipe
from headway.zoo.presets import preset

# what makes a view: as SimCLR has it, with crops of a fifth or more, since less of a small image shows nothing
VIEWS: Table = {
    **AUGMENTS,
    "crop": lambda ready: RandomResizedCrop(*ready.size, (0.2, 1.0), mode=ready.mode),
    "jitter": lambda ready: Sometimes(ColourJitter(0.4, 0.4, 0.4, 0.1), 0.8),
}
TEMPERATURE = 0.5  # where neither preset nor person says another


def masked(recipe: Recipe, material: Material, start: Loaded | None) -> Ready:
    sense, chosen, needs = sight(recipe, material, start, AUGMENTS, ("crop",))
    return Ready(HiddenPatches(sense), None, None, chosen, 0, needs, sense.ready)


def contrastive(recipe: Recipe, material: Material, start: Loaded | None) -> Ready:
    sense, chosen, needs = sight(recipe, material, start, VIEWS, ("crop", "flip", "jitter", "grey", "blur"))
    temperature = temperature_of(recipe, start)
    needs = {**needs, "temperature": temperature}
    return Ready(TwoViews(sense, temperature), None, None, chosen, 0, needs, sense.ready)


def temperature_of(recipe: Recipe, start: Loaded | None) -> float:
    own = preset(recipe.model.preset).sizes if recipe.model.preset else {}
    usual = own.get("temperature", TEMPERATURE) if start is None else getattr(start.config, "temperature", TEMPERATURE)
    found: Any = recipe.model.sizes.get("temperature", usual)
    return float(found)
