"""Images resized, cropped, flipped and warped, and random erasing.

Resizing is `torch.nn.functional.interpolate` with antialiasing, which is what Pillow computes, up to Pillow's rounding
to whole levels after each of its two passes.

Axes:  C channels   H height   W width
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headway.data.images import MAX_ASPECT

BILINEAR, BICUBIC = "bilinear", "bicubic"  # torch's names


@dataclass(frozen=True)
class Resize:
    """Exactly this size; the shape of things may change."""

    height: int
    width: int
    mode: str = BICUBIC

    def __call__(self, x: Tensor, random: np.random.Generator) -> Tensor:
        return resized(x, self.height, self.width, self.mode)


@dataclass(frozen=True)
class ResizeShort:
    """The shorter side becomes `short` long, and the longer one as much longer as it was.

    Of a strip, which would fill the memory, the middle is taken, MAX_ASPECT times as long as its shorter side.
    """

    short: int
    mode: str = BICUBIC

    def __call__(self, x: Tensor, random: np.random.Generator) -> Tensor:
        x = less_slim(x)
        height, width = x.shape[-2:]
        long = int(self.short * max(height, width) / min(height, width))
        sides = (self.short, long) if height <= width else (long, self.short)
        return resized(x, *sides, self.mode)


@dataclass(frozen=True)
class CentreCrop:
    """The middle; where the image is smaller, black is put around it."""

    height: int
    width: int

    def __call__(self, x: Tensor, random: np.random.Generator) -> Tensor:
        x = padded(x, max(0, self.height - x.shape[-2]), max(0, self.width - x.shape[-1]))
        top, left = (
            round((have - want) / 2) for have, want in zip(x.shape[-2:], (self.height, self.width), strict=True)
        )
        return x[..., top : top + self.height, left : left + self.width]


@dataclass(frozen=True)
class RandomCrop:
    """A part somewhere in the image, around which `border` black pixels are put first."""

    height: int
    width: int
    border: int = 0

    def __call__(self, x: Tensor, random: np.random.Generator) -> Tensor:
        x = F.pad(x, (self.border,) * 4)
        x = padded(x, max(0, self.height - x.shape[-2]), max(0, self.width - x.shape[-1]))
        top = int(random.integers(0, x.shape[-2] - self.height + 1))
        left = int(random.integers(0, x.shape[-1] - self.width + 1))
        return x[..., top : top + self.height, left : left + self.width]


@dataclass(frozen=True)
class RandomResizedCrop:
    """A part of a random area and shape, resized (Szegedy et al. 2015)."""

    height: int
    width: int
    area: tuple[float, float] = (0.08, 1.0)  # shares of the image
    ratio: tuple[float, float] = (3 / 4, 4 / 3)  # of width to height
    mode: str = BICUBIC

    def __call__(self, x: Tensor, random: np.random.Generator) -> Tensor:
        top, left, height, width = self.box(x.shape[-2], x.shape[-1], random)
        return resized(x[..., top : top + height, left : left + width], self.height, self.width, self.mode)

    def box(self, height: int, width: int, random: np.random.Generator) -> tuple[int, int, int, int]:
        """Top, left, height and width; after ten boxes that do not fit, the largest in the middle that does."""
        if found := random_box(height, width, self.area, self.ratio, random):
            return found
        ratio = min(max(width / height, self.ratio[0]), self.ratio[1])
        h, w = min(height, round(width / ratio)), min(width, round(height * ratio))
        return (height - h) // 2, (width - w) // 2, max(h, 1), max(w, 1)


@dataclass(frozen=True)
class Flip:
    """Left and right swapped, in a share of all images."""

    chance: float = 0.5

    def __call__(self, x: Tensor, random: np.random.Generator) -> Tensor:
        return x.flip(-1) if random.random() < self.chance else x


def random_box(
    height: int, width: int, area: tuple[float, float], ratio: tuple[float, float], random: np.random.Generator
) -> tuple[int, int, int, int] | None:
    """Top, left, height and width of a box of a random share of the area; None where ten of them do not fit."""
    for _ in range(10):
        size = height * width * random.uniform(*area)
        shape = math.exp(random.uniform(math.log(ratio[0]), math.log(ratio[1])))  # of width to height
        h, w = round(math.sqrt(size / shape)), round(math.sqrt(size * shape))
        if 0 < h <= height and 0 < w <= width:
            return int(random.integers(0, height - h + 1)), int(random.integers(0, width - w + 1)), h, w
    return None


def resized(x: Tensor, height: int, width: int, mode: str) -> Tensor:
    """An image of this size; nothing overshoots 0 and 1."""
    if tuple(x.shape[-2:]) == (height, width):
        return x
    return F.interpolate(x[None], (height, width), mode=mode, antialias=True, align_corners=False)[0].clamp(0, 1)


def less_slim(x: Tensor) -> Tensor:
    """The middle of a strip, or all of what is none."""
    most = MAX_ASPECT * min(x.shape[-2:])
    height, width = (min(side, most) for side in x.shape[-2:])
    top, left = (x.shape[-2] - height) // 2, (x.shape[-1] - width) // 2
    return x[..., top : top + height, left : left + width]


def warped(x: Tensor, matrix: tuple[float, float, float, float, float, float], fill: float = 0.5) -> Tensor:
    """The image whose pixel at (x, y), from its centre, is the old one's at (a x + b y + c, d x + e y + f).

    Between pixels it is bilinear; what comes from outside has the grey `fill`.
    """
    a, b, c, d, e, f = matrix
    height, width = x.shape[-2:]
    # grid_sample counts from −1 to 1 on both axes
    theta = torch.tensor([[a, b * height / width, 2 * c / width], [d * width / height, e, 2 * f / height]])
    grid = F.affine_grid(theta[None], [1, *x.shape], align_corners=False)
    return F.grid_sample(x[None] - fill, grid, align_corners=False)[0] + fill


def padded(x: Tensor, height: int, width: int) -> Tensor:
    """So many black rows and columns more, half of them on each side."""
    return F.pad(x, (width // 2, width - width // 2, height // 2, height - height // 2)) if height or width else x


@dataclass(frozen=True)
class RandomErasing:
    """In a share of images, a box of random area and shape; `noise` is its standard deviation, 0 for a grey box."""

    chance: float = 0.25
    area: tuple[float, float] = (0.02, 1 / 3)
    ratio: tuple[float, float] = (0.3, 3.3)
    noise: float = 1.0

    def __call__(self, x: Tensor, random: np.random.Generator) -> Tensor:
        if random.random() >= self.chance:
            return x
        box = random_box(x.shape[-2], x.shape[-1], self.area, self.ratio, random)
        if box is None:
            return x
        top, left, height, width = box
        noise = random.standard_normal((len(x), height, width), np.float32)
        x = x.clone()
        x[:, top : top + height, left : left + width] = torch.from_numpy(noise) * self.noise
        return x
