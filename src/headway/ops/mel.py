"""Log-mel spectrograms of waveforms.

A `LogMel` is a frozen value that a model folder can hold as plain data; so are its choices: the mel scale, the height
of the triangular filters, where frames stand and how their level is evened.  A clip gives the same frames by itself as
in a batch of longer ones: it is mirrored at its own end, and what stands behind its last frame is zero.

Axes:  B clips   N samples   T frames   F frequencies of the transform   M mels
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import torch
from torch import Tensor

from headway.errors import UserError
from headway.ops.attend import shape_text


@dataclass(frozen=True)
class MelScale(ABC):
    """How high a frequency sounds, and back."""

    gaps: ClassVar[bool] = False  # whether low mels may lie between two frequencies and hold none

    @abstractmethod
    def mel(self, hertz: Tensor) -> Tensor: ...

    @abstractmethod
    def hertz(self, mel: Tensor) -> Tensor: ...

    def straight(self, hertz: Tensor) -> Tensor:
        """Along what the sides of triangles are straight: hertz, as in most libraries."""
        return hertz


@dataclass(frozen=True)
class Htk(MelScale):
    """2595 · log₁₀(1 + hertz / 700): HTK's and torchaudio's."""

    def mel(self, hertz: Tensor) -> Tensor:
        return 2595 * (1 + hertz / 700).log10()

    def hertz(self, mel: Tensor) -> Tensor:
        return 700 * (10 ** (mel / 2595) - 1)


@dataclass(frozen=True)
class Kaldi(Htk):
    """Htk's, with triangles that are straight along mels."""

    gaps: ClassVar[bool] = True

    def straight(self, hertz: Tensor) -> Tensor:
        return self.mel(hertz)


@dataclass(frozen=True)
class Slaney(MelScale):
    """3 mels to 200 hertz up to 1000, then 27 mels to a factor of 6.4: librosa's and Whisper's."""

    def mel(self, hertz: Tensor) -> Tensor:
        above = 15 + (hertz / 1000).clamp(min=1).log() * (27 / math.log(6.4))
        return torch.where(hertz < 1000, hertz * 3 / 200, above)

    def hertz(self, mel: Tensor) -> Tensor:
        above = 1000 * ((mel - 15).clamp(min=0) * (math.log(6.4) / 27)).exp()
        return torch.where(mel < 15, mel * 200 / 3, above)


HTK, SLANEY = Htk(), Slaney()


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


UNIT_PEAK, UNIT_AREA = UnitPeak(), UnitArea()


@dataclass(frozen=True)
class FramePlacement(ABC):
    """Where the windows of a clip stand."""

    @abstractmethod
    def first(self, n_fft: int, window: int) -> int:
        """The sample at which the transform of frame 0 begins; those before 0 are mirrored."""

    @abstractmethod
    def frames(self, samples: int, window: int, hop: int) -> int:
        """How many windows a clip has."""


