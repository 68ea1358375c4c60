"""Tasks on images, sounds and numbers: how their models read a sample, and how rows on disk keep where it is.

What a model is trained on is preprocessed as the model to start from knows it, or by what the data is: `image_setup`,
`sound_setup` and `series_setup` choose preprocessing and augmentation.

Axes:  B batch   C width
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any, Generic, NamedTuple, Self, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from headway.data.images import is_grey, mean_and_std
from headway.data.numbers import vectors
from headway.data.order import batched, random_for
from headway.data.preprocess import ImagePreprocess, NumberPreprocess, SoundPreprocess
from headway.data.records import Record
from headway.data.shards import Shards
from headway.data.sounds import commonest
from headway.data.splits import DataSplits, subsample
from headway.data.text_lines import MediaLocation
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
    generators,
)
from headway.data.transforms.geometry import Flip, RandomCrop, RandomErasing, RandomResizedCrop, Resize
from headway.errors import UserError, listed, nearest
from headway.nn.head import MeanPool
from headway.nn.trunk import device_of, encoder_of
from headway.ops.losses import unit_vectors
from headway.ops.mel import LogMel
from headway.recipe import Recipe
from headway.tasks.base import ENCODED_TOGETHER, UNKNOWN_TOKENS, RecordTask, Task
from headway.tasks.batches import DataRow, EncoderInput, Row, ids, to_device
from headway.tasks.inputs import ImageInput, Input, MelInput, ModelInput, SeriesInput, ShownInput
from headway.tasks.model_parts import ModelParts
from headway.tasks.results import (
    Sample,
    example_of,
)
from headway.tasks.text_tasks import given
from headway.tasks.tracing import TracedRun, Vector
from headway.zoo.encoders import encoder_config
from headway.zoo.presets import preset

PROBED = 500  # samples by which all are judged: how large images are, mean and deviation of numbers
OPENED = 100  # images of these by which all are judged: their channels, mean and deviation
SMALL = 40  # pixels: what is no larger is left at about its size
SIDE = 96  # pixels of larger images, unless the preset or a person says otherwise
GRID = 32  # pixels: sides are multiples of it, where nobody says otherwise, which suits every architecture
PATCH = 4  # pixels: the same for small images
SUBSAMPLING = 4  # frames to a token of a model of sounds
SHIFT = 8  # one part of so many, by which an image is moved at random

I = TypeVar("I", bound=Input)
Augmentations = Mapping[str, Callable[[ImagePreprocess], Transform]]  # by name, in the order in which they are applied


class InputSetup(NamedTuple, Generic[I]):
    """How samples are read, the settings that were chosen for that, and fields of the model's config that follow."""

    input: I
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
) -> InputSetup[ImageInput]:
    """`besides` are augmentations of whole batches, which the task applies."""
    ready = image_preprocess(recipe, splits, start)
    names = augmentation_names(recipe, usual, [*(name for name in table if name not in ALWAYS), *besides])
    side = ready.size[0]
    config = {"image": side, "channels": ready.channels}
    return InputSetup(
        ImageInput(ready, composed(names, table, ready)), {"data.augment": names, "model.image": side}, config
    )


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


def sound_setup(recipe: Recipe, splits: DataSplits, start: ModelParts | None) -> InputSetup[MelInput]:
    """Sounds as the model knows them, or at the rate that most of them have."""
    if start is not None and isinstance(start.preprocess, SoundPreprocess):
        ready = start.preprocess
    else:
        records = splits.train() if splits.validation_paths else chain(splits.train(), splits.validation())
        rate = commonest(record.extent[1] for record in records)
        assert rate is not None
        ready = SoundPreprocess(LogMel.speech(rate, 40 if rate <= 8000 else 80))
    names = augmentation_names(recipe, ("specaugment",), [*WAVES, *FRAMES])
    input = MelInput(ready, composed(names, WAVES, ready), composed(names, FRAMES, ready))
    return InputSetup(input, {"data.augment": names}, {"features": ready.mel.mels})


def series_setup(splits: DataSplits, start: ModelParts | None) -> InputSetup[SeriesInput]:
    """Numbers on the scale that the model knows, or on their own."""
    seen = np.concatenate([vectors(record.fields[0]) for record in splits.some(PROBED)])
    count = seen.shape[1]
    if start is not None and isinstance(start.preprocess, NumberPreprocess):
        ready = start.preprocess
        if len(ready.mean) != count:
            said = f"vectors of {count} numbers for a model that reads vectors of {len(ready.mean)}"
            raise UserError(said, do="choose as many with data.columns, or leave model.from out")
    else:
        whole = seen.astype(np.float64)  # the square of a large number overflows float32
        ready = NumberPreprocess(tuple(whole.mean(0).tolist()), tuple(np.maximum(whole.std(0), 1e-6).tolist()))
    return InputSetup(SeriesInput(ready), {}, {"features": count})


def augmentation_names(recipe: Recipe, usual: Sequence[str], allowed: Sequence[str]) -> tuple[str, ...]:
    """Augmentations by name: as asked, where an empty name asks for none, or as usual."""
    names = tuple(name for name in given(recipe.data.augment, usual) if name)
    unknown = next((name for name in names if name not in allowed), None)
    if unknown is not None:
        said = f"data.augment {unknown!r}"
        raise UserError(said, allowed=listed(allowed, 20), meant=nearest(unknown, allowed))
    return names


