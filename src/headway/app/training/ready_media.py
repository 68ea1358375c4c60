"""Images, sounds and numbers made ready to learn from: how they are sensed, and what is changed by chance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any, cast

import numpy as np

from headway.app.training.material import Material
from headway.app.training.ready import Ready, check_classes, given, known, one_side
from headway.app.training.reuse import encoder_of
from headway.checkpoint import Loaded
from headway.data.archives import Place
from headway.data.drawn import drawn
from headway.data.images import is_grey, mean_and_std
from headway.data.kinds import Kind
from headway.data.numbers import vectors
from headway.data.preprocess import ImagePreprocess, NumberPreprocess, SoundPreprocess
from headway.data.sources import Record
from headway.data.transforms.chain import Chain, Normalise, Sometimes, Transform
from headway.data.transforms.colour import Blur, ColourJitter, Grey
from headway.data.transforms.erasing import RandomErasing
from headway.data.transforms.geometry import Flip, RandomCrop, RandomResizedCrop, Resize
from headway.data.transforms.mixing import CutMix, Either, Mixing, Mixup
from headway.data.transforms.randaugment import RandAugment
from headway.data.transforms.sound import AddedNoise, Gain, SpecAugment, Speed
from headway.errors import UserError, listed, nearest
from headway.ops.mel import LogMel
from headway.tasks.forecast import Forecasting
from headway.tasks.sensed import SensedLabels
from headway.tasks.senses import Hearing, Sense, Sight, Vectors
from headway.tasks.spoken import Spoken
from headway.train.recipe import Recipe
from headway.zoo.presets import preset

LOOKED = 500  # samples by which all are judged: how large images are, mean and deviation of numbers
OPENED = 100  # images of these by which all are judged: their channels, mean and deviation
SMALL = 40  # pixels: what is no larger is left at about its size
SIDE = 96  # pixels of larger images, unless the preset or a person says otherwise
GRID = 32  # pixels: sides are multiples of it, where nobody says otherwise, which suits every architecture
PATCH = 4  # pixels: the same for small images
FACTOR = 4  # frames to a token of a model that hears
SPANS, CONTEXT = 16, (8, 128)  # a series is so many spans at least, of so many rows at least and at most
SHIFT = 8  # one part of so many, by which an image is moved at random

Table = Mapping[str, Callable[[ImagePreprocess], Transform]]  # what images are changed by


def images(recipe: Recipe, material: Material, start: Loaded | None) -> Ready:
    sense, chosen, needs = sight(recipe, material, start, AUGMENTS, ("crop",), besides=MIXINGS)
    mixings = tuple(mixing for name, mixing in MIXINGS.items() if name in chosen["data.augment"])
    return classes(recipe, material, sense, needs, chosen, Either(mixings) if mixings else None)


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
    sense, order = reading(material, start), "set" if material.kind is Kind.SETS else "series"
    return classes(recipe, material, sense, {"features": len(sense.ready.mean), "order": order}, {})


def rows(recipe: Recipe, material: Material, start: Loaded | None) -> Ready:
    """What comes next in a table; a row is foreseen from fewer where there are few to learn from."""
    sense, count = reading(material, start), sum(1 for _ in material.train())
    context = given(recipe.data.longest, min(max(count // SPANS, CONTEXT[0]), CONTEXT[1]))
    needs = {"features": len(sense.ready.mean), "context": context}
    return Ready(Forecasting(sense, material.columns), None, None, {"data.longest": context}, 0, needs, sense.ready)


def reading(material: Material, start: Loaded | None) -> Vectors:
    """Numbers on the scale that the model knows, or on their own."""
    seen = np.concatenate([vectors(record.fields[0]) for record in material.some(LOOKED)])
    if start is not None and isinstance(start.preprocess, NumberPreprocess):
        ready = start.preprocess
        if len(ready.mean) != seen.shape[1]:
            said = f"vectors of {seen.shape[1]} numbers for a model that reads vectors of {len(ready.mean)}"
            raise UserError(said, do="choose as many columns with --columns, or leave --from out")
        return Vectors(ready)
    whole = seen.astype(np.float64)  # the square of a large number would be none in four bytes
    deviation = np.maximum(whole.std(0), 1e-6)
    return Vectors(NumberPreprocess(tuple(whole.mean(0).tolist()), tuple(deviation.tolist())))


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
    check_classes(material, names)
    smoothing = given(recipe.train.smoothing, 0.0)
    task = SensedLabels(sense, tuple(names), smoothing, mixing)
    return Ready(task, None, None, {**chosen, "train.smoothing": smoothing}, len(names), needs, sense.ready)


def sight(
    recipe: Recipe,
    material: Material,
    start: Loaded | None,
    table: Table,
    usual: Sequence[str],
    *,
    besides: Iterable[str] = (),
) -> tuple[Sight, dict[str, Any], dict[str, Any]]:
    """How images are seen, what was chosen for that, and what the model must fit; `besides` are changes of batches."""
    ready = image_preprocess(recipe, material, start)
    names = changes(recipe, usual, [*(name for name in table if name not in ALWAYS), *besides])
    sense = Sight(ready, Chain(tuple(augmented(names, table, ready))))
    side = ready.size[0]
    return sense, {"data.augment": names, "model.image": side}, {"image": side, "channels": ready.channels}


def image_preprocess(recipe: Recipe, material: Material, start: Loaded | None) -> ImagePreprocess:
    """How images are made fit for the model: as it knows them already, or by what they are."""
    if start is not None and isinstance(start.preprocess, ImagePreprocess):
        return start.preprocess
    own, some = encoder_of(start).config if start else None, material.some(LOOKED)
    places = [cast(Place, record.place) for record in drawn(some, OPENED)]
    channels = int(getattr(own, "channels", 0)) or (1 if all(map(is_grey, places)) else 3)
    mean, std = mean_and_std(places, channels)
    side = int(cast(int, recipe.model.sizes.get("image") or getattr(own, "image", 0) or side_of(recipe, some)))
    square = (side, side)
    resize, crop = (square, None) if all(len(set(record.extent)) == 1 for record in some) else (side, square)
    return ImagePreprocess(resize, crop, channels, mean, std)


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
        ready = SoundPreprocess(LogMel.speech(rate, 40 if rate <= 8000 else 80))
    names = changes(recipe, ("specaugment",), [*WAVES, *FRAMES])
    waves, frames = (Chain(tuple(augmented(names, table, ready))) for table in (WAVES, FRAMES))
    return Hearing(ready, waves, frames), {"data.augment": names}


def changes(recipe: Recipe, usual: Sequence[str], allowed: Sequence[str]) -> tuple[str, ...]:
    """What is changed by chance, by name: as asked, or as usual."""
    names = tuple(given(recipe.data.augment, usual))
    strange = next((name for name in names if name not in allowed), None)
    if strange is not None:
        said = f"data.augment {strange!r}"
        raise UserError(said, allowed=listed(allowed, 20), meant=nearest(strange, allowed))
    return names


def augmented(names: Sequence[str], table: Mapping[str, Callable[[Any], Transform]], ready: Any) -> Iterable[Transform]:
    """The transforms of these names, in the order of the table, as far as they are in it."""
    return (make(ready) for name, make in table.items() if name in names or name in ALWAYS)


def cropped(ready: ImagePreprocess) -> Transform:
    """Small images are moved a little, larger ones are seen in parts."""
    height, width = ready.size
    if max(height, width) <= SMALL:
        return Chain((Resize(height, width, ready.mode), RandomCrop(height, width, max(1, height // SHIFT))))
    return RandomResizedCrop(height, width, (0.35, 1.0), mode=ready.mode)


# in the order in which they are applied; those in ALWAYS to all images
ALWAYS = ("size", "level")
AUGMENTS: Table = {
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
    "specaugment": lambda ready: SpecAugment(bands=max(1, ready.mel.mels // 5), longest=20),
}
