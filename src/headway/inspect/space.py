"""Vectors as places: what is near, what lies between two groups, and what changes on the way from one to the other.

Axes:  N rows   M queries   C width   A B rows of two groups   k nearest
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.errors import UserError


class Near(NamedTuple):
    cosines: Tensor  # M k, falling
    rows: Tensor  # M k


def nearest_rows(queries: Tensor, table: Tensor, k: int) -> Near:
    """The k rows of `table` (N C) at the smallest angle to each query (M C), and the cosines of these angles."""
    cosines = F.normalize(queries, dim=-1) @ F.normalize(table, dim=-1).mT  # M N
    found = cosines.topk(min(k, len(table)), dim=-1)
    return Near(found.values, found.indices)


@dataclass(frozen=True, eq=False)
class Direction:
    """The way from the mean of one group of vectors to that of another, and how well it tells them apart.

    `apart` is d′: the difference of the two means along the way, in standard deviations within the groups.  `accuracy`
    is the share of vectors that are nearer to the mean of their own group, along a way that was found without them.
    """

    difference: Tensor  # C: mean of the first group − mean of the second
    apart: float
    accuracy: float

    def moved(self, x: Tensor, by: float) -> Tensor:
        """`x` (… C) further towards the first group: by 1 is the whole way between the means."""
        return x + by * self.difference.to(x)


def direction(first: Tensor, second: Tensor) -> Direction:
    """The direction from the second group (B C) to the first (A C)."""
    if min(len(first), len(second)) < 2:
        said = f"groups of {len(first)} and {len(second)} tell no direction"
        raise UserError(said, allowed="2 or more in each group")
    first, second = first.double(), second.double()
    difference = first.mean(0) - second.mean(0)
    return Direction(difference, d_prime(first @ difference, second @ difference), left_out(first, second))


def d_prime(first: Tensor, second: Tensor) -> float:
    """The difference of two means in standard deviations within the groups; A and B numbers."""
    within = (first.var() + second.var()) / 2
    return float((first.mean() - second.mean()) / within.sqrt())


def left_out(first: Tensor, second: Tensor) -> float:
    """The share of vectors on their own side of the middle between the means, each judged by means without it."""
    right = [own_side(first, second), own_side(second, first)]
    return float(torch.cat(right).double().mean())


def own_side(own: Tensor, other: Tensor) -> Tensor:
    """Whether each of `own` (A C) is nearer to the mean of its fellows, along their difference, than to the other's."""
    fellows = (own.sum(0) - own) / (len(own) - 1)  # A C: the mean without each
    away, middle = fellows - other.mean(0), (fellows + other.mean(0)) / 2
    return ((own - middle) * away).sum(-1) > 0
