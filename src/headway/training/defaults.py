"""Defaults: a model by the size of the data and the time, and how to train it.

They follow from the recipe and the data alone, never from the clock, so that the same command makes the same run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

MINUTES = 10.0  # of training, where nothing else is said


@dataclass(frozen=True)
class Throughput:
    """What training reaches here, in round numbers."""

    rate: float  # operations of one thread in a second
    epochs: tuple[float, float]  # a model that sees the data less often is too large; more often helps little
    weights: float  # for each token of the data at most
    batches: tuple[int, int, int]  # an epoch has so many batches, of so many tokens at least and at most


THROUGHPUT = {
    "tokens": Throughput(4e10, (4.0, 40.0), 10.0, (100, 512, 4096)),
    "images": Throughput(1.5e10, (10.0, 60.0), inf, (50, 8, 128)),
    "frames": Throughput(1e10, (20.0, 40.0), inf, (50, 400, 4000)),
    "vectors": Throughput(1e10, (10.0, 60.0), inf, (50, 64, 4096)),
}

# 2,000 tokens a batch learn in half the tokens that 4,000 need; the task has no noise to be smoothed or dropped out
DATES: Mapping[str, Any] = {
    "model.preset": "transformer-nano",
    "train.steps": 2400,
    "train.batch": 2000,
    "train.dropout": 0.0,
    "train.label_smoothing": 0.0,
}


@dataclass(frozen=True)
class PresetSize:
    """A rung of a ladder: weights that every token meets."""

    preset: str
    weights: int


def largest_preset(
    sizes: Sequence[PresetSize], tokens: int, minutes: float, threads: int, throughput: Throughput
) -> str:
    """The largest model that the data can teach and the time lets see it a few times."""
    seen = 6 * tokens * throughput.epochs[0]  # operations for each weight
    most = min(throughput.weights * tokens, minutes * 60 * throughput.rate * threads / seen)
    fitting = [size.preset for size in sizes if size.weights <= most]
    return fitting[-1] if fitting else min(sizes, key=lambda size: size.weights).preset


def steps_for(weights: int, tokens: int, batch: int, threads: int, throughput: Throughput) -> int:
    """Updates that take about the usual time, within a sensible number of epochs."""
    epochs = MINUTES * 60 * throughput.rate * threads / (6 * weights * tokens)
    return max(1, round(min(max(epochs, throughput.epochs[0]), throughput.epochs[1]) * tokens / batch))


def lr_for(dim: int, fine_tuning: bool) -> float:
    """A learning rate by width; trained weights are changed by less."""
    return 5e-5 * (768 / dim) ** 0.5 if fine_tuning else min(3e-3, 0.3 / dim)


def batch_for(tokens: int, throughput: Throughput) -> int:
    """Tokens of a batch: small data needs many updates."""
    many, least, most = throughput.batches
    return min(max(tokens // many, least), most)
