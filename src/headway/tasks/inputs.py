"""How a sample becomes what a model reads: pixels, frames of sound, or vectors, prepared when a batch is made.

A row on disk holds where a sample is (or its numbers), never the sample itself; `load` opens it.  Augmentation is
decided by the random numbers that `load` is handed.

Axes:  B batch   Ch channels   H height   W width   T frames   F features   N frames of all rows   C width
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from headway.data.idx import numbered
from headway.data.images import read_image
from headway.data.numbers import numbers_of, vectors
from headway.data.preprocess import ImagePreprocess, NumberPreprocess, Preprocess, SoundPreprocess
from headway.data.sounds import read_sound
from headway.data.text_lines import MediaLocation, inside
from headway.data.transforms.compose import Compose, as_image
from headway.nn.context import Context, PackedLengths
from headway.nn.frames import Shortening, WaveEmbed
from headway.nn.image import ClassToken, ImageEmbed, SpectrogramEmbed
from headway.nn.trunk import Trunk, encoder_of
from headway.ops.mel import LogMel
from headway.ops.patches import patch_grid
from headway.tasks.media_encoding import picture_of, sample_image, sample_sound, sound_of
from headway.tasks.model_parts import ModelParts, reads_media
from headway.tasks.tracing import (
    Axes,
    Axis,
    InputImage,
    InputSeries,
    InputSound,
    ItemAxis,
    OutcomeReader,
    TracedRun,
    cells,
    frames,
)

NO_CHANGE = Compose()
LABEL_CHARACTERS = 24  # of a vector's numbers, in its label


class ModelInput(NamedTuple):
    """What a model is called with."""

    inputs: Tensor
    context: Context

    @property
    def lengths(self) -> list[int]:
        """How long each row is."""
        rows = self.context.rows
        return [self.inputs.shape[1]] * len(self.inputs) if rows is None else list(rows.lengths)


class ShownInput(NamedTuple):
    """What a model was given, as it takes it in; `axis` are the tokens that its encoder makes of it, if any."""

    read: ModelInput
    axis: Axis | None
    picture: InputImage | None = None
    sound: InputSound | None = None
    series: InputSeries | None = None

    def run(self, model: nn.Module, call: Callable[[], Tensor], reader: OutcomeReader) -> TracedRun:
        """A call of the encoder, whose tokens are the axis; without one, every layer has a grid of its own."""
        axes = Axes({} if self.axis is None else {"": self.axis})
        return TracedRun(model, call, reader, axes, picture=self.picture, sound=self.sound, series=self.series)


@dataclass(frozen=True)
class Input(ABC):
    """How samples are read; a frozen value, cheap to pickle.  `preprocess` travels with the model."""

    unit: ClassVar[str]  # what batches are counted in
    noun: ClassVar[str]  # what samples are called: images, sounds or numbers

    preprocess: Preprocess

    @abstractmethod
    def size(self, stored: str, extent: Sequence[int]) -> int:
        """How much a sample counts for in a batch."""

    @abstractmethod
    def load(self, stored: str, random: np.random.Generator) -> Tensor:
        """One sample, opened."""

    def locate(self, given: str, columns: Sequence[str | int] | None) -> str:
        """What a person names, as `load` takes it."""
        return file_named(given).spelled()

    def collate(self, samples: Sequence[Tensor]) -> ModelInput:
        """Rows of any lengths: packed, 1 N F; or B T F where all are equally long."""
        lengths = [len(sample) for sample in samples]
        if len(set(lengths)) == 1:
            return ModelInput(torch.stack(list(samples)), Context())
        return ModelInput(torch.cat(list(samples))[None], Context(rows=PackedLengths.of(lengths)))

    def without_augmentation(self) -> Self:
        return self

    @abstractmethod
    def sample(self, folder: Path) -> str:
        """Something to read, written into the folder where it is a file."""

    def tokens(self, model: nn.Module, size: int) -> int | None:
        """How many tokens a sample of this size becomes; None where that is not counted."""
        embed = encoder_of(model).embed
        return max(1, embed.length(size)) if isinstance(embed, Shortening) else size

    @abstractmethod
    def shown(self, model: nn.Module, stored: str, read: ModelInput) -> ShownInput:
        """A sample as people see it, beside what a model's encoder makes of it."""


@dataclass(frozen=True)
class ImageInput(Input):
    """Images, each Ch H W of one size."""

    unit = noun = "images"

    preprocess: ImagePreprocess
    augment: Compose | None = None  # in the place of the resizing and cropping of `preprocess`

    def size(self, stored: str, extent: Sequence[int]) -> int:
        return 1

    def load(self, stored: str, random: np.random.Generator) -> Tensor:
        return next(self.views(stored, random))

    def views(self, stored: str, random: np.random.Generator) -> Iterator[Tensor]:
        """The same image again and again, each time augmented anew."""
        image = as_image(read_image(MediaLocation.parsed(stored), self.preprocess.channels))
        changed = self.augment or self.preprocess.chain()
        while True:
            yield changed(image, random)

    def collate(self, samples: Sequence[Tensor]) -> ModelInput:
        return ModelInput(torch.stack(list(samples)), Context())

    def without_augmentation(self) -> ImageInput:
        return replace(self, augment=None)

    def sample(self, folder: Path) -> str:
        return str(sample_image(folder / "disc.png"))

    def tokens(self, model: nn.Module, size: int) -> int | None:
        return None

    def shown(self, model: nn.Module, stored: str, read: ModelInput) -> ShownInput:
        axis = patch_axis(encoder_of(model), read.inputs)
        return ShownInput(read, axis, picture_of(read.inputs[0], self.preprocess))


