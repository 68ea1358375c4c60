"""Choices that nobody made: a model by the size of the data and the time, and how to train it.

They follow from the recipe and the data alone, never from the clock, so that the same command makes the same run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MINUTES = 10.0  # of training, where nothing else is said
RATE = 4e10  # operations of one thread in a second: what training reaches here, in round numbers
WEIGHTS = 10  # for each token of the data at most
EPOCHS = (4.0, 40.0)  # a model that sees the data less often is too large; more often helps little

# 2,000 tokens a batch learn in half the tokens that 4,000 need; the task has no noise to be smoothed or dropped out
DATES: Mapping[str, Any] = {
    "model.preset": "transformer-nano",
    "train.steps": 2400,
    "train.batch": 2000,
    "train.dropout": 0.0,
    "train.smoothing": 0.0,
}


@dataclass(frozen=True)
class Size:
    """A rung of a ladder: weights that every token meets."""

    preset: str
    weights: int


def rung(sizes: Sequence[Size], tokens: int, minutes: float, threads: int) -> str:
    """The largest model that the data can teach and the time lets see it a few times."""
    seen = 6 * tokens * EPOCHS[0]  # operations for each weight
    most = min(WEIGHTS * tokens, minutes * 60 * RATE * threads / seen)
    fitting = [size.preset for size in sizes if size.weights <= most]
    return fitting[-1] if fitting else sizes[0].preset


def steps_for(weights: int, tokens: int, batch: int, threads: int, minutes: float = MINUTES) -> int:
    """Updates that take about the time that is given, within a sensible number of epochs."""
    epochs = minutes * 60 * RATE * threads / (6 * weights * tokens)
    return max(1, round(min(max(epochs, EPOCHS[0]), EPOCHS[1]) * tokens / batch))


def rate_for(dim: int, tuned: bool) -> float:
    """A learning rate by width; models that have learned already are moved gently."""
    return 5e-5 * (768 / dim) ** 0.5 if tuned else min(3e-3, 0.3 / dim)


def batch_for(tokens: int) -> int:
    """Tokens of a batch: small data needs many updates."""
    return min(max(tokens // 100, 512), 4096)
