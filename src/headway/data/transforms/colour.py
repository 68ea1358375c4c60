"""Colours of images changed by factors, at random, and as Pillow's ImageEnhance and ImageOps do; RandAugment.

A factor of 1 leaves an image as it is, 0 removes what it is about (light, contrast, colour), 2 doubles it.

Axes:  C channels   H height   W width
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headway.data.transforms.geometry import warped

GREY = (0.299, 0.587, 0.114)  # how light red, green and blue are
# light and two axes of colour, in which a hue is an angle (NTSC's YIQ)
YIQ = ((0.299, 0.587, 0.114), (0.5959, -0.2746, -0.3213), (0.2115, -0.5227, 0.3112))
STRONGEST = 10.0  # the magnitude at which a change is as large as the table has it
Change: TypeAlias = Callable[[Tensor, float], Tensor]  # of a strength between −1 and 1


@dataclass(frozen=True)
class ColourJitter:
    """Factors drawn between 1 − x and 1 + x, and the hue turned by at most `hue` of a circle, in random order."""

    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.4
    hue: float = 0.0

    def __call__(self, x: Tensor, random: np.random.Generator) -> Tensor:
        factors = ((brightness, self.brightness), (contrast, self.contrast), (saturation, self.saturation))
        changes = [partial(change, factor=random.uniform(max(0.0, 1 - span), 1 + span)) for change, span in factors]
        changes.append(partial(turned, circle=random.uniform(-self.hue, self.hue)))
        for at in random.permutation(len(changes)):
            x = changes[at](x)
        return x


@dataclass(frozen=True)
class Grey:
    """Without colour; as many channels as before."""

    def __call__(self, x: Tensor, random: np.random.Generator) -> Tensor:
        return saturation(x, 0.0)


@dataclass(frozen=True)
class Blur:
    """Blurred by a Gaussian of a random width in pixels."""

    width: tuple[float, float] = (0.1, 2.0)

    def __call__(self, x: Tensor, random: np.random.Generator) -> Tensor:
        sigma = random.uniform(*self.width)
        reach = max(1, round(3 * sigma))
        taps = torch.exp(-(torch.arange(-reach, reach + 1) ** 2) / (2 * sigma**2))
        kernel = (taps / taps.sum()).expand(len(x), 1, 1, -1)
        rows = F.conv2d(F.pad(x[None], (reach,) * 4, "replicate"), kernel, groups=len(x))
        return F.conv2d(rows, kernel.transpose(2, 3), groups=len(x))[0]


def brightness(x: Tensor, factor: float) -> Tensor:
    return blended(torch.zeros_like(x), x, factor)


def contrast(x: Tensor, factor: float) -> Tensor:
    """Away from its mean grey, or towards it."""
    return blended(lightness(x).mean().expand_as(x), x, factor)


def saturation(x: Tensor, factor: float) -> Tensor:
    return blended(lightness(x).expand_as(x), x, factor)


def sharpness(x: Tensor, factor: float) -> Tensor:
    """Away from a smoothed copy, or towards it; the outermost pixels stay."""
    kernel = torch.full((3, 3), 1 / 13)
    kernel[1, 1] = 5 / 13
    smooth = x.clone()
    if min(x.shape[-2:]) > 2:
        smooth[:, 1:-1, 1:-1] = F.conv2d(x[:, None], kernel[None, None])[:, 0]
    return blended(smooth, x, factor)


def turned(x: Tensor, circle: float) -> Tensor:
    """The hue turned by this share of a circle, light as before."""
    if len(x) != 3 or circle == 0:
        return x
    angle = 2 * math.pi * circle
    yiq = torch.tensor(YIQ)
    turn = torch.tensor([
        [1, 0, 0],
        [0, math.cos(angle), -math.sin(angle)],
        [0, math.sin(angle), math.cos(angle)],
    ])  # fmt: skip
    return torch.einsum("rc,chw->rhw", torch.linalg.inv(yiq) @ turn @ yiq, x).clamp(0, 1)


def autocontrast(x: Tensor) -> Tensor:
    """Each channel stretched to go from 0 to 1."""
    low, high = x.amin((1, 2), keepdim=True), x.amax((1, 2), keepdim=True)
    return torch.where(high > low, (x - low) / (high - low).clamp(min=1e-6), x)


def equalised(x: Tensor) -> Tensor:
    """Each channel with its levels spread, so that all are about equally frequent."""
    return torch.stack([spread(channel) for channel in levels(x)]).float() / 255


def posterised(x: Tensor, bits: int) -> Tensor:
    """Only the highest bits of each level."""
    return (levels(x) & (256 - 2 ** (8 - bits))).float() / 255


def solarised(x: Tensor, threshold: float) -> Tensor:
    """What is as light as the threshold, or lighter, turned into its negative."""
    return torch.where(x < threshold, x, 1 - x)


def spread(channel: Tensor) -> Tensor:
    """Levels H W, equalised."""
    counts = channel.flatten().bincount(minlength=256)
    step = int(counts.sum() - counts[counts.nonzero()[-1]]) // 255
    if step == 0:
        return channel
    before = torch.cat([counts.new_zeros(1), counts.cumsum(0)[:-1]])
    return ((before + step // 2) // step).clamp(max=255)[channel]


def levels(x: Tensor) -> Tensor:
    """Whole numbers from 0 to 255."""
    return (x * 255).round().clamp(0, 255).long()


def lightness(x: Tensor) -> Tensor:
    """1 H W"""
    return x if len(x) == 1 else torch.einsum("c,chw->hw", x.new_tensor(GREY), x)[None]


def blended(less: Tensor, x: Tensor, factor: float) -> Tensor:
    return (less + (x - less) * factor).clamp(0, 1)


@dataclass(frozen=True)
class RandAugment:
    """`changes` of the table in turn, of a strength around `magnitude` of 10."""

    changes: int = 2
    magnitude: float = 9.0
    spread: float = 0.5  # the standard deviation of the magnitude

    def __call__(self, x: Tensor, random: np.random.Generator) -> Tensor:
        for at in random.integers(0, len(CHANGES), self.changes):
            magnitude = random.normal(self.magnitude, self.spread) if self.spread else self.magnitude
            strength = min(max(magnitude, 0.0), STRONGEST) / STRONGEST
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
