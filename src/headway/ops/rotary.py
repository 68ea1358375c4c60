"""Rotary position embedding: each pair of head dims is turned by an angle that grows with the position, so that the
dot product of a query at m and a key at n knows only m − n; and sinusoids of the same frequencies, to be added.

    (a, b) → (a cos φ − b sin φ,  b cos φ + a sin φ),    φ = position · frequency,    frequency = base^(−2i / R)

A layout says which dims pair up; a scaling changes the frequencies of a model that is to read further than it was
trained to.  All of it is values: nothing is cached, and positions are data.

Axes:  B batch   H heads   T tokens   D head width   R turned width (R ≤ D)   F frequencies (R / 2)
       C width
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from headway.errors import UserError


@dataclass(frozen=True)
class Layout:
    """Which dims make a pair: a last axis of width 2·F is folded into two axes, one of them of size 2."""

    fold: tuple[int, int]

    def split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        sizes = [x.shape[-1] // 2 if size == -1 else size for size in self.fold]
        a, b = x.unflatten(-1, sizes).unbind(self.fold.index(2) - 2)
        return a, b

    def join(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.stack((a, b), self.fold.index(2) - 2).flatten(-2)


HALVES = Layout((2, -1))  # a a a b b b: GPT-NeoX, Phi, and Llama as Hugging Face stores it
PAIRS = Layout((-1, 2))  # a b a b a b: the paper, GPT-J, and Llama as Meta stores it


@dataclass(frozen=True)
class Scaling(ABC):
    """How fast the pairs of a stretched model turn; `factor` is how many times further it is to read."""

    factor: float

    def __post_init__(self) -> None:
        if self.factor < 1:
            raise UserError(f"{self} would shorten the context", allowed="a factor of 1 or more")

    def check(self, width: int) -> None:
        """Refuses a turned width that this scaling was not made for; most are made for any."""
        return

    @abstractmethod
    def frequencies(self, width: int, base: float, positions: Tensor) -> Tensor:
        """Radians per position for a turned width, (F,), or B|1 1 F where they depend on `positions` (B|1 T)."""

    def amplitude(self) -> float:
        """What cosine and sine are multiplied by."""
        return 1.0


@dataclass(frozen=True)
class Linear(Scaling):
    """Every pair turns `factor` times slower: position interpolation."""

    def frequencies(self, width: int, base: float, positions: Tensor) -> Tensor:
        return inverse_frequencies(width, base, positions) / self.factor


UNSCALED = Linear(1.0)


@dataclass(frozen=True)
class Rotary:
    """Turns the first `turned` dims (None: all) of every head by its token's position."""

    head_dim: int
    base: float = 10_000.0
    turned: int | None = None
    layout: Layout = HALVES
    scaling: Scaling = UNSCALED

    def __post_init__(self) -> None:
        if self.width % 2 or not 0 < self.width <= self.head_dim:
            given = f"head_dim={self.head_dim}" + ("" if self.turned is None else f", turned={self.turned}")
            raise UserError(f"Rotary({given}) has no pairs to turn", allowed="an even width from 2 to head_dim")
        self.scaling.check(self.width)

    @property
    def width(self) -> int:
        return self.head_dim if self.turned is None else self.turned

    def __call__(self, x: Tensor, positions: Tensor) -> Tensor:
        """`x` (B H T D) turned by `positions` (B|1 T)."""
        return self.turn(x, *self.waves(positions))

    def waves(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and sine of the angles, B|1 1 T F, float32: what a query and a key of the same tokens can share."""
        frequencies = self.scaling.frequencies(self.width, self.base, positions)
        angles = (positions[..., None].float() * frequencies)[:, None]  # B|1 1 T F
        amplitude = self.scaling.amplitude()
        return angles.cos() * amplitude, angles.sin() * amplitude

    def turn(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """`x` (B H T D) turned by the angles that `waves` gave; in float32 or better, back in the type of `x`."""
        if x.shape[-1] != self.head_dim:
            raise UserError(f"Rotary({self.head_dim}) was given heads of width {x.shape[-1]}", do="make them equal")
        a, b = self.layout.split(x[..., : self.width])
        turned = self.layout.join(a * cos - b * sin, b * cos + a * sin).to(x.dtype)  # B H T R
        return torch.cat((turned, x[..., self.width :]), -1) if self.width < self.head_dim else turned


@dataclass(frozen=True)
class GridRotary(Rotary):
    """Turns half of the pairs by a token's y, the others by its x, in whole turns: `positions` are B|1 T 2 (DINOv3).

    A token that belongs to no place stands at (0, 0), where nothing turns.
    """

    def __post_init__(self) -> None:
        if self.width % 4:
            raise UserError(f"{self} has no pairs for y and for x", allowed="a turned width that is a multiple of 4")
        super().__post_init__()

    def waves(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        frequencies = self.scaling.frequencies(self.width // 2, self.base, positions)
        angles = (2 * math.pi * positions[..., None].float() * frequencies).flatten(-2)[:, None]  # B|1 1 T F
        amplitude = self.scaling.amplitude()
        return angles.cos() * amplitude, angles.sin() * amplitude


@dataclass(frozen=True)
class Llama3(Scaling):
    """Pairs that turn more than `high` times within the trained context stay, those below `low` turns are slowed."""

    low: float
    high: float
    original_context: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.low < self.high:
            raise UserError(f"{self} has no room between low and high", allowed="low < high, as in 1 and 4")

    def frequencies(self, width: int, base: float, positions: Tensor) -> Tensor:
        trained = inverse_frequencies(width, base, positions)
        turns = self.original_context / (2 * math.pi / trained)
        return interpolate_frequencies(
            trained, self.factor, stay=((turns - self.low) / (self.high - self.low)).clamp(0, 1)
        )


@dataclass(frozen=True)
class Yarn(Scaling):
    """As Llama3, from `beta_fast` to `beta_slow` turns, but ramped over the pair's index; logits are sharpened too.

    The amplitude is `attention` where given, else m(mscale) / m(mscale_all) with m(s) = 0.1 · s · ln(factor) + 1.
    """

    original_context: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention: float | None = None
    mscale: float = 1.0
    mscale_all: float = 0.0
    whole: bool = True  # the ramp begins and ends at a pair, not between two

    def frequencies(self, width: int, base: float, positions: Tensor) -> Tensor:
        def pair_with(turns: float) -> float:  # the index of the pair that makes so many turns within the context
            return width * math.log(self.original_context / (turns * 2 * math.pi)) / (2 * math.log(base))

        first, last = pair_with(self.beta_fast), pair_with(self.beta_slow)
        if self.whole:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, width - 1)
        pairs = torch.arange(width // 2, dtype=torch.float32, device=positions.device)
        # 0.001: what the published code adds to an empty ramp
        ramp = ((pairs - first) / (last - first or 0.001)).clamp(0, 1)
        return interpolate_frequencies(inverse_frequencies(width, base, positions), self.factor, stay=1 - ramp)

    def amplitude(self) -> float:
        if self.attention is not None:
            return self.attention
        log = 0.1 * math.log(self.factor)
        return (self.mscale * log + 1) / (self.mscale_all * log + 1)


@dataclass(frozen=True)
class Ntk(Scaling):
    """A larger base: the slowest pair turns `factor` times slower, the fastest as it did."""

    def frequencies(self, width: int, base: float, positions: Tensor) -> Tensor:
        return inverse_frequencies(width, base * self.factor ** ntk_power(width), positions)


@dataclass(frozen=True)
class DynamicNtk(Scaling):
    """Ntk whose factor grows with the longest position of each row, from 1 within the trained context.

    A cached key keeps the angle of the length at which it was written, so that cached and full calls differ beyond
    the trained context, as they do in Hugging Face; `Ntk` has no such surprise.
    """

    original_context: int

    def frequencies(self, width: int, base: float, positions: Tensor) -> Tensor:
        length = (positions.amax(-1) + 1).clamp(min=self.original_context)[:, None, None]  # B|1 1 1
        factor = self.factor * length / self.original_context - (self.factor - 1)
        return inverse_frequencies(width, base * factor ** ntk_power(width), positions)  # B|1 1 F


@dataclass(frozen=True)
class LongRope(Scaling):
    """Each pair turns slower by a factor of its own: by `short` within the trained context, by `long` beyond it.

    The amplitude is `attention` where given, else √(1 + ln(factor) / ln(original_context)).  A row that grows beyond
    the trained context turns by other frequencies than its cached keys did, as in Hugging Face.
    """

    short: tuple[float, ...]
    long: tuple[float, ...]
    original_context: int
    attention: float | None = None

    def check(self, width: int) -> None:
        if not len(self.short) == len(self.long) == width // 2:
            said = f"LongRope has {len(self.short)} short and {len(self.long)} long factors for {width} turned dims"
            raise UserError(said, allowed=f"{width // 2} of each, one for each pair")

    def frequencies(self, width: int, base: float, positions: Tensor) -> Tensor:
        beyond = (positions.amax(-1) >= self.original_context)[:, None, None]  # B|1 1 1
        short, long = (
            inverse_frequencies(
                width, base, positions, torch.tensor(factors, dtype=torch.float32, device=positions.device)
            )
            for factors in (self.short, self.long)
        )
        return torch.where(beyond, long, short)  # B|1 1 F

    def amplitude(self) -> float:
        if self.attention is not None:
            return self.attention
        return math.sqrt(1 + math.log(self.factor) / math.log(self.original_context))


def inverse_frequencies(width: int, base: float | Tensor, positions: Tensor, slower: float | Tensor = 1.0) -> Tensor:
    """base^(−2i / R) / slower in float32, by the very operations of Hugging Face: far positions agree to the bit."""
    return 1.0 / (slower * base ** (torch.arange(0, width, 2, device=positions.device).float() / width))


def interpolate_frequencies(trained: Tensor, factor: float, stay: Tensor) -> Tensor:
    """Between the trained frequency (stay = 1) and one `factor` times slower (stay = 0)."""
    return (1 - stay) * trained / factor + stay * trained


def ntk_power(width: int) -> float:
    return width / max(width - 2, 1)  # a width of 2 has one frequency, 1, whatever the base


def sinusoid(
    positions: Tensor, dim: int, base: float = 10_000.0, layout: Layout = PAIRS, steps: int | None = None
) -> Tensor:
    """Sines and cosines of position / base^(i / steps) for i = 0 … C/2 − 1: `positions` (…) to (… C), float32.

    The paper has sine and cosine in turn (PAIRS) and C/2 steps (None); tensor2tensor, fairseq and Whisper have all
    sines first (HALVES) and C/2 − 1 steps, so that the slowest wave is exactly `base` times slower.
    """
    half, odd = divmod(dim, 2)
    steps = half if steps is None else steps
    if odd or half < 1 or steps < 1:
        raise UserError(f"sinusoids of dim={dim} in {steps} steps cannot be", allowed="an even dim and 1 step or more")
    frequencies = torch.exp(torch.arange(half, device=positions.device).float() * -(math.log(base) / steps))
    angles = positions[..., None].float() * frequencies
    return layout.join(angles.sin(), angles.cos())


def sinusoid_2d(rows: int, cols: int, dim: int, base: float = 10_000.0, device: torch.device | None = None) -> Tensor:
    """For patches in a grid, (rows·cols, C): the first half of the channels tells y, the second x.

    The order of MoCo-v3; MAE's published tables have x first.
    """
    if dim % 4 or dim < 4:
        raise UserError(f"dim={dim} does not split into sine and cosine of y and x", allowed="a multiple of 4")
    y, x = (sinusoid(torch.arange(n, device=device), dim // 2, base, HALVES) for n in (rows, cols))
    return torch.cat((y.repeat_interleave(cols, 0), x.repeat(rows, 1)), -1)
