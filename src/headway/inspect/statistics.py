"""What each head of an attention map does, in a few numbers, gathered band by band so that no map is ever whole.

    entropy     how widely a query looks, in nats: 0 is one key, log S is all keys alike
    distance    how far away it looks, Σ w · |q − k|: in tokens, in frames, or in cells of a grid
    special     the weight on tokens that stand for no part of the input: [CLS], </s>
    previous    the weight on the token before
    duplicate   the weight on earlier tokens that are the same
    induction   the weight on earlier tokens that follow one that is the same: “a b … a” looks at b

Each is a mean over the queries that it can be asked of: those that have a token before them, or an earlier one that is
the same.  The last three are Elhage et al.'s (2021, "A Mathematical Framework for Transformer Circuits") and Olsson et
al.'s (2022, arXiv:2209.11895) scores.

Axes:  B batch   H heads   T queries   S keys   R queries of a band   K keys of a band   P numbers that say a place
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headway.ops.reading import Band, Readable, Weights

NUMBERS = ("entropy", "distance", "special", "previous", "duplicate", "induction")


@dataclass(frozen=True, eq=False)
class Placed:
    """Where queries (T P) and keys (S P) stand, to measure how far apart; NaN for what has no place."""

    queries: Tensor
    keys: Tensor

    @staticmethod
    def in_order(count: int) -> Placed:
        """Tokens one after the other, which look at themselves."""
        places = torch.arange(count, dtype=torch.float32)[:, None]
        return Placed(places, places)

    @staticmethod
    def on_grids(queries: Grid, keys: Grid) -> Placed:
        """Cells of two grids over the same picture, measured in cells of the finer one."""
        sides = tuple(max(pair) for pair in zip(queries.size, keys.size, strict=True))
        return Placed(queries.places(sides), keys.places(sides))

    def apart(self, band: Band) -> Tensor:
        """The distance of each query and key of a band, R K; NaN where one has no place."""
        q, k = self.queries[band.first : band.last], self.keys[band.keys.cpu()]
        return (q[:, None] - k[None]).norm(dim=-1)


@dataclass(frozen=True)
class Grid:
    """Cells in rows and columns, behind `first` tokens that have no place."""

    size: tuple[int, int]
    first: int = 0

    def places(self, sides: tuple[int, ...]) -> Tensor:
        """The middle of each cell, (first + Y·X) 2, where the whole picture is as long as `sides`."""
        y, x = (
            (torch.arange(n, dtype=torch.float32) + 0.5) * (side / n) for n, side in zip(self.size, sides, strict=True)
        )
        cells = torch.cartesian_prod(y, x)
        return torch.cat([torch.full((self.first, 2), torch.nan), cells])


@dataclass(frozen=True, eq=False)
class Known:
    """What is known of a map's queries and keys; None where it makes no sense to ask."""

    special: tuple[int, ...] = ()  # indices of keys
    places: Placed | None = None
    tokens: Tensor | None = None  # T: numbers that are equal where tokens are; keys are the queries, in order


@dataclass(frozen=True, eq=False)
class Statistics:
    """A number for each head, H, in float64; NaN where no query could be asked, None where it makes no sense to ask."""

    entropy: Tensor
    distance: Tensor | None
    special: Tensor | None
    previous: Tensor | None
    duplicate: Tensor | None
    induction: Tensor | None


@torch.no_grad()
def statistics(amap: Readable, known: Known) -> Statistics:
    """All of these, in one pass over the bands of a map."""
    batch, heads, queries, keys = amap.shape
    entropy = torch.zeros(heads, dtype=torch.float64)
    sums = dict[str, Tensor]()
    for band in amap.bands():
        entropy += Weights(band.weights).entropy().sum((0, 2), dtype=torch.float64).cpu()
        for name, factor in factors(band, known, keys).items():
            # a product with a vector, so that nothing of the band's size is made for each head
            found = (band.weights.flatten(2) @ factor.to(band.weights).flatten()).sum(0).double().cpu()
            sums[name] = sums.get(name, 0.0) + found
    means = {name: sums[name] / (batch * count) for name, count in asked(known, queries).items()}
    if known.places is not None:
        means["distance"] = sums["distance"] / sums["placed"]
    return Statistics(entropy / (batch * queries), *(means.get(name) for name in NUMBERS[1:]))


def factors(band: Band, known: Known, keys: int) -> dict[str, Tensor]:
    """What each weight of a band counts for in each sum, R K."""
    found = dict[str, Tensor]()
    if known.special:
        special = torch.zeros(keys)
        special[list(known.special)] = 1.0
        found["special"] = special[band.keys.cpu()].expand(band.last - band.first, -1)
    if known.places is not None:
        apart = known.places.apart(band)
        found |= {"distance": apart.nan_to_num(0.0), "placed": ~apart.isnan()}
    return found if known.tokens is None else found | likenesses(band, known.tokens)


def likenesses(band: Band, tokens: Tensor) -> dict[str, Tensor]:
    """Which keys are the token before, an earlier one that is the same, or one that follows such a one: R K each."""
    at, keys = torch.arange(band.first, band.last)[:, None], band.keys.cpu()[None]
    same, before, earlier = tokens[at], tokens.roll(1), keys < at
    return {
        "previous": keys == at - 1,
        "duplicate": earlier & (tokens[keys] == same),
        "induction": earlier & (keys > 0) & (before[keys] == same),  # the first key follows nothing
    }


def asked(known: Known, queries: int) -> dict[str, int]:
    """How many queries each mean is over: all, or those that have such a token, be it out of their reach."""
    found = {"special": queries} if known.special else {}
    if known.tokens is None:
        return found
    at = torch.arange(queries)
    _, kind = known.tokens.unique(return_inverse=True)
    first = torch.full_like(at, queries).scatter_reduce(0, kind, at, "amin")[kind]  # where each stood first
    counts = {"previous": queries - 1, "duplicate": int((first < at).sum()), "induction": int((first + 1 < at).sum())}
    return found | counts
