"""Images, sounds and numbers made ready to learn from: preprocessing by what the data is, and augmentation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from headway.data.archives import MediaLocation
from headway.data.images import is_grey, mean_and_std
from headway.data.numbers import vectors
from headway.data.preprocess import ImagePreprocess, NumberPreprocess, SoundPreprocess
from headway.data.splits import DataSplits, subsample
from headway.data.transforms.colour import Blur, ColourJitter, Grey, RandAugment
from headway.data.transforms.compose import (
    AddedNoise,
    Compose,
    Gain,
    Normalise,
    RandomApply,
    SpecAugment,
    Speed,
    Transform,
)
from headway.data.transforms.geometry import Flip, RandomCrop, RandomErasing, RandomResizedCrop, Resize
from headway.errors import UserError, listed, nearest
from headway.ops.mel import LogMel
from headway.tasks.inputs import ImageInput, MelInput, SeriesInput
from headway.tasks.vocabulary import given
from headway.zoo.encoders import encoder_config
from headway.zoo.presets import preset

if TYPE_CHECKING:
    from headway.data.sources import Record
    from headway.recipe import Recipe
    from headway.tasks.base import ModelParts

PROBED = 500  # samples by which all are judged: how large images are, mean and deviation of numbers
OPENED = 100  # images of these by which all are judged: their channels, mean and deviation
SMALL = 40  # pixels: what is no larger is left at about its size
SIDE = 96  # pixels of larger images, unless the preset or a person says otherwise
GRID = 32  # pixels: sides are multiples of it, where nobody says otherwise, which suits every architecture
PATCH = 4  # pixels: the same for small images
SUBSAMPLING = 4  # frames to a token of a model of sounds
SHIFT = 8  # one part of so many, by which an image is moved at random

Augmentations = Mapping[str, Callable[[ImagePreprocess], Transform]]  # by name, in the order in which they are applied


class ImageSetup(NamedTuple):
    """How images are read, the settings that were chosen for that, and what the model must fit."""

    input: ImageInput
    chosen: dict[str, Any]
    config: dict[str, Any]


def image_setup(
    recipe: Recipe,
    splits: DataSplits,
    start: ModelParts | None,
    table: Augmentations,
    usual: Sequence[str],
    *,
    besides: Iterable[str] = (),
) -> ImageSetup:
    """`besides` are augmentations of whole batches, which the task applies."""
    ready = image_preprocess(recipe, splits, start)
    names = augmentation_names(recipe, usual, [*(name for name in table if name not in ALWAYS), *besides])
    input = ImageInput(ready, Compose(tuple(transforms(names, table, ready))))
    side = ready.size[0]
    chosen = {"data.augment": names, "model.image": side}
    return ImageSetup(input, chosen, {"image": side, "channels": ready.channels})


def image_preprocess(recipe: Recipe, splits: DataSplits, start: ModelParts | None) -> ImagePreprocess:
    """How images are made fit for the model: as it knows them already, or by what they are."""
    if start is not None and isinstance(start.preprocess, ImagePreprocess):
        return start.preprocess
    own, some = encoder_config(start.config).config if start else None, splits.some(PROBED)
    places = [cast(MediaLocation, record.place) for record in subsample(some, OPENED)]
    channels = int(getattr(own, "channels", 0)) or (1 if all(map(is_grey, places)) else 3)
    mean, std = mean_and_std(places, channels)
    side = int(cast(int, recipe.model.sizes.get("image") or getattr(own, "image", 0) or image_side(recipe, some)))
    square = (side, side)
    resize, crop = (square, None) if all(len(set(record.extent)) == 1 for record in some) else (side, square)
    return ImagePreprocess(resize, crop, channels, mean, std)


def image_side(recipe: Recipe, some: list[Record]) -> int:
    """The side of the images that a model is shown: theirs where they are small, and the preset's for others."""
    usual = int(median(min(record.extent) for record in some))
    if recipe.model.preset is not None:
        sizes = preset(recipe.model.preset).sizes
        inner = sizes.get("encoder")  # of a model that is an encoder and little else
        own = sizes.get("image", inner.get("image") if isinstance(inner, Mapping) else None)
        return int(cast(int, own)) if own is not None else 224
    return max(PATCH, usual // PATCH * PATCH) if usual <= SMALL else max(GRID, min(SIDE, usual) // GRID * GRID)


def sound_setup(recipe: Recipe, splits: DataSplits, start: ModelParts | None) -> tuple[MelInput, dict[str, Any]]:
    """Sounds as the model knows them, or at their own rate; and the settings that were chosen."""
    first = next(iter(splits.train()))
    rate = first.extent[1]
    if start is not None and isinstance(start.preprocess, SoundPreprocess):
        ready = start.preprocess
    else:
        ready = SoundPreprocess(LogMel.speech(rate, 40 if rate <= 8000 else 80))
    names = augmentation_names(recipe, ("specaugment",), [*WAVES, *FRAMES])
    waves, frames = (Compose(tuple(transforms(names, table, ready))) for table in (WAVES, FRAMES))
    return MelInput(ready, waves, frames), {"data.augment": names}


def series_input(splits: DataSplits, start: ModelParts | None) -> SeriesInput:
    """Numbers on the scale that the model knows, or on their own."""
    seen = np.concatenate([vectors(record.fields[0]) for record in splits.some(PROBED)])
    if start is not None and isinstance(start.preprocess, NumberPreprocess):
        ready = start.preprocess
        if len(ready.mean) != seen.shape[1]:
            said = f"vectors of {seen.shape[1]} numbers for a model that reads vectors of {len(ready.mean)}"
            raise UserError(said, do="choose as many with data.columns, or leave model.from out")
        return SeriesInput(ready)
    whole = seen.astype(np.float64)  # the square of a large number overflows float32
    deviation = np.maximum(whole.std(0), 1e-6)
    return SeriesInput(NumberPreprocess(tuple(whole.mean(0).tolist()), tuple(deviation.tolist())))


def augmentation_names(recipe: Recipe, usual: Sequence[str], allowed: Sequence[str]) -> tuple[str, ...]:
    """Augmentations by name: as asked, or as usual."""
    names = tuple(given(recipe.data.augment, usual))
    unknown = next((name for name in names if name not in allowed), None)
    if unknown is not None:
        said = f"data.augment {unknown!r}"
        raise UserError(said, allowed=listed(allowed, 20), meant=nearest(unknown, allowed))
    return names


def transforms(
    names: Sequence[str], table: Mapping[str, Callable[[Any], Transform]], ready: Any
) -> Iterable[Transform]:
    """The transforms of these names, in the order of the table, as far as they are in it."""
    return (make(ready) for name, make in table.items() if name in names or name in ALWAYS)


def cropped(ready: ImagePreprocess) -> Transform:
    """Small images are moved a little, larger ones are seen in parts."""
    height, width = ready.size
    if max(height, width) <= SMALL:
        return Compose((Resize(height, width, ready.mode), RandomCrop(height, width, max(1, height // SHIFT))))
    return RandomResizedCrop(height, width, (0.35, 1.0), mode=ready.mode)


# in the order in which they are applied; those in ALWAYS to all images
ALWAYS = ("size", "level")
AUGMENTATIONS: Augmentations = {
    "crop": cropped,
    "size": lambda ready: Resize(*ready.size, ready.mode),  # where crop has not made it so
    "flip": lambda ready: Flip(),
    "randaugment": lambda ready: RandAugment(),
    "jitter": lambda ready: ColourJitter(),
    "grey": lambda ready: RandomApply(Grey(), 0.2),
    "blur": lambda ready: RandomApply(Blur((0.1, max(0.1, ready.size[0] / 100))), 0.5),  # of 224 pixels: up to 2
    "level": lambda ready: Normalise(ready.mean, ready.std),
    "erase": lambda ready: RandomErasing(),
}
WAVES: dict[str, Callable[[SoundPreprocess], Transform]] = {
    "speed": lambda ready: Speed(),
    "noise": lambda ready: AddedNoise(),
    "gain": lambda ready: Gain(),
}
FRAMES: dict[str, Callable[[SoundPreprocess], Transform]] = {
    "specaugment": lambda ready: SpecAugment(bands=max(1, ready.mel.mels // 5), longest=20),
}
