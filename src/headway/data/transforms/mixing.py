"""Batches whose images are mixed in pairs, and their targets with them.

Axes:  B batch   C channels   H height   W width   K classes
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor


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
        kept = 1 - (bottom - top) * (right - left) / (height * width)
        return mixed, between(targets, targets[other], kept)


@dataclass(frozen=True)
class Either:
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
