"""Sound at another rate: scipy's polyphase filter, and what must hold of any."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from headway.ops.resample import resample

RATIOS = [(2, 1), (1, 2), (3, 2), (2, 3), (160, 441), (10, 9), (10, 11), (1600, 4409), (6, 4)]


@pytest.mark.slow
@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("length", [1, 7, 500])
def test_it_is_what_scipy_makes(ratio: tuple[int, int], length: int) -> None:
    signal = pytest.importorskip("scipy.signal")
    sound = np.random.default_rng(0).standard_normal((2, length))
    assert_close(
        resample(torch.from_numpy(sound), *ratio), torch.from_numpy(signal.resample_poly(sound, *ratio, axis=-1))
    )


def test_a_tone_stays_the_same_tone() -> None:
    """440 Hz from 44,100 to 16,000 samples a second, away from the ends."""
    old, new = (torch.sin(2 * math.pi * 440 * torch.arange(rate) / rate) for rate in (44_100, 16_000))
    made = resample(old, 160, 441)
    assert len(made) == 16_000
    assert_close(made[200:-200], new[200:-200], atol=2e-3, rtol=0)


def test_what_the_new_rate_cannot_hold_is_gone() -> None:
    tone = torch.sin(2 * math.pi * 7000 * torch.arange(16_000) / 16_000)
    assert resample(tone, 1, 2)[200:-200].abs().max() < 0.01


def test_the_same_rate_is_the_same_sound() -> None:
    sound = torch.randn(50)
    assert resample(sound, 5, 5) is sound
