"""Statistics of each head of an attention map, accumulated band by band: the map is never held whole.

    entropy     of the weights of a query, in nats: 0 is one key, log S is uniform
    distance    mean distance of query and key, Σ w · |q − k|: in tokens, in frames, or in cells of a grid
    special     the weight on special tokens: [CLS], </s>
    previous    the weight on the previous token
    duplicate   the weight on earlier occurrences of the same token
    induction   the weight on tokens that follow an earlier occurrence of the same token: “a b … a” attends to b

Each is a mean over the queries to which it applies: those with a previous token, or with an earlier occurrence.  The
last three are Elhage et al.'s (2021, "A Mathematical Framework for Transformer Circuits") and Olsson et al.'s (2022,
arXiv:2209.11895) scores.

Axes:  B batch   H heads   T queries   S keys   R queries of a band   K keys of a band   P coordinates
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headway.ops.attention_map import Band, Readable, Weights

STATISTICS = ("entropy", "distance", "special", "previous", "duplicate", "induction")


@dataclass(frozen=True, eq=False)
class TokenPositions:
    """Coordinates of queries (T P) and keys (S P), for distances; NaN for tokens without a position."""

    queries: Tensor
    keys: Tensor

    @staticmethod
    def in_order(count: int) -> TokenPositions:
        """Tokens of one sequence that attends to itself."""
        places = torch.arange(count, dtype=torch.float32)[:, None]
        return TokenPositions(places, places)

    @staticmethod
    def on_grids(queries: CellGrid, keys: CellGrid) -> TokenPositions:
        """Cells of two grids over the same image, measured in cells of the finer one."""
        sides = tuple(max(pair) for pair in zip(queries.size, keys.size, strict=True))
        return TokenPositions(queries.centres(sides), keys.centres(sides))

    def distances(self, band: Band) -> Tensor:
        """The distance of each query and key of a band, R K; NaN where one has no position."""
        q, k = self.queries[band.first : band.last], self.keys[band.keys.cpu()]
        return (q[:, None] - k[None]).norm(dim=-1)


@dataclass(frozen=True)
class CellGrid:
    """Cells in rows and columns, after `first` tokens without a position."""

    size: tuple[int, int]
    first: int = 0

    def centres(self, sides: tuple[int, ...]) -> Tensor:
        """The centre of each cell, (first + Y·X) 2, where the sides of the image are `sides`."""
        y, x = (
            (torch.arange(n, dtype=torch.float32) + 0.5) * (side / n) for n, side in zip(self.size, sides, strict=True)
        )
        cells = torch.cartesian_prod(y, x)
        return torch.cat([torch.full((self.first, 2), torch.nan), cells])


@dataclass(frozen=True, eq=False)
class MapFacts:
    """What is known of a map's queries and keys; None where a statistic does not apply."""

    special: tuple[int, ...] = ()  # indices of keys
    positions: TokenPositions | None = None
    tokens: Tensor | None = None  # T: equal numbers for equal tokens; keys are the queries, in order


@dataclass(frozen=True, eq=False)
class HeadStatistics:
    """A number for each head, H, in float64; NaN where no query qualifies, None where it does not apply."""

    entropy: Tensor
    distance: Tensor | None
    special: Tensor | None
    previous: Tensor | None
    duplicate: Tensor | None
    induction: Tensor | None


@torch.no_grad()
def statistics(amap: Readable, facts: MapFacts) -> HeadStatistics:
    """All statistics, in one pass over the bands of a map."""
    batch, heads, queries, keys = amap.shape
    entropy = torch.zeros(heads, dtype=torch.float64)
    sums = dict[str, Tensor]()
    for band in amap.bands():
        entropy += Weights(band.weights).entropy().sum((0, 2), dtype=torch.float64).cpu()
        for name, factor in factors(band, facts, keys).items():
            # a product with a vector, so that nothing of the band's size is made for each head
            found = (band.weights.flatten(2) @ factor.to(band.weights).flatten()).sum(0).double().cpu()
            sums[name] = sums.get(name, 0.0) + found
    means = {name: sums[name] / (batch * count) for name, count in query_counts(facts, queries).items()}
    if facts.positions is not None:
        means["distance"] = sums["distance"] / sums["placed"]
    return HeadStatistics(entropy / (batch * queries), *(means.get(name) for name in STATISTICS[1:]))


def factors(band: Band, facts: MapFacts, keys: int) -> dict[str, Tensor]:
    """The factor of each weight of a band in each sum, R K."""
    found = dict[str, Tensor]()
    if facts.special:
        special = torch.zeros(keys)
        special[list(facts.special)] = 1.0
        found["special"] = special[band.keys.cpu()].expand(band.last - band.first, -1)
    if facts.positions is not None:
        distances = facts.positions.distances(band)
        found |= {"distance": distances.nan_to_num(0.0), "placed": ~distances.isnan()}
    return found if facts.tokens is None else found | token_relations(band, facts.tokens)


def token_relations(band: Band, tokens: Tensor) -> dict[str, Tensor]:
    """Which keys are the previous token, an earlier occurrence, or the token after one: R K each."""
    at, keys = torch.arange(band.first, band.last)[:, None], band.keys.cpu()[None]
    same, before, earlier = tokens[at], tokens.roll(1), keys < at
    return {
        "previous": keys == at - 1,
        "duplicate": earlier & (tokens[keys] == same),
        "induction": earlier & (keys > 0) & (before[keys] == same),  # the first key follows nothing
    }


def query_counts(facts: MapFacts, queries: int) -> dict[str, int]:
    """The number of queries of each mean: all, or those that have such a token, even a masked one."""
    found = {"special": queries} if facts.special else {}
    if facts.tokens is None:
        return found
    at = torch.arange(queries)
    _, kind = facts.tokens.unique(return_inverse=True)
    first = torch.full_like(at, queries).scatter_reduce(0, kind, at, "amin")[kind]  # where each token occurs first
    counts = {"previous": queries - 1, "duplicate": int((first < at).sum()), "induction": int((first + 1 < at).sum())}
    return found | counts
