"""Random erasing (Zhong et al. 2017): a part of a normalised image is replaced by noise.

Axes:  C channels   H height   W width
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headway.data.transforms.geometry import drawn_box


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
        box = drawn_box(x.shape[-2], x.shape[-1], self.area, self.ratio, random)
        if box is None:
            return x
        top, left, height, width = box
        drawn = random.standard_normal((len(x), height, width), np.float32)
        x = x.clone()
        x[:, top : top + height, left : left + width] = torch.from_numpy(drawn) * self.noise
        return x
