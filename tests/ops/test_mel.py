"""Log-mel frames: a clip alone is the clip in a batch; filters and frames are those of other libraries.

Axes:  B clips   N samples   T frames   F frequencies   M mels
"""

from __future__ import annotations

import json
from dataclasses import replace
from math import log

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor
from torch.testing import assert_close

from headway.errors import UserError
from headway.ops.mel import (
    HTK,
    SLANEY,
    UNIT_AREA,
    UNIT_PEAK,
    WHISPER,
    AsIs,
    BelowPeak,
    Fixed,
    Height,
    Inside,
    LogMel,
    MelLevel,
    MelScale,
    PerClip,
    mel_filters,
    reflect,
)
from headway.zoo.build import from_plain, to_plain
from tests.laws.subjects import cases

SMALL = LogMel(rate=1000, mels=6, n_fft=32, window=20, hop=8)
WHISPERED = replace(WHISPER, rate=1000, mels=5, n_fft=32, window=32, hop=8)
KINDS = {
    "conformer": SMALL,
    "whisper": WHISPERED,
    "inside": replace(SMALL, framing=Inside(), scale=SLANEY, power=1.0, level=AsIs()),
    "fixed": replace(SMALL, level=Fixed((1.0,), (2.0,)), height=UNIT_AREA, base=10.0),
}
kinds = pytest.mark.parametrize("kind", KINDS)


def sound(batch: int, samples: int) -> Tensor:
    return torch.randn(batch, samples, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


# ---- laws


@kinds
@given(lengths=st.lists(st.integers(20, 70), min_size=1, max_size=4))
@cases(10)
def test_a_clip_is_the_same_alone_and_in_a_batch(kind: str, lengths: list[int]) -> None:
    mel, waves = KINDS[kind], sound(len(lengths), 75)
    together = mel(waves, lengths)
    assert together.shape[1] == mel.frames(max(lengths))
    for row, length in enumerate(lengths):
        alone = mel(waves[row : row + 1, :length])
        assert_close(together[row : row + 1, : alone.shape[1]], alone)
        assert together[row, alone.shape[1] :].eq(0).all()


@kinds
def test_what_stands_behind_a_clip_is_not_heard(kind: str) -> None:
    waves = sound(2, 75)
    other = waves.clone()
    other[1, 40:] += 100.0
    assert_close(KINDS[kind](waves, [75, 40]), KINDS[kind](other, [75, 40]), atol=0, rtol=0)


@pytest.mark.parametrize("level", [PerClip(), BelowPeak()], ids=str)
def test_louder_is_the_same(level: MelLevel) -> None:
    """A factor moves all logarithms alike, which these levels take out; `BelowPeak` keeps the peak itself."""
    mel, waves = replace(SMALL, level=level, floor=1e-30), sound(2, 75)
    a, b = mel(waves), mel(10 * waves)
    if isinstance(level, BelowPeak):
        a, b = (x - x.amax((1, 2), keepdim=True) for x in (a, b))
    assert_close(a, b, atol=1e-9, rtol=1e-9)


@kinds
def test_gradients_reach_the_sound(kind: str) -> None:
    waves = sound(2, 45).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: KINDS[kind](x, [45, 30]), (waves,), fast_mode=True)


