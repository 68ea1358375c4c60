"""Images, sounds and numbers made ready to learn from: how they are sensed, and what is changed by chance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from statistics import median
from typing import Any, cast

import numpy as np
import torch

from headway.app.training.material import Material
from headway.app.training.ready import Ready, given, known, one_side
from headway.app.training.reuse import encoder_of
from headway.checkpoint import Loaded
from headway.data.archives import Place
from headway.data.images import read_image
from headway.data.kinds import Kind
from headway.data.numbers import vectors
from headway.data.preprocess import ImagePreprocess, NumberPreprocess, SoundPreprocess
from headway.data.sources import Record
from headway.data.transforms.chain import Chain, Normalise, Sometimes, Transform, as_image
from headway.data.transforms.colour import Blur, ColourJitter, Grey
from headway.data.transforms.erasing import RandomErasing
from headway.data.transforms.geometry import Flip, RandomCrop, RandomResizedCrop, Resize
from headway.data.transforms.mixing import CutMix, Either, Mixing, Mixup
from headway.data.transforms.randaugment import RandAugment
from headway.data.transforms.sound import AddedNoise, Gain, SpecAugment, Speed
from headway.errors import UserError, listed, nearest
from headway.ops.mel import LogMel
from headway.tasks.sensed import SensedLabels
from headway.tasks.senses import Hearing, Sense, Sight, Vectors
from headway.tasks.spoken import Spoken
from headway.train.recipe import Recipe
from headway.zoo.presets import preset

LOOKED = 500  # samples by which all are judged: their size, channels, mean and deviation
SMALL = 40  # pixels: what is no larger is left at about its size
SIDE = 96  # pixels of larger images, unless the preset or a person says otherwise
GRID = 32  # pixels: sides are multiples of it, where nobody says otherwise, which suits every architecture
PATCH = 4  # pixels: the same for small images
FACTOR = 4  # frames to a token of a model that hears
SHIFT = 8  # one part of so many, by which an image is moved at random


def images(recipe: Recipe, material: Material, start: Loaded | None) -> Ready:
    some = list(islice(material.train(), LOOKED))
    ready = image_preprocess(recipe, some, start)
    names = given(recipe.data.augment, ("crop",))
    chain, mixing = Chain(tuple(augmented(names, AUGMENTS, ready))), mixed(names)
    chosen: dict[str, Any] = {"data.augment": tuple(names), "model.image": ready.size[0]}
    needs = {"image": ready.size[0], "channels": ready.channels}
    return classes(recipe, material, Sight(ready, chain), needs, chosen, mixing)


def sounds(recipe: Recipe, material: Material, start: Loaded | None) -> Ready:
    sense, chosen = hearing(recipe, material, start)
    return classes(recipe, material, sense, {"features": sense.mel.mels}, chosen)


def speech(recipe: Recipe, material: Material, start: Loaded | None) -> Ready:
    """Transcripts by CTC, letter by letter unless another level is asked for."""
    sense, chosen = hearing(recipe, material, start)
    words, more = one_side(recipe, material, start, "characters", frame=False)
    factor = recipe.model.sizes.get("factor", FACTOR)
    task = Spoken(sense, words, int(cast(int, factor)))
    needs = {"features": sense.mel.mels, "vocab": words.vocab + 1, "factor": factor}
    return Ready(task, words, words, {**chosen, **more}, 0, needs, sense.ready)


def numbers(recipe: Recipe, material: Material, start: Loaded | None) -> Ready:
    rows = np.concatenate([vectors(record.fields[0]) for record in islice(material.train(), LOOKED)])
    deviation = np.maximum(rows.std(0), 1e-6)
    sense = Vectors(NumberPreprocess(tuple(rows.mean(0).tolist()), tuple(deviation.tolist())))
    order = "set" if material.kind is Kind.SETS else "series"
    return classes(recipe, material, sense, {"features": rows.shape[1], "order": order}, {})


def classes(
    recipe: Recipe,
    material: Material,
    sense: Sense,
    needs: Mapping[str, Any],
    chosen: Mapping[str, Any],
    mixing: Mixing | None = None,
) -> Ready:
    """One label for each sample."""
    names = sorted(set(known(recipe, material)))
    if len(names) < 2:
        raise UserError(f"every label in {material.name} is {names[0]!r}", do="give data with two classes or more")
    smoothing = given(recipe.train.smoothing, 0.0)
    task = SensedLabels(sense, tuple(names), smoothing, mixing)
    return Ready(task, None, None, {**chosen, "train.smoothing": smoothing}, len(names), needs, sense.ready)


def image_preprocess(recipe: Recipe, some: list[Record], start: Loaded | None) -> ImagePreprocess:
    """How images are made fit for the model: as it knows them already, or by what they are."""
    if start is not None and isinstance(start.preprocess, ImagePreprocess):
        return start.preprocess
    own = encoder_of(start).config if start else None
    pixels = [read_image(cast(Place, record.place)) for record in some[: LOOKED // 5]]
    grey = all(bool((image == image[..., :1]).all()) for image in pixels)
    channels = int(getattr(own, "channels", 1 if grey else 3))
    values = torch.cat([as_image(image[..., :channels]).flatten(1) for image in pixels], 1)  # Ch N
    mean, std = values.mean(1).tolist(), values.std(1).clamp(min=1e-3).tolist()
    side = int(cast(int, recipe.model.sizes.get("image") or getattr(own, "image", 0) or side_of(recipe, some)))
    square = (side, side)
    resize, crop = (square, None) if all(len(set(record.extent)) == 1 for record in some) else (side, square)
    return ImagePreprocess(resize, crop, channels, tuple(mean), tuple(std))


def side_of(recipe: Recipe, some: list[Record]) -> int:
    """The side of the images that a model is shown: theirs where they are small, and the preset's for others."""
    usual = int(median(min(record.extent) for record in some))
    if recipe.model.preset is not None:
        sizes = preset(recipe.model.preset).sizes
        inside = sizes.get("encoder")  # of a model that is an encoder and little else
        own = sizes.get("image", inside.get("image") if isinstance(inside, Mapping) else None)
        return int(cast(int, own)) if own is not None else 224
    return max(PATCH, usual // PATCH * PATCH) if usual <= SMALL else max(GRID, min(SIDE, usual) // GRID * GRID)


def hearing(recipe: Recipe, material: Material, start: Loaded | None) -> tuple[Hearing, dict[str, Any]]:
    """Sounds as the model knows them, or at their own rate."""
    first = next(iter(material.train()))
    rate = first.extent[1]
    if start is not None and isinstance(start.preprocess, SoundPreprocess):
        ready = start.preprocess
    else:
        mel = LogMel.speech(rate, 40 if rate <= 8000 else 80)
        ready = SoundPreprocess(rate, mel.mels, mel.n_fft, mel.window, mel.hop)
    names = given(recipe.data.augment, ("specaugment",))
    waves, frames = (Chain(tuple(augmented(names, table, ready))) for table in (WAVES, FRAMES))
    strange = next((name for name in names if name not in {**WAVES, **FRAMES}), None)
    if strange:
        raise unknown(strange, {**WAVES, **FRAMES})
    return Hearing(ready, waves, frames), {"data.augment": tuple(names)}


def augmented(names: Iterable[str], table: Mapping[str, Callable[[Any], Transform]], ready: Any) -> Iterable[Transform]:
    """The transforms of these names, in the order of the table, as far as they are in it."""
    return (make(ready) for name, make in table.items() if name in names or name in ALWAYS)


def mixed(names: Iterable[str]) -> Mixing | None:
    strange = next((name for name in names if name not in {**AUGMENTS, **MIXINGS} or name in ALWAYS), None)
    if strange:
        raise unknown(strange, [name for name in {**AUGMENTS, **MIXINGS} if name not in ALWAYS])
    chosen = tuple(make for name, make in MIXINGS.items() if name in names)
    return Either(chosen) if chosen else None


def unknown(name: str, table: Iterable[str]) -> UserError:
    return UserError(f"data.augment {name!r}", allowed=listed(table, 20), meant=nearest(name, list(table)))


def cropped(ready: ImagePreprocess) -> Transform:
    """Small images are moved a little, larger ones are seen in parts."""
    height, width = ready.size
    if max(height, width) <= SMALL:
        return Chain((Resize(height, width, ready.mode), RandomCrop(height, width, max(1, height // SHIFT))))
    return RandomResizedCrop(height, width, (0.35, 1.0), mode=ready.mode)


# in the order in which they are applied; those in ALWAYS to all images
ALWAYS = ("size", "level")
AUGMENTS: dict[str, Callable[[ImagePreprocess], Transform]] = {
    "crop": cropped,
    "size": lambda ready: Resize(*ready.size, ready.mode),  # where crop has not made it so
    "flip": lambda ready: Flip(),
    "randaugment": lambda ready: RandAugment(),
    "jitter": lambda ready: ColourJitter(),
    "grey": lambda ready: Sometimes(Grey(), 0.2),
    "blur": lambda ready: Sometimes(Blur((0.1, max(0.1, ready.size[0] / 100))), 0.5),  # of 224 pixels: up to 2
    "level": lambda ready: Normalise(ready.mean, ready.std),
    "erase": lambda ready: RandomErasing(),
}
MIXINGS: dict[str, Mixing] = {"mixup": Mixup(), "cutmix": CutMix()}
WAVES: dict[str, Callable[[SoundPreprocess], Transform]] = {
    "speed": lambda ready: Speed(),
    "noise": lambda ready: AddedNoise(),
    "gain": lambda ready: Gain(),
}
FRAMES: dict[str, Callable[[SoundPreprocess], Transform]] = {
    "specaugment": lambda ready: SpecAugment(bands=max(1, ready.mels // 5), longest=20),
}
