"""What transforms share, mixing of image batches (mixup, CutMix), and random changes of sounds and spectrograms.

A transform is a frozen value with a pure `__call__(x, random)`: its result is decided by its fields and by the random
generator it is given, so (seed, epoch, sample) decide everything.  Images are floats from 0 to 1 until `Normalise`.

Axes:  B batch   C channels   H height   W width   K classes   N samples   T frames   F mel bands
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.ops.resample import resample


class Transform(Protocol):
    """Keeps what it is given as it was, and returns what it makes of it."""

    def __call__(self, x: Tensor, random: np.random.Generator) -> Tensor: ...


@dataclass(frozen=True)
class Compose:
    steps: tuple[Transform, ...] = ()

    def __call__(self, x: Tensor, random: np.random.Generator) -> Tensor:
        for step in self.steps:
            x = step(x, random)
        return x


@dataclass(frozen=True)
class RandomApply:
    """A transform that is applied to a share of all samples."""

    step: Transform
    chance: float

    def __call__(self, x: Tensor, random: np.random.Generator) -> Tensor:
        return self.step(x, random) if random.random() < self.chance else x


@dataclass(frozen=True)
class Normalise:
    """(x − mean) / std, channel by channel."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, x: Tensor, random: np.random.Generator) -> Tensor:
        return (x - x.new_tensor(self.mean)[:, None, None]) / x.new_tensor(self.std)[:, None, None]


def as_image(pixels: NDArray[np.uint8]) -> Tensor:
    """Pixels H W C as an image C H W of floats between 0 and 1."""
    return torch.from_numpy(pixels.transpose(2, 0, 1).astype(np.float32) / 255)


def generators(random: np.random.Generator, count: int) -> list[np.random.Generator]:
    """A stream of random numbers for each sample of a batch, so that none depends on what others draw."""
    keys = random.integers(0, 2**63, count, dtype=np.uint64)
    return [np.random.Generator(np.random.Philox(key=int(key))) for key in keys]


class Mixing(Protocol):
    """Images B C H W and targets B K, whose rows sum to one, to the same."""

    def __call__(self, images: Tensor, targets: Tensor, random: np.random.Generator) -> tuple[Tensor, Tensor]: ...


@dataclass(frozen=True)
class Mixup:
    """x = share · x + (1 − share) · other, with share from Beta(alpha, alpha) (Zhang et al. 2017)."""

    alpha: float = 0.8

    def __call__(self, images: Tensor, targets: Tensor, random: np.random.Generator) -> tuple[Tensor, Tensor]:
        share, other = float(random.beta(self.alpha, self.alpha)), partners(len(images), random)
        return between(images, images[other], share), between(targets, targets[other], share)


@dataclass(frozen=True)
class CutMix:
    """A box of the other image; targets are mixed by the area that is left (Yun et al. 2019)."""

    alpha: float = 1.0

    def __call__(self, images: Tensor, targets: Tensor, random: np.random.Generator) -> tuple[Tensor, Tensor]:
        share, other = float(random.beta(self.alpha, self.alpha)), partners(len(images), random)
        height, width = images.shape[-2:]
        h, w = (side * math.sqrt(1 - share) for side in (height, width))
        y, x = random.uniform(0, height), random.uniform(0, width)
        top, bottom = max(0, round(y - h / 2)), min(height, round(y + h / 2))
        left, right = max(0, round(x - w / 2)), min(width, round(x + w / 2))
        mixed = images.clone()
        mixed[..., top:bottom, left:right] = images[other][..., top:bottom, left:right]
        share = 1 - (bottom - top) * (right - left) / (height * width)
        return mixed, between(targets, targets[other], share)


@dataclass(frozen=True)
class OneOf:
    """One of several mixings for each batch, and none in the share of batches that `chance` leaves."""

    mixings: tuple[Mixing, ...] = (Mixup(), CutMix())
    chance: float = 1.0

    def __call__(self, images: Tensor, targets: Tensor, random: np.random.Generator) -> tuple[Tensor, Tensor]:
        if random.random() >= self.chance:
            return images, targets
        return self.mixings[int(random.integers(len(self.mixings)))](images, targets, random)


def soft_targets(classes: Tensor, count: int, smoothing: float = 0.0) -> Tensor:
    """Numbers of classes B as targets B K."""
    return torch.nn.functional.one_hot(classes, count).float() * (1 - smoothing) + smoothing / count


def between(x: Tensor, other: Tensor, share: float) -> Tensor:
    return share * x + (1 - share) * other


def partners(count: int, random: np.random.Generator) -> Tensor:
    return torch.from_numpy(random.permutation(count))


@dataclass(frozen=True)
class Speed:
    """One of several speeds: a recording played faster is shorter and higher (Ko et al. 2015)."""

    factors: tuple[float, ...] = (0.9, 1.0, 1.1)

    def __call__(self, x: Tensor, random: np.random.Generator) -> Tensor:
        factor = Fraction(self.factors[int(random.integers(len(self.factors)))]).limit_denominator(100)
        return resample(x, factor.denominator, factor.numerator)


@dataclass(frozen=True)
class AddedNoise:
    """White noise; the sound is between so many decibels louder than it."""

    decibels: tuple[float, float] = (10.0, 40.0)

    def __call__(self, x: Tensor, random: np.random.Generator) -> Tensor:
        quieter = 10 ** (-random.uniform(*self.decibels) / 20)
        noise = torch.from_numpy(random.standard_normal(x.shape, np.float32)).to(x)
        return x + noise * x.square().mean().sqrt() * quieter


@dataclass(frozen=True)
class Gain:
    """Louder or quieter, by decibels."""

    decibels: tuple[float, float] = (-6.0, 6.0)

    def __call__(self, x: Tensor, random: np.random.Generator) -> Tensor:
        return x * 10 ** (random.uniform(*self.decibels) / 20)


@dataclass(frozen=True)
class SpecAugment:
    """Spans of mel bands and of frames, T F, replaced by the mean of all (Park et al. 2019, without their time warp).

    A span of frames is no longer than `longest` of them, nor than the share `most` of all.
    """

    band_spans: int = 2
    bands: int = 27
    frame_spans: int = 2
    longest: int = 100
    most: float = 0.2

    def __call__(self, x: Tensor, random: np.random.Generator) -> Tensor:
        frames, bands = x.shape
        hidden = torch.zeros(frames, bands, dtype=torch.bool)
        for _ in range(self.band_spans):
            hidden[:, span(bands, min(self.bands, bands), random)] = True
        for _ in range(self.frame_spans):
            hidden[span(frames, min(self.longest, int(self.most * frames)), random)] = True
        return x.masked_fill(hidden.to(x.device), x.mean().item())


def span(total: int, longest: int, random: np.random.Generator) -> slice:
    """0 to `longest` neighbours out of so many."""
    length = int(random.integers(0, longest + 1))
    first = int(random.integers(0, total - length + 1))
    return slice(first, first + length)
