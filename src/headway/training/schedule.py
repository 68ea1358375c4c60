"""Learning rate schedules: a factor of the peak learning rate for each step, a pure function of its number.

Steps count from 1, the first update.  During warm-up the factor is `step / warmup`: it is above 0 in the first step and
1 in step `warmup`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from headway.errors import UserError


class Schedule(Protocol):
    """The factor of the learning rate at each step."""

    def factor(self, step: int) -> float: ...


@dataclass(frozen=True)
class Constant:
    """1 after warm-up."""

    warmup: int = 0

    def __post_init__(self) -> None:
        check(self.warmup)

    def factor(self, step: int) -> float:
        return risen(step, self.warmup)


@dataclass(frozen=True)
class CosineDecay:
    """Half a cosine from 1 at the end of warm-up to `floor` at step `total` and after it."""

    warmup: int
    total: int
    floor: float = 0.0

    def __post_init__(self) -> None:
        check(self.warmup, self.total, self.floor)

    def factor(self, step: int) -> float:
        gone = share(step, self.warmup, self.total)
        return risen(step, self.warmup) * (self.floor + (1.0 - self.floor) * (1.0 + math.cos(math.pi * gone)) / 2)


@dataclass(frozen=True)
class InverseSqrt:
    """√(warmup / step) after warm-up, without an end."""

    warmup: int

    def __post_init__(self) -> None:
        check(self.warmup)

    def factor(self, step: int) -> float:
        peak = max(self.warmup, 1)
        return risen(step, peak) * math.sqrt(peak / max(step, peak))


@dataclass(frozen=True)
class Noam:
    """scale · dim^−½ · min(step^−½, step · warmup^−1.5), Vaswani et al. 2017.

    It is itself the learning rate: that of the optimiser is 1.
    """

    dim: int
    warmup: int = 4000
    scale: float = 1.0

    def __post_init__(self) -> None:
        check(self.warmup)
        if self.dim < 1:
            raise UserError(f"a model of dim={self.dim}", allowed="1 or more")

    def factor(self, step: int) -> float:
        peak = max(self.warmup, 1)
        return self.scale * self.dim**-0.5 * min(step**-0.5, step * peak**-1.5)


@dataclass(frozen=True)
class WSD:
    """Warm-up, stable, decay: 1 until the last fraction `decay` of all steps, then linearly down to `floor`."""

    warmup: int
    total: int
    decay: float = 0.2
    floor: float = 0.0

    def __post_init__(self) -> None:
        check(self.warmup, self.total, self.floor)
        if not 0.0 <= self.decay <= 1.0:
            raise UserError(f"a decay over {self.decay:g} of all steps", allowed="a share from 0 to 1")

    def factor(self, step: int) -> float:
        start = max(self.warmup, self.total - round(self.decay * self.total))
        return risen(step, self.warmup) * (1.0 - (1.0 - self.floor) * share(step, start, self.total))


def risen(step: int, warmup: int) -> float:
    return min(1.0, step / max(warmup, 1))


def share(step: int, start: int, end: int) -> float:
    """The fraction of the way from `start` to `end`: 0 before, 1 after."""
    return min(1.0, max(0.0, (step - start) / max(end - start, 1)))


def check(warmup: int, total: int | None = None, floor: float = 0.0) -> None:
    if warmup < 0:
        raise UserError(f"a warm-up of {warmup} steps", allowed="0 or more")
    if total is not None and (total < 1 or warmup > total):
        raise UserError(f"a warm-up of {warmup} in {total} steps", allowed="a warm-up no longer than all steps")
    if not 0.0 <= floor <= 1.0:
        raise UserError(f"a floor of {floor:g}", allowed="a share of the highest rate, from 0 to 1")
