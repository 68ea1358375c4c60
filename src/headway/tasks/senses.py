"""How a sample becomes what a model reads: pixels, frames of sound, or vectors, made ready when a batch is.

A row on disk holds where a sample is (or its numbers), never the sample itself; `look` opens it.  What is changed by
chance on the way (`augment`) is decided by the random numbers that `look` is handed.

Axes:  B batch   Ch channels   H height   W width   T frames   F features   N frames of all rows
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from headway.data.archives import Place
from headway.data.images import read_image
from headway.data.numbers import vectors
from headway.data.preprocess import ImagePreprocess, NumberPreprocess, Preprocess, SoundPreprocess
from headway.data.shards import Shards
from headway.data.sounds import read_sound
from headway.data.transforms.chain import Chain, as_image, generators
from headway.nn.context import Context
from headway.nn.rows import Rows
from headway.ops.mel import LogMel
from headway.tasks.task import Row

NOTHING = Chain()  # is changed


class Read(NamedTuple):
    """What a model is called with."""

    inputs: Tensor
    context: Context


class Sense(Protocol):
    """A frozen value, cheap to pickle."""

    @property
    def unit(self) -> str:
        """What batches are counted in."""
        ...

    @property
    def ready(self) -> Preprocess:
        """What travels with the model."""
        ...

    def size(self, told: str, extent: Sequence[int]) -> int:
        """How much a sample counts for in a batch."""
        ...

    def look(self, told: str, random: np.random.Generator) -> Tensor:
        """One sample, opened."""
        ...

    def together(self, samples: Sequence[Tensor]) -> Read: ...

    def plain(self) -> Self:
        """The same without chance."""
        ...


@dataclass(frozen=True)
class Sight:
    """Images, each Ch H W of one size."""

    ready: ImagePreprocess
    augment: Chain | None = None  # in the place of the resizing and cropping of `ready`
    unit: str = "images"

    def size(self, told: str, extent: Sequence[int]) -> int:
        return 1

    def look(self, told: str, random: np.random.Generator) -> Tensor:
        return next(self.looks(told, random))

    def looks(self, told: str, random: np.random.Generator) -> Iterator[Tensor]:
        """The same image again and again, each time as chance changes it."""
        image = as_image(read_image(Place.parsed(told), self.ready.channels))
        changed = self.augment or self.ready.chain()
        while True:
            yield changed(image, random)

    def together(self, samples: Sequence[Tensor]) -> Read:
        return Read(torch.stack(list(samples)), Context())

    def plain(self) -> Sight:
        return replace(self, augment=None)


@dataclass(frozen=True)
class Hearing:
    """Sounds as frames, T F, of the length that each has; `waves` and `frames` are changed by chance in training."""

    ready: SoundPreprocess
    waves: Chain = NOTHING
    frames: Chain = NOTHING
    unit: str = "frames"

    @property
    def mel(self) -> LogMel:
        return self.ready.mel

    def size(self, told: str, extent: Sequence[int]) -> int:
        samples, rate = extent
        return self.mel.frames(max(1, round(samples * self.mel.rate / rate)))

    def look(self, told: str, random: np.random.Generator) -> Tensor:
        wave = torch.from_numpy(read_sound(Place.parsed(told), self.mel.rate))
        return self.frames(self.mel(self.waves(wave, random)[None])[0], random)

    def together(self, samples: Sequence[Tensor]) -> Read:
        return ragged(samples)

    def plain(self) -> Hearing:
        return replace(self, waves=NOTHING, frames=NOTHING)


@dataclass(frozen=True)
class Waves:
    """Sounds as their samples, N 1, each clip with mean 0 and variance 1: for models that make frames by themselves."""

    ready: SoundPreprocess
    unit: str = "samples"

    def size(self, told: str, extent: Sequence[int]) -> int:
        samples, rate = extent
        return max(1, round(samples * self.ready.mel.rate / rate))

    def look(self, told: str, random: np.random.Generator) -> Tensor:
        wave = torch.from_numpy(read_sound(Place.parsed(told), self.ready.mel.rate))
        return ((wave - wave.mean()) / (wave.var(unbiased=False) + 1e-7).sqrt())[:, None]

    def together(self, samples: Sequence[Tensor]) -> Read:
        return ragged(samples)

    def plain(self) -> Waves:
        return self


@dataclass(frozen=True)
class Vectors:
    """Numbers as they stand in a file, T F, brought to one scale."""

    ready: NumberPreprocess
    unit: str = "vectors"

    def size(self, told: str, extent: Sequence[int]) -> int:
        return told.count(";") + 1

    def look(self, told: str, random: np.random.Generator) -> Tensor:
        return self.scaled(torch.from_numpy(vectors(told)))

    def scaled(self, x: Tensor) -> Tensor:
        """… F, as a model reads it."""
        return (x - x.new_tensor(self.ready.mean)) / x.new_tensor(self.ready.deviation)

    def unscaled(self, x: Tensor) -> Tensor:
        """… F, as it stands in a file."""
        return x * x.new_tensor(self.ready.deviation) + x.new_tensor(self.ready.mean)

    def together(self, samples: Sequence[Tensor]) -> Read:
        return ragged(samples)

    def plain(self) -> Vectors:
        return self


def ragged(samples: Sequence[Tensor]) -> Read:
    """Rows of any lengths: packed, 1 N F; or B T F where all are equally long."""
    lengths = [len(sample) for sample in samples]
    if len(set(lengths)) == 1:
        return Read(torch.stack(list(samples)), Context())
    return Read(torch.cat(list(samples))[None], Context(rows=Rows.of(lengths)))


Of = TypeVar("Of", bound=Sense)


@dataclass(frozen=True, eq=False)
class Sensing(Generic[Of]):
    """A task on what is sensed.  The first columns of its rows are those of `Kept`."""

    sense: Of

    @property
    def unit(self) -> str:
        return self.sense.unit

    def sizes(self, rows: Shards) -> np.ndarray:
        return rows.stream(1)[:]

    def read(self, rows: Sequence[Row], random: np.random.Generator) -> Read:
        """The samples of some rows, each changed by chances of its own."""
        draws = generators(random, len(rows))
        samples = zip(rows, draws, strict=True)
        return self.sense.together([self.sense.look(told_by(row[0]), draw) for row, draw in samples])


class Nameless(Sensing[Sight]):
    """A task on images alone: what is said about them is not learned."""

    def encode(self, fields: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        return [[*kept(self.sense, place, extent)] for place, extent, *_ in fields]


class Kept(NamedTuple):
    """The columns of a row in which a sample is kept on disk."""

    told: list[int]  # the bytes of a text
    size: list[int]


def kept(sense: Sense, told: str, *extent: str) -> Kept:
    return Kept(list(told.encode()), [sense.size(told, [int(number) for part in extent for number in part.split()])])


def told_by(column: np.ndarray) -> str:
    """The text of which a row keeps the bytes."""
    return bytes(np.asarray(column, np.uint8)).decode()


def size_of(rows: Sequence[Row]) -> int:
    """What the samples of some rows count for in a batch."""
    return sum(int(row[1][0]) for row in rows)
