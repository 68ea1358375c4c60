"""Sound at another sample rate: a low-pass filter, evaluated only where the new samples stand.

The new signal is the old one with `up` − 1 zeros between its samples, filtered, of which each `down`-th sample stays.
Nothing is stuffed or thrown away: a new sample reads the few old ones that the filter reaches from it (polyphase).

Axes:  N old samples   M new samples   W old samples that one new sample reads
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

ZEROS = 10  # crossings of zero on each side of the filter
BETA = 5.0  # Kaiser's window: what is folded back is about 53 dB below the sound
BLOCK = 2**16  # new samples that are made at once


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
    total, half = -(-sound.shape[-1] * up // down), ZEROS * max(up, down)
    filter_ = low_pass(up, down).to(sound)
    width = 2 * half // up + 1
    padded = torch.nn.functional.pad(sound, (width, width))
    made = [
        block(padded, filter_, torch.arange(at, min(at + BLOCK, total)), up, down, width)
        for at in range(0, total, BLOCK)
    ]
    return torch.cat(made, -1)


def block(padded: Tensor, filter_: Tensor, m: Tensor, up: int, down: int, width: int) -> Tensor:
    """The new samples of numbers `m`; the old ones have `width` zeros on both sides."""
    half = len(filter_) // 2
    first = -((half - m * down) // up)  # M: the first old sample within reach, ⌈(m · down − half) / up⌉
    n = first[:, None] + torch.arange(width)  # M W
    tap = half + (m * down)[:, None] - n * up
    reached = (tap >= 0) & (n + width < padded.shape[-1])
    weights = filter_[tap.clamp(0)] * reached
    return (padded[..., (n + width).clamp(max=padded.shape[-1] - 1)] * weights).sum(-1)


@lru_cache(64)
def low_pass(up: int, down: int) -> Tensor:
    """The filter at `up` times the old rate, 2 · half + 1 taps that sum to `up`."""
    widest = max(up, down)
    half = ZEROS * widest
    at = torch.arange(-half, half + 1, dtype=torch.float64)
    taps = torch.sinc(at / widest) * torch.kaiser_window(2 * half + 1, False, BETA, dtype=torch.float64)
    return taps * (up / taps.sum())
