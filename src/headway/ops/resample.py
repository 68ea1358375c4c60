"""Resampling of audio by a polyphase low-pass filter.

The new signal is the old one with `up` − 1 zeros between its samples, filtered, of which each `down`-th sample stays.
Nothing is stuffed or thrown away: a new sample reads the few old ones that the filter reaches from it (polyphase).

Axes:  N old samples   M new samples
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

ZEROS = 10  # crossings of zero on each side of the filter
BETA = 5.0  # Kaiser's window: what is folded back is about 53 dB below the sound


def resample(sound: Tensor, up: int, down: int) -> Tensor:
    """`sound`, ... N, at `up` / `down` times its rate: ... M, where M = ⌈N · up / down⌉.

    y[m] = Σ_n  h[m · down − n · up] · x[n], with h a windowed sinc that cuts at the lower of the two half rates.
    """
    assert up > 0, up
    assert down > 0, down
    shared = math.gcd(up, down)
    up, down = up // shared, down // shared
    if up == down:
        return sound
    total, filter_ = -(-sound.shape[-1] * up // down), low_pass(up, down).to(sound)
    half = len(filter_) // 2
    reach = half // up  # old samples on each side of a new one that it reads
    padded = F.pad(sound, (reach, reach + 1))
    made = sound.new_empty(*sound.shape[:-1], total)
    for m in range(min(up, total)):  # new samples m, m + up, m + 2 up, … see the same taps, `down` old samples apart
        first = -((half - m * down) // up)  # the first old sample within reach, ⌈(m · down − half) / up⌉
        taps = filter_[half + first * up - m * down :: up]  # the filter is the same from both ends
        windows = padded[..., reach + first :].unfold(-1, len(taps), down)
        made[..., m::up] = windows[..., : len(range(m, total, up)), :] @ taps
    return made


@lru_cache(64)
def low_pass(up: int, down: int) -> Tensor:
    """The filter at `up` times the old rate, 2 · half + 1 taps that sum to `up`."""
    widest = max(up, down)
    half = ZEROS * widest
    at = torch.arange(-half, half + 1, dtype=torch.float64)
    taps = torch.sinc(at / widest) * torch.kaiser_window(2 * half + 1, False, BETA, dtype=torch.float64)
    return taps * (up / taps.sum())
