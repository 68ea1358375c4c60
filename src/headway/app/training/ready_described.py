"""Images with captions, and speech, made ready to write texts about; or, of captions, to tell which belongs where."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from headway.app.training.material import Material
from headway.app.training.ready import Ready, beginning, given, one_side
from headway.app.training.ready_media import AUGMENTS, FACTOR, Table, hearing, sight
from headway.checkpoint import Loaded
from headway.data.tokenizer import Tokenizer
from headway.data.transforms.geometry import RandomResizedCrop
from headway.errors import UserError
from headway.tasks.described import Captions
from headway.tasks.matches import Matches
from headway.tasks.senses import Sense, Sight
from headway.train.recipe import Recipe

LONGEST = 64  # tokens of a caption, unless given
BATCH = 32  # images with all their captions
PAIRS = 128  # images with a caption each: the more, the more there is to tell apart
# crops that leave most of what a caption tells of
CROPS: Table = {**AUGMENTS, "crop": lambda ready: RandomResizedCrop(*ready.size, (0.6, 1.0), mode=ready.mode)}


def captions(recipe: Recipe, material: Material, start: Loaded | None) -> Ready:
    """What is on images, in words."""
    sense, chosen, needs = sight(recipe, material, start, CROPS, ("crop", "flip"))
    chosen = {**chosen, "train.batch": given(recipe.train.batch, BATCH)}
    return writing(recipe, material, start, sense, "bpe", chosen, needs)


def dictation(recipe: Recipe, material: Material, start: Loaded | None) -> Ready:
    """What is said in sounds, written by a decoder."""
    sense, chosen = hearing(recipe, material, start)
    factor = recipe.model.sizes.get("factor", FACTOR)
    needs = {"features": sense.mel.mels, "factor": factor, "top": "decoder"}
    return writing(recipe, material, start, sense, "characters", chosen, needs)


def writing(
    recipe: Recipe,
    material: Material,
    start: Loaded | None,
    sense: Sense,
    level: str,
    chosen: dict[str, Any],
    needs: dict[str, Any],
) -> Ready:
    words, more = one_side(recipe, material, start, level, frame=False, after=True)
    smoothing, longest = given(recipe.train.smoothing, 0.1), given(recipe.data.longest, LONGEST)
    task = Captions(sense, words, longest, beginning(start, words), smoothing)
    chosen = {**chosen, **more, "train.smoothing": smoothing, "data.longest": longest}
    return Ready(task, words, words, chosen, 0, {**needs, "vocab": words.vocab}, sense.ready)


def matches(recipe: Recipe, material: Material, start: Loaded | None) -> Ready:
    """Which caption belongs to which image."""
    sense, chosen, needs = sight(recipe, material, start, CROPS, ("crop", "flip"))
    sense = in_colour(sense)
    words, more = one_side(recipe, material, start, "bpe", frame=True)
    longest = context_of(recipe, start)
    task = Matches(sense, words, longest)
    chosen = {**chosen, **more, "data.longest": longest, "train.batch": given(recipe.train.batch, PAIRS)}
    needs = {"image": needs["image"], "vocab": words.vocab, "end": end_of(words), "context": longest}
    return Ready(task, words, words, chosen, 0, needs, sense.ready)


def in_colour(sense: Sight) -> Sight:
    """With three channels, which is what a CLIP sees of grey images too."""
    if sense.ready.channels == 3:
        return sense
    ready = replace(sense.ready, channels=3, mean=sense.ready.mean * 3, std=sense.ready.std * 3)
    return replace(sense, ready=ready)


def context_of(recipe: Recipe, start: Loaded | None) -> int:
    """Tokens of a text, no more than a model that is there has positions for."""
    longest = int(given(recipe.data.longest, cast(int, recipe.model.sizes.get("context", LONGEST))))
    return longest if start is None else min(longest, start.config.context)


def end_of(words: Tokenizer) -> int:
    if words.eos is None:
        raise UserError("the tokenizer has no token that ends a text", do="train without --from")
    return words.eos
