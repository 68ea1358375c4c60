"""The mel scale, and triangular mel filters.

Axes:  F frequencies of a transform   M mels
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from headway.errors import UserError


@dataclass(frozen=True)
class MelScale(ABC):
    """How high a frequency sounds, and back."""

    @abstractmethod
    def mel(self, hertz: Tensor) -> Tensor: ...

    @abstractmethod
    def hertz(self, mel: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Htk(MelScale):
    """2595 · log₁₀(1 + hertz / 700): HTK's and torchaudio's."""

    def mel(self, hertz: Tensor) -> Tensor:
        return 2595 * (1 + hertz / 700).log10()

    def hertz(self, mel: Tensor) -> Tensor:
        return 700 * (10 ** (mel / 2595) - 1)


@dataclass(frozen=True)
class Slaney(MelScale):
    """3 mels to 200 hertz up to 1000, then 27 mels to a factor of 6.4: librosa's and Whisper's."""

    def mel(self, hertz: Tensor) -> Tensor:
        above = 15 + (hertz / 1000).clamp(min=1).log() * (27 / math.log(6.4))
        return torch.where(hertz < 1000, hertz * 3 / 200, above)

    def hertz(self, mel: Tensor) -> Tensor:
        above = 1000 * ((mel - 15).clamp(min=0) * (math.log(6.4) / 27)).exp()
        return torch.where(mel < 15, mel * 200 / 3, above)


@dataclass(frozen=True)
class Height(ABC):
    """How high a triangle stands over frequencies `width` hertz apart at its feet."""

    @abstractmethod
    def __call__(self, width: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class UnitPeak(Height):
    """1: every triangle is equally high."""

    def __call__(self, width: Tensor) -> Tensor:
        return torch.ones_like(width)


@dataclass(frozen=True)
class UnitArea(Height):
    """2 / width: every triangle holds the same area, Slaney's norm."""

    def __call__(self, width: Tensor) -> Tensor:
        return 2 / width


HTK, SLANEY = Htk(), Slaney()
UNIT_PEAK, UNIT_AREA = UnitPeak(), UnitArea()


@cache
def mel_filters(n_fft: int, rate: int, mels: int, low: float, high: float, scale: MelScale, height: Height) -> Tensor:
    """What each frequency of a transform of `n_fft` samples gives to each mel, F M, float64.

    Triangle m rises from the frequency of the mel before it to its own and falls to that of the next, where `mels` + 2
    of them stand evenly on the scale from `low` to `high` hertz.
    """
    first, last = scale.mel(torch.tensor([low, high], dtype=torch.float64)).tolist()
    corners = scale.hertz(torch.linspace(first, last, mels + 2, dtype=torch.float64))  # M + 2
    bins = torch.arange(n_fft // 2 + 1, dtype=torch.float64)[:, None] * (rate / n_fft)  # F 1
    before, middle, behind = corners[:-2], corners[1:-1], corners[2:]
    rise, fall = (bins - before) / (middle - before), (behind - bins) / (behind - middle)  # F M
    filters = torch.minimum(rise, fall).clamp(min=0)
    empty = (filters == 0).all(0).nonzero()
    if len(empty):
        said = f"no frequency of a transform of {n_fft} samples lies in mel {int(empty[0])} of {mels}"
        raise UserError(said, allowed="mels that each hold a frequency", do="take fewer mels, or a larger n_fft")
    return filters * height(behind - before)
