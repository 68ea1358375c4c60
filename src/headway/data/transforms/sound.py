"""Sounds and their spectrograms, changed by chance.

Axes:  N samples   T frames   F mel bands
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

from headway.ops.resample import resample


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
