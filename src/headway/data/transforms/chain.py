"""Transforms one after the other, and the steps that every image takes.

A transform is a frozen value with a pure `__call__(x, random)`: what it does is decided by its fields and by the random
numbers it is handed, so (seed, epoch, sample) decide everything.  Images are floats between 0 and 1 until `Normalise`.

Axes:  C channels   H height   W width
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Transform(Protocol):
    """Keeps what it is given as it was, and returns what it makes of it."""

    def __call__(self, x: Tensor, random: np.random.Generator) -> Tensor: ...


@dataclass(frozen=True)
class Chain:
    steps: tuple[Transform, ...] = ()

    def __call__(self, x: Tensor, random: np.random.Generator) -> Tensor:
        for step in self.steps:
            x = step(x, random)
        return x


@dataclass(frozen=True)
class Sometimes:
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