@dataclass(frozen=True)
class SoundInput(Input):
    """Sounds, each of the length that it has."""

    noun = "sounds"

    preprocess: SoundPreprocess

    @property
    def mel(self) -> LogMel:
        return self.preprocess.mel

    def size(self, stored: str, extent: Sequence[int]) -> int:
        """In samples."""
        samples, rate = extent
        return max(1, round(samples * self.mel.rate / rate))

    def sample(self, folder: Path) -> str:
        return str(sample_sound(folder / "tone.wav"))

    def wave(self, stored: str) -> Tensor:
        return torch.from_numpy(read_sound(MediaLocation.parsed(stored), self.mel.rate))


@dataclass(frozen=True)
class MelInput(SoundInput):
    """Sounds as frames, T F; `waves` and `frames` are augmented in training."""

    unit = "frames"

    waves: Compose = NO_CHANGE
    frames: Compose = NO_CHANGE

    def size(self, stored: str, extent: Sequence[int]) -> int:
        return self.preprocess.length(self.mel.frames(super().size(stored, extent)))

    def load(self, stored: str, random: np.random.Generator) -> Tensor:
        heard = self.mel(self.waves(self.wave(stored), random)[None])[0]
        return self.frames(self.preprocess.fit(heard), random)

    def without_augmentation(self) -> MelInput:
        return replace(self, waves=NO_CHANGE, frames=NO_CHANGE)

    def shown(self, model: nn.Module, stored: str, read: ModelInput) -> ShownInput:
        axis = frame_axis(encoder_of(model), read.inputs.shape[1], self.mel.hop / self.mel.rate)
        return ShownInput(read, axis, sound=sound_of(self.wave(stored), self.mel.rate, read.inputs[0]))


@dataclass(frozen=True)
class WaveformInput(SoundInput):
    """Sounds as their samples, N 1, each clip with mean 0 and variance 1: for models that make frames by themselves."""

    unit = "samples"

    def load(self, stored: str, random: np.random.Generator) -> Tensor:
        wave = self.wave(stored)
        return ((wave - wave.mean()) / (wave.var(unbiased=False) + 1e-7).sqrt())[:, None]

    def shown(self, model: nn.Module, stored: str, read: ModelInput) -> ShownInput:
        wave, rate = self.wave(stored), self.mel.rate
        spectrogram = LogMel.speech(rate)(wave[None])[0]  # for people: the model reads sample by sample
        axis = frame_axis(encoder_of(model), read.inputs.shape[1], 1 / rate)
        return ShownInput(read, axis, sound=sound_of(wave, rate, spectrogram))


@dataclass(frozen=True)
class SeriesInput(Input):
    """Numbers as they stand in a file, T F, brought to one scale."""

    unit = "vectors"
    noun = "numbers"

    preprocess: NumberPreprocess

    def size(self, stored: str, extent: Sequence[int]) -> int:
        return stored.count(";") + 1

    def load(self, stored: str, random: np.random.Generator) -> Tensor:
        return self.scaled(torch.from_numpy(vectors(stored)))

    def locate(self, given: str, columns: Sequence[str | int] | None) -> str:
        return numbers_of(given, columns, len(self.preprocess.mean))

    def scaled(self, x: Tensor) -> Tensor:
        """… F, as a model reads it."""
        return (x - x.new_tensor(self.preprocess.mean)) / x.new_tensor(self.preprocess.deviation)

    def unscaled(self, x: Tensor) -> Tensor:
        """… F, as it stands in a file."""
        return x * x.new_tensor(self.preprocess.deviation) + x.new_tensor(self.preprocess.mean)

    def sample(self, folder: Path) -> str:
        return "; ".join(" ".join([str(at)] * len(self.preprocess.mean)) for at in range(3))

    def shown(self, model: nn.Module, stored: str, read: ModelInput) -> ShownInput:
        labels = tuple(row.strip()[:LABEL_CHARACTERS] for row in stored.split(";"))
        return ShownInput(read, ItemAxis("items", labels))


def input_of(parts: ModelParts) -> Input | None:
    """How a model reads its samples, by what its folder says; None for a model of texts."""
    if not reads_media(parts):
        return None
    ready = parts.preprocess
    if isinstance(parts.model, Trunk) and isinstance(parts.model.embed, WaveEmbed):
        return WaveformInput(ready if isinstance(ready, SoundPreprocess) else SoundPreprocess())
    match ready:
        case ImagePreprocess():
            return ImageInput(ready)
        case SoundPreprocess():
            return MelInput(ready)
        case NumberPreprocess():
            return SeriesInput(ready)
        case None:
            return None


def patch_axis(trunk: Trunk, images: Tensor) -> Axis | None:
    """The patches of images (1 Ch H W) as tokens; None for an encoder whose every layer has a grid of its own."""
    if not isinstance(trunk.embed, ImageEmbed):
        return None
    token = trunk.embed.token
    first = token.names if isinstance(token, ClassToken) else ()
    return cells(patch_grid(images, trunk.embed.patches.patch), first)


def frame_axis(trunk: Trunk, count: int, seconds: float) -> Axis:
    """The tokens that so many frames or samples become, each of so many seconds; patches are cells of a grid."""
    if isinstance(trunk.embed, SpectrogramEmbed):
        return cells(trunk.embed.grid, trunk.embed.token.names)
    if not isinstance(trunk.embed, Shortening):
        return frames(count, seconds)
    return frames(trunk.embed.length(count), seconds * trunk.embed.factor)


def file_named(given: str) -> MediaLocation:
    """The file, or the member of an archive, that a person names."""
    path = Path(given)
    return inside(path) or numbered(path) or MediaLocation(path)
