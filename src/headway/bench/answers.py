"""Whether contenders compute the same: a measure of agreement for each kind of answer.

An answer is a list of lists of numbers: tokens of each row, vectors, or the losses of steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

Answer = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Comparison:
    """How far answers agree with those of headway in fp32: `measure` is 1 where they are equal."""

    name: str
    measure: Callable[[Answer, Answer], float]
    least: float  # of another contender in fp32, below which it does not compute the same


def equal_tokens(a: Answer, b: Answer) -> float:
    """The share of positions with the same token; a row that is longer than the other has none there."""
    pairs = [pair for rows in zip(a, b, strict=True) for pair in zip_longest(*rows)]
    return sum(x == y for x, y in pairs) / max(1, len(pairs))


def least_cosine(a: Answer, b: Answer) -> float:
    """The cosine of the two vectors that differ most."""
    return min(cosine(x, y) for x, y in zip(a, b, strict=True))


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    product = math.fsum(x * y for x, y in zip(a, b, strict=True))
    lengths = math.sqrt(math.fsum(x * x for x in a) * math.fsum(y * y for y in b))
    return product / lengths if lengths else 0.0


def equal_losses(a: Answer, b: Answer) -> float:
    """1 less the largest relative difference between two losses."""
    return 1 - max(abs(x - y) / abs(x) for rows in zip(a, b, strict=True) for x, y in zip(*rows, strict=True))


TOKENS = Comparison("equal tokens", equal_tokens, 0.99)
VECTORS = Comparison("least cosine", least_cosine, 0.9999)
LOSSES = Comparison("1 − largest relative difference of losses", equal_losses, 0.999)
