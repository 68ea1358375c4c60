"""RandAugment (Cubuk et al. 2019): a few changes out of a table, all as strong as one number says."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from torch import Tensor

from headway.data.transforms.colour import (
    autocontrast,
    brightness,
    contrast,
    equalised,
    posterised,
    saturation,
    sharpness,
    solarised,
)
from headway.data.transforms.geometry import warped

STRONGEST = 10.0  # the magnitude at which a change is as large as the table has it
Change: TypeAlias = Callable[[Tensor, float], Tensor]  # of a strength between −1 and 1


@dataclass(frozen=True)
class RandAugment:
    """`changes` of the table in turn, of a strength around `magnitude` of 10."""

    changes: int = 2
    magnitude: float = 9.0
    spread: float = 0.5  # the standard deviation of the magnitude

    def __call__(self, x: Tensor, random: np.random.Generator) -> Tensor:
        for at in random.integers(0, len(CHANGES), self.changes):
            drawn = random.normal(self.magnitude, self.spread) if self.spread else self.magnitude
            strength = min(max(drawn, 0.0), STRONGEST) / STRONGEST
            x = CHANGES[at](x, strength if random.random() < 0.5 else -strength)
        return x


def rotated(x: Tensor, strength: float) -> Tensor:
    """By at most 30 degrees."""
    angle = math.radians(30 * strength)
    return warped(x, (math.cos(angle), math.sin(angle), 0, -math.sin(angle), math.cos(angle), 0))


def sheared_across(x: Tensor, strength: float) -> Tensor:
    return warped(x, (1, 0.3 * strength, 0, 0, 1, 0))


def sheared_down(x: Tensor, strength: float) -> Tensor:
    return warped(x, (1, 0, 0, 0.3 * strength, 1, 0))


def moved_across(x: Tensor, strength: float) -> Tensor:
    """By at most 45 % of the width."""
    return warped(x, (1, 0, 0.45 * strength * x.shape[-1], 0, 1, 0))


def moved_down(x: Tensor, strength: float) -> Tensor:
    return warped(x, (1, 0, 0, 0, 1, 0.45 * strength * x.shape[-2]))


def by_factor(change: Change) -> Change:
    """A change by a factor between 0.1 and 1.9."""
    return lambda x, strength: change(x, 1 + 0.9 * strength)


CHANGES: tuple[Change, ...] = (
    lambda x, _: x,
    lambda x, _: autocontrast(x),
    lambda x, _: equalised(x),
    rotated,
    lambda x, strength: solarised(x, 1 - abs(strength)),
    lambda x, strength: posterised(x, 8 - round(4 * abs(strength))),
    by_factor(saturation),
    by_factor(contrast),
    by_factor(brightness),
    by_factor(sharpness),
    sheared_across,
    sheared_down,
    moved_across,
    moved_down,
)