@dataclass(frozen=True)
class Centred(FramePlacement):
    """Frame t has its middle at sample t · hop.  Whisper leaves out the last one: spare=1."""

    spare: int = 0

    def first(self, n_fft: int, window: int) -> int:
        return -(n_fft // 2)

    def frames(self, samples: int, window: int, hop: int) -> int:
        return samples // hop + 1 - self.spare


@dataclass(frozen=True)
class Inside(FramePlacement):
    """Frame t begins at sample t · hop, and none reaches over the end: Kaldi's."""

    def first(self, n_fft: int, window: int) -> int:
        return -((n_fft - window) // 2)  # the transform has the window in its middle

    def frames(self, samples: int, window: int, hop: int) -> int:
        return max(samples - window, -hop) // hop + 1


@dataclass(frozen=True)
class MelLevel(ABC):
    """What is done with a clip's logarithms, so that loud and soft recordings look alike."""

    @abstractmethod
    def __call__(self, x: Tensor, real: Tensor) -> Tensor:
        """B T M, and where the frames of each clip are, B T 1 → B T M"""


@dataclass(frozen=True)
class AsIs(MelLevel):
    """x"""

    def __call__(self, x: Tensor, real: Tensor) -> Tensor:
        return x


@dataclass(frozen=True)
class PerClip(MelLevel):
    """(x − mean) / (deviation + eps), of each mel over the frames of its clip."""

    eps: float = 1e-5

    def __call__(self, x: Tensor, real: Tensor) -> Tensor:
        count = real.sum(1, keepdim=True)  # B 1 1
        x = x - (x * real).sum(1, keepdim=True) / count
        return x / (((x * real).square().sum(1, keepdim=True) / count).sqrt() + self.eps)


@dataclass(frozen=True)
class Fixed(MelLevel):
    """(x − mean) / deviation, of each mel over all that a model was trained on; one number serves all mels."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @staticmethod
    def of(clips: Iterable[Tensor]) -> Fixed:
        """As measured over the frames of clips, each T M."""
        count, total, squares = 0, torch.zeros(()), torch.zeros(())
        for clip in clips:
            count, clip = count + len(clip), clip.double()
            total, squares = total + clip.sum(0), squares + clip.square().sum(0)
        if count == 0:
            raise UserError("no frames to measure their mean by", do="give at least one clip")
        mean = total / count
        deviation = (squares / count - mean.square()).clamp(min=1e-10).sqrt()
        return Fixed(tuple(mean.tolist()), tuple(deviation.tolist()))

    def __call__(self, x: Tensor, real: Tensor) -> Tensor:
        return (x - x.new_tensor(self.mean)) / x.new_tensor(self.deviation)


@dataclass(frozen=True)
class BelowPeak(MelLevel):
    """(max(x, peak − depth) + depth / 2) / (depth / 2), where the peak is the clip's loudest: Whisper's, depth 8."""

    depth: float = 8.0

    def __call__(self, x: Tensor, real: Tensor) -> Tensor:
        peak = x.masked_fill(~real, -math.inf).amax((1, 2), keepdim=True)
        half = self.depth / 2
        return (torch.maximum(x, peak - self.depth) + half) / half


@dataclass(frozen=True)
class LogMel:
    """level(log_base(max(|STFT|^power · filters, floor))): B N → B T M, at `rate` samples a second.

    `window` samples (a Hann window) are seen at a time, every `hop` samples, by a transform of `n_fft`.
    """

    rate: int = 16_000
    mels: int = 80
    n_fft: int = 512
    window: int = 400
    hop: int = 160
    low: float = 0.0  # hertz
    high: float | None = None  # half the rate
    scale: MelScale = HTK
    height: Height = UNIT_PEAK
    power: float = 2.0
    base: float = math.e
    floor: float = 1e-10
    framing: FramePlacement = Centred()
    level: MelLevel = PerClip()

    def __post_init__(self) -> None:
        if not 0 < self.hop <= self.window <= self.n_fft:
            said = f"frames of {self.window} samples, {self.hop} apart, by a transform of {self.n_fft}"
            raise UserError(said, allowed="0 < hop ≤ window ≤ transform")
        if self.mels < 1 or not 0 <= self.low < self.top <= self.rate / 2:
            said = f"{self.mels} mels from {self.low:g} to {self.top:g} hertz at {self.rate:,} samples a second"
            raise UserError(said, allowed=f"1 or more, and 0 ≤ lowest < highest ≤ {self.rate / 2:g}")

    @staticmethod
    def speech(rate: int, mels: int = 80) -> LogMel:
        """25 ms of sound every 10 ms, whatever the rate; telephones have 8000, and 40 mels are enough for them."""
        window = rate // 40
        return LogMel(rate, mels, n_fft=1 << (window - 1).bit_length(), window=window, hop=rate // 100)

    @property
    def top(self) -> float:
        return self.rate / 2 if self.high is None else self.high

    def frames(self, samples: int) -> int:
        """How many frames a clip of so many samples has; a clip that has none is refused."""
        frames = self.framing.frames(samples, self.window, self.hop)
        if samples < 1 or frames < 1:
            said = f"a clip of {samples} samples is too short for one frame"
            raise UserError(said, do=f"leave it out, or lengthen it to {self.window} samples")
        return frames

    def __call__(self, waves: Tensor, lengths: list[int] | None = None) -> Tensor:
        """Frames of a batch of clips, B N → B T M; `lengths` are their samples, where some are shorter than N."""
        samples = [waves.shape[-1]] if lengths is None else lengths
        check_lengths(waves, samples)
        counts = [self.frames(length) for length in samples]
        power = self.spectrum(waves, samples, max(counts))  # B T F
        filters = mel_filters(self.n_fft, self.rate, self.mels, self.low, self.top, self.scale, self.height)
        logs = (power @ filters.to(power)).clamp(min=self.floor).log() / math.log(self.base)  # B T M
        steps = torch.arange(max(counts), device=waves.device)
        real = (steps < torch.tensor(counts, device=waves.device)[:, None])[..., None]  # B|1 T 1
        return self.level(logs, real.expand(*logs.shape[:2], 1)).masked_fill(~real, 0.0)

    def spectrum(self, waves: Tensor, lengths: list[int], frames: int) -> Tensor:
        """|STFT|^power of each clip, mirrored at its own ends, B T F."""
        begin = self.framing.first(self.n_fft, self.window)
        at = torch.arange(begin, begin + (frames - 1) * self.hop + self.n_fft, device=waves.device)
        index = reflect(at, torch.tensor(lengths, device=waves.device)[:, None])  # B|1 N′
        sound = waves[:, index[0]] if len(index) == 1 else waves.gather(1, index)
        window = torch.hann_window(self.window, dtype=waves.dtype, device=waves.device)
        transform = torch.stft(
            sound, self.n_fft, self.hop, self.window, window, center=False, return_complex=True
        )  # B F T
        return transform.abs().pow(self.power).mT


@dataclass(frozen=True)
class KaldiMel(LogMel):
    """Kaldi's frames: each less its mean, and each sample less most of the one before it, in a symmetric window."""

    n_fft: int = 512
    scale: MelScale = Kaldi()
    floor: float = torch.finfo(torch.float32).eps
    framing: FramePlacement = Inside()
    level: MelLevel = AsIs()
    emphasis: float = 0.97

    def spectrum(self, waves: Tensor, lengths: list[int], frames: int) -> Tensor:
        """In double precision: the logarithm of what nearly vanishes is large."""
        x = waves.double()[:, : (frames - 1) * self.hop + self.window].unfold(1, self.window, self.hop)  # B T N
        x = x - x.mean(-1, keepdim=True)
        before = torch.cat([x[..., :1], x[..., :-1]], -1)
        window = torch.hann_window(self.window, periodic=False, dtype=x.dtype, device=x.device)
        return torch.fft.rfft((x - self.emphasis * before) * window, self.n_fft).abs().pow(self.power).to(waves.dtype)


# 25 ms every 10 ms of 30 s at 16 kHz; large-v3 and turbo have replace(WHISPER, mels=128)
WHISPER = LogMel(n_fft=400, scale=SLANEY, height=UNIT_AREA, base=10.0, framing=Centred(spare=1), level=BelowPeak(8.0))


@cache
def mel_filters(n_fft: int, rate: int, mels: int, low: float, high: float, scale: MelScale, height: Height) -> Tensor:
    """What each frequency of a transform of `n_fft` samples gives to each mel, F M, float64.

    Triangle m rises from the frequency of the mel before it to its own and falls to that of the next, where `mels` + 2
    of them stand evenly on the scale from `low` to `high` hertz.
    """
    first, last = scale.mel(torch.tensor([low, high], dtype=torch.float64)).tolist()
    corners = scale.hertz(torch.linspace(first, last, mels + 2, dtype=torch.float64))  # M + 2
    bins = scale.straight(torch.arange(n_fft // 2 + 1, dtype=torch.float64)[:, None] * (rate / n_fft))  # F 1
    sides = scale.straight(corners)
    before, middle, behind = sides[:-2], sides[1:-1], sides[2:]
    rise, fall = (bins - before) / (middle - before), (behind - bins) / (behind - middle)  # F M
    filters = torch.minimum(rise, fall).clamp(min=0)
    empty = (filters == 0).all(0).nonzero()
    if len(empty) and not scale.gaps:
        said = f"no frequency of a transform of {n_fft} samples lies in mel {int(empty[0])} of {mels}"
        raise UserError(said, allowed="mels that each hold a frequency", do="take fewer mels, or a larger n_fft")
    return filters * height(corners[2:] - corners[:-2])


def reflect(at: Tensor, length: Tensor) -> Tensor:
    """The sample of a clip (`length`, B 1) that stands at a place before or behind it, B N: its ends are mirrors."""
    turn = (length - 1).clamp(min=1)  # a clip of one sample is that sample everywhere
    folded = at.remainder(2 * turn)
    return torch.minimum(folded, 2 * turn - folded).minimum(length - 1)


def check_lengths(waves: Tensor, lengths: list[int]) -> None:
    if waves.dim() != 2 or not waves.is_floating_point():
        allowed = "B N, numbers from −1 to 1"
        raise UserError(f"waves are {shape_text(waves)}, {waves.dtype}", allowed=allowed, do="divide int16 by 32768")
    if len(lengths) not in (1, len(waves)) or max(lengths) > waves.shape[1]:
        said = f"{len(lengths)} lengths up to {max(lengths, default=0)} for waves of {shape_text(waves)}"
        raise UserError(said, allowed="one for each clip, none beyond its samples")