@pytest.mark.parametrize("samples", [1, 2, 5, 19])
def test_the_shortest_clips_and_silence_are_finite(samples: int) -> None:
    for waves in (torch.zeros(2, samples), torch.ones(2, samples)):
        frames = SMALL(waves)
        assert frames.isfinite().all()
        assert frames.shape == (2, samples // 8 + 1, 6)


# ---- the same, written out with numpy


def their_filters(mel: LogMel) -> NDArray[np.float64]:
    """librosa's and torchaudio's text: triangles between the frequencies of evenly spaced mels, F M."""
    step, edge = 200 / 3, log(6.4) / 27

    def to_mel(hertz: float) -> float:
        if mel.scale == HTK:
            return float(2595 * np.log10(1 + hertz / 700))
        return hertz / step if hertz < 1000 else 15 + float(np.log(hertz / 1000)) / edge

    def to_hertz(value: float) -> float:
        if mel.scale == HTK:
            return float(700 * (10 ** (value / 2595) - 1))
        return value * step if value < 15 else float(1000 * np.exp(edge * (value - 15)))

    corners = [to_hertz(x) for x in np.linspace(to_mel(mel.low), to_mel(mel.top), mel.mels + 2)]
    weights = np.zeros((mel.n_fft // 2 + 1, mel.mels))
    for f in range(len(weights)):
        hertz = f * mel.rate / mel.n_fft
        for m, (left, middle, right) in enumerate(zip(corners, corners[1:], corners[2:], strict=False)):
            rise, fall = (hertz - left) / (middle - left), (right - hertz) / (right - middle)
            high = 2 / (right - left) if mel.height == UNIT_AREA else 1.0
            weights[f, m] = high * max(0.0, min(rise, fall))
    return weights


def their_frames(mel: LogMel, wave: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log-mels of one clip before any level, T M, by a plain Fourier sum."""
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(mel.window) / mel.window)
    if mel.framing != Inside():
        wave = np.pad(wave, mel.window // 2, mode="reflect")
    turns = np.exp(-2j * np.pi * np.outer(np.arange(mel.n_fft // 2 + 1), np.arange(mel.window)) / mel.n_fft)
    frames = []
    for begin in range(0, len(wave) - mel.window + 1, mel.hop):
        power = np.abs(turns @ (window * wave[begin : begin + mel.window])) ** mel.power
        frames.append(np.log(np.maximum(power @ their_filters(mel), mel.floor)) / np.log(mel.base))
    return np.stack(frames)


@pytest.mark.parametrize("scale", [HTK, SLANEY], ids=str)
@pytest.mark.parametrize("height", [UNIT_PEAK, UNIT_AREA], ids=str)
@pytest.mark.parametrize("low", [0.0, 300.0])
def test_filters_are_the_formula(scale: MelScale, height: Height, low: float) -> None:
    mel = LogMel(mels=20, low=low, high=6000.0, scale=scale, height=height)
    ours = mel_filters(mel.n_fft, mel.rate, mel.mels, mel.low, mel.top, mel.scale, mel.height)
    assert_close(ours.numpy(), their_filters(mel))


@kinds
def test_frames_are_a_plain_fourier_sum(kind: str) -> None:
    mel, wave = replace(KINDS[kind], level=AsIs()), sound(1, 80)
    expected = their_frames(mel, wave[0].numpy())
    assert_close(mel(wave)[0].numpy(), expected[: mel.frames(80)])


@pytest.mark.parametrize(("n_fft", "window"), [(32, 32), (32, 20), (32, 21), (31, 20)])
def test_frames_stand_where_torch_centres_them(n_fft: int, window: int) -> None:
    waves, mel = sound(2, 75), replace(SMALL, n_fft=n_fft, window=window)
    hann = torch.hann_window(window, dtype=waves.dtype)
    expected = torch.stft(waves, n_fft, 8, window, hann, center=True, return_complex=True).abs().square()
    assert_close(mel.spectrum(waves, [75], mel.frames(75)), expected.mT)


# ---- the other libraries' figures


def test_scales_are_those_of_librosas_documentation() -> None:
    hertz = torch.tensor([60.0, 110.0, 220.0, 440.0], dtype=torch.float64)
    assert_close(SLANEY.mel(hertz), torch.tensor([0.9, 1.65, 3.3, 6.6], dtype=torch.float64))
    last = float(SLANEY.mel(torch.tensor(11025.0, dtype=torch.float64)))
    corners = SLANEY.hertz(torch.linspace(0, last, 40, dtype=torch.float64))
    told = [0.0, 85.317, 170.635, 255.952, 853.173, 938.49, 1024.856, 1119.114, 2071.84, 10096.408, 11025.0]
    at = [0, 1, 2, 3, 10, 11, 12, 13, 20, 38, 39]
    assert_close(corners[at], torch.tensor(told, dtype=torch.float64), atol=6e-4, rtol=0)
    assert_close(HTK.mel(torch.tensor([0.0, 700.0, 1000.0])), torch.tensor([0.0, 781.1728, 999.9855]))


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["htk", "slaney"])
@pytest.mark.parametrize("norm", [None, "slaney"])
def test_filters_are_those_of_transformers(scale: str, norm: str | None) -> None:
    from transformers.audio_utils import mel_filter_bank

    theirs = mel_filter_bank(257, 40, 20.0, 7600.0, 16_000, norm=norm, mel_scale=scale)
    chosen = {"htk": HTK, "slaney": SLANEY}[scale], UNIT_AREA if norm else UNIT_PEAK
    assert_close(mel_filters(512, 16_000, 40, 20.0, 7600.0, *chosen).numpy(), theirs)


@pytest.mark.slow
@pytest.mark.parametrize("mels", [80, 128])
def test_whispers_frames_are_those_of_transformers(mels: int) -> None:
    from transformers import WhisperFeatureExtractor

    theirs, clip = WhisperFeatureExtractor(feature_size=mels), 0.1 * sound(1, 20_000)
    expected = theirs(clip[0].numpy(), sampling_rate=16_000, return_tensors="pt")["input_features"].mT
    window = torch.zeros(1, 480_000)  # 30 seconds
    window[:, :20_000] = clip
    ours = replace(WHISPER, mels=mels)(window)
    assert ours.shape == (1, 3000, mels)
    assert_close(ours, expected, atol=1e-5, rtol=0)


def test_frames_are_those_of_transformers() -> None:
    from transformers.audio_utils import mel_filter_bank, spectrogram, window_function

    wave = sound(1, 4000)
    bank = mel_filter_bank(201, 40, 0.0, 8000.0, 16_000, norm=None, mel_scale="htk")
    hann = window_function(400, "hann")
    theirs = spectrogram(
        wave[0].numpy(), hann, 400, 160, power=2.0, mel_filters=bank, log_mel="log", mel_floor=1e-6, dtype=np.float64
    )
    ours = LogMel(mels=40, n_fft=400, floor=1e-6, level=AsIs())(wave)
    assert_close(ours[0].numpy(), theirs.T, atol=1e-5, rtol=1e-5)


# ---- by eye


def test_a_tone_is_loudest_at_its_mel() -> None:
    mel = replace(LogMel.speech(8000, 40), level=AsIs())
    tone = torch.sin(2 * torch.pi * 1000 * torch.arange(8000) / 8000)[None]
    corners = HTK.hertz(torch.linspace(0, float(HTK.mel(torch.tensor(4000.0))), 42))[1:-1]
    assert mel(tone)[0, 20:80].mean(0).argmax() == (corners - 1000).abs().argmin()


def test_how_many_frames_a_clip_has() -> None:
    assert [SMALL.frames(n) for n in (1, 7, 8, 16)] == [1, 1, 2, 3]
    assert [WHISPERED.frames(n) for n in (8, 15, 16)] == [1, 1, 2]
    assert [KINDS["inside"].frames(n) for n in (20, 27, 28)] == [1, 1, 2]
    assert WHISPER.frames(480_000) == 3000
    told = LogMel.speech(8000)
    assert (told.window, told.hop, told.n_fft, LogMel.speech(16_000)) == (200, 80, 256, LogMel())


@pytest.mark.parametrize("rate", [8000, 11_025, 16_000, 22_050, 44_100, 48_000])
def test_speech_at_any_rate(rate: int) -> None:
    mel = LogMel.speech(rate)
    assert mel(sound(1, rate)).shape == (1, rate // (rate // 100) + 1, 80)


def test_a_mirror_at_both_ends() -> None:
    at = torch.arange(-4, 8)
    lengths = torch.tensor([[4], [2], [1]])
    assert reflect(at, lengths).tolist() == [
        [2, 3, 2, 1, 0, 1, 2, 3, 2, 1, 0, 1],
        [0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1],
        [0] * 12,
    ]


def test_levels_by_eye() -> None:
    x, real = torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([[[True], [True], [False]]])
    assert_close(PerClip(eps=0.0)(x, real)[:, :2], torch.tensor([[[-1.0], [1.0]]]))
    assert_close(BelowPeak(8.0)(x - 7, real), torch.tensor([[[-0.5], [0.0], [1.5]]]))
    assert_close(BelowPeak(1.0)(x, real)[:, :2], torch.tensor([[[5.0], [7.0]]]))
    fixed = Fixed.of([x[0], x[0, :1]])
    assert_close(list(fixed.mean), [3.5])
    assert_close(list(fixed.deviation), [np.std([1, 3, 9, 1])])
    assert_close(fixed(x, real)[0, 1, 0], torch.tensor((3 - 3.5) / np.std([1, 3, 9, 1])).float())


@kinds
def test_it_is_plain_data(kind: str) -> None:
    written = json.dumps(to_plain(KINDS[kind]))
    assert from_plain(LogMel, json.loads(written)) == KINDS[kind]


def test_mistakes_are_told() -> None:
    with pytest.raises(UserError, match=r"frames of 600 samples, 160 apart, by a transform of 512; allowed: 0 < hop"):
        LogMel(window=600)
    with pytest.raises(UserError, match="frames of 400 samples, 401 apart"):
        LogMel(hop=401)
    with pytest.raises(UserError, match=r"80 mels from 0 to 9000 hertz at 16,000.*highest ≤ 8000"):
        LogMel(high=9000.0)
    with pytest.raises(UserError, match=r"0 mels from 0 to 8000 hertz"):
        LogMel(mels=0)
    with pytest.raises(UserError, match=r"no frequency of a transform of 512 samples lies in mel 0 of 400"):
        LogMel(mels=400)(sound(1, 4000))
    with pytest.raises(UserError, match=r"waves are 40, torch.float64; allowed: B N"):
        SMALL(sound(1, 40)[0])
    with pytest.raises(UserError, match="divide int16 by 32768"):
        SMALL(torch.ones(1, 40, dtype=torch.int16))
    with pytest.raises(UserError, match="2 lengths up to 41 for waves of 2×40"):
        SMALL(sound(2, 40), [40, 41])
    with pytest.raises(UserError, match="a clip of 0 samples is too short"):
        SMALL(sound(2, 40), [40, 0])
    with pytest.raises(UserError, match=r"19 samples is too short for one frame; .* 20 samples"):
        KINDS["inside"](sound(1, 19))
    with pytest.raises(UserError, match="no frames to measure"):
        Fixed.of([])