def composed(names: Sequence[str], table: Mapping[str, Callable[[Any], Transform]], ready: Any) -> Compose:
    """The transforms of these names, in the order of the table, as far as they are in it."""
    return Compose(tuple(make(ready) for name, make in table.items() if name in names or name in ALWAYS))


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


class MediaReader(Task):
    """A task whose models read images, sounds or numbers."""

    input: Input
    series_columns: Sequence[str | int] | None = None  # of a table, where a model knows its columns by name

    def sample_input(self, folder: Path, context: int | None) -> str:
        return self.input.sample(folder)

    def example(self, splits: DataSplits, samples: Sequence[Sample]) -> str:
        return example_of(samples) or next(splits.train()).name

    def read(self, model: nn.Module, inputs: Sequence[str]) -> ModelInput:
        """What a model is called with for some files, or texts of numbers."""
        return self.opened(model, [self.locate(one) for one in inputs])

    def opened(self, model: nn.Module, stored: Sequence[str]) -> ModelInput:
        never, plain = random_for("unused"), self.input.without_augmentation()
        return to_device(plain.collate([plain.load(one, never) for one in stored]), device_of(model))

    @property
    def noun(self) -> str:
        return self.input.noun

    def locate(self, given: str) -> str:
        return self.input.locate(given, self.series_columns)

    def encoder_rows(self, model: nn.Module, inputs: Sequence[str]) -> Iterator[DataRow]:
        """Images have one size; others are read one at a time, without padding."""
        for at, one in enumerate(inputs):
            name = one if self.noun == "numbers" else MediaLocation.parsed(one).path.name
            yield DataRow((0 if self.noun == "images" else at,), UNKNOWN_TOKENS, one, name, at)

    def encoder_input(self, model: nn.Module, rows: Sequence[DataRow]) -> EncoderInput:
        return EncoderInput(*self.opened(model, [one.row for one in rows]))

    @torch.inference_mode()
    def embed(self, model: nn.Module, inputs: Sequence[str]) -> Tensor:
        return self.pooled(model, self.read(model, inputs))

    def pooled(self, model: nn.Module, read: ModelInput) -> Tensor:
        """The mean of each sample's features, of length 1, B C."""
        encoder = encoder_of(model)
        features = encoder.features(*read)
        features = features.flatten(1, 2) if features.dim() == 4 else features
        return unit_vectors(MeanPool()(features, encoder.inner(read.context)))

    def shown(self, model: nn.Module, given: str) -> ShownInput:
        """One sample, opened to be traced."""
        stored = self.locate(given)
        return self.input.shown(model, stored, self.opened(model, [stored]))

    def traced_vector(self, model: nn.Module, given: str) -> TracedRun:
        """A vector for all of a sample."""
        shown = self.shown(model, given)
        return shown.run(model, lambda: self.pooled(model, shown.read)[0], Vector())


class MediaTask(MediaReader, RecordTask):
    """A task on samples.  The first columns of its rows are those of `StoredSample`."""

    @property
    def unit(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.input.unit

    def sizes(self, rows: Shards) -> np.ndarray:
        return rows.stream(1)[:]

    def loaded(self, rows: Sequence[Row], random: np.random.Generator) -> ModelInput:
        """The samples of some rows, each augmented by random numbers of its own."""
        samples = zip(rows, generators(random, len(rows)), strict=True)
        return self.input.collate([self.input.load(stored_text(row[0]), draw) for row, draw in samples])

    def loss_rows(self, model: nn.Module, records: Iterable[Record]) -> Iterator[DataRow]:
        """Rows whose files are opened later: their sizes are known."""
        for part in batched(records, ENCODED_TOGETHER):
            self.check(part)
            for record, row in zip(part, self.encode([record.handed[:3] for record in part]), strict=True):
                size, text = row[1][0], self.text_length(row)
                tokens = self.input.tokens(model, size) or UNKNOWN_TOKENS
                yield DataRow((size, text), tokens + text, tuple(map(ids, row)), self.row_name(record))

    def text_length(self, row: list[list[int]]) -> int:
        """Tokens of a row that stand for a text about its sample, and must be as many in all rows of a batch."""
        return 0

    def row_name(self, record: Record) -> str:
        """What a person knows a sample by."""
        return record.name if record.place is None else Path(record.name).name

    def without_augmentation(self) -> Self:
        return replace(self, input=self.input.without_augmentation())  # pyright: ignore[reportArgumentType, reportCallIssue]


class StoredSample(NamedTuple):
    """The columns of a row in which a sample is kept on disk."""

    text: list[int]  # its bytes
    size: list[int]


def stored_sample(input: Input, stored: str, *extent: str) -> StoredSample:
    numbers = [int(number) for part in extent for number in part.split()]
    return StoredSample(list(stored.encode()), [input.size(stored, numbers)])


def stored_text(column: np.ndarray) -> str:
    """The text of which a row keeps the bytes."""
    return bytes(np.asarray(column, np.uint8)).decode()


def batch_size(rows: Sequence[Row]) -> int:
    """What the samples of some rows count for in a batch."""
    return sum(int(row[1][0]) for row in rows)


def first_texts(records: Iterable[Record]) -> Iterator[Record]:
    """Of several records about one file, the first."""
    known = set[str]()
    for record in records:
        if record.handed[0] not in known:
            known.add(record.handed[0])
            yield record
