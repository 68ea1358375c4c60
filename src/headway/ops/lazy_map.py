"""Reading attention weights (rows, top keys, entropy, received mass) block by block.

A matrix of weights may be far larger than memory.  Whoever can yield it in bands of rows can be asked for any rows,
the strongest keys of each query, its entropy, or the mass that each key receives.

Axes:  B batch   H heads   T queries   S keys   K keys that a band sees
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from headway.errors import UserError

CELLS = 2**23  # weights that a band may hold: 32 MiB of float32


class Band(NamedTuple):
    """Rows first … last − 1 of a map, at the keys that any of them may see; all others weigh nothing."""

    first: int
    last: int
    keys: Tensor  # K      indices of these keys among the S
    weights: Tensor  # B H (last − first) K


class TopKeys(NamedTuple):
    weights: Tensor  # B H T k, falling
    keys: Tensor  # B H T k


class Readable(ABC):
    """Attention weights that can be asked for, whole or in part."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int, int, int]:
        """B H T S"""

    @property
    def depth(self) -> int:
        """How many numbers are held for each weight while it is computed."""
        return 1

    @abstractmethod
    def band(self, first: int, last: int) -> Band:
        """The weights of queries first … last − 1."""

    def rows(self, first: int, last: int) -> Tensor:
        """The weights of queries first … last − 1 over all keys, B H (last − first) S."""
        queries = self.shape[2]
        if not 0 <= first <= last <= queries:
            raise UserError(f"rows({first}, {last}) of a map with {queries} queries", allowed=f"0 to {queries}")
        return self.spread(self.band(first, last))

    def spread(self, band: Band) -> Tensor:
        """A band's weights over all keys, B H (last − first) S."""
        keys = self.shape[3]
        if len(band.keys) == keys:
            return band.weights
        return band.weights.new_zeros(*band.weights.shape[:3], keys).index_copy(3, band.keys, band.weights)

    def full(self) -> Tensor:
        """All weights, B H T S."""
        return self.rows(0, self.shape[2])

    def bands(self) -> Iterator[Band]:
        """All rows, in bands that stay small however long the input is, the last rows first.

        Under a causal pattern these see the most keys, so the memory of one band serves the next; upward, each would
        be a little larger than any hole before it (1.8 GiB against 0.3 at 16k tokens).
        """
        batch, heads, queries, keys = self.shape
        size = max(1, CELLS // max(1, batch * heads * keys * self.depth))
        for last in range(queries, 0, -size):
            yield self.band(max(last - size, 0), last)

    @torch.no_grad()
    def top(self, k: int) -> TopKeys:
        """The k strongest keys of each query and their weights; k is cut to the number of keys."""
        k = min(k, self.shape[3])
        found = [self.spread(band).topk(k) for band in self.bands()][::-1]
        return TopKeys(torch.cat([top.values for top in found], 2), torch.cat([top.indices for top in found], 2))

    @torch.no_grad()
    def entropy(self) -> Tensor:
        """−Σ w log w over the keys of each query, B H T, in nats."""
        return torch.cat([torch.special.entr(band.weights).sum(-1) for band in self.bands()][::-1], 2)

    @torch.no_grad()
    def received(self, queries: Tensor | None = None) -> Tensor:
        """The mass that each key receives from all queries, B H S, or from those that are True in `queries` (B T)."""
        batch, heads, _, keys = self.shape
        total = torch.zeros(batch, heads, keys)
        for band in self.bands():
            weights = band.weights
            if queries is not None:
                weights = weights * queries[:, None, band.first : band.last, None]
            total = total.to(weights).index_add(2, band.keys, weights.sum(2))
        return total


@dataclass(frozen=True, eq=False)
class Weights(Readable):
    """Weights that are already there: what an edited site used."""

    values: Tensor  # B H T S

    @property
    def shape(self) -> tuple[int, int, int, int]:
        batch, heads, queries, keys = self.values.shape
        return batch, heads, queries, keys

    def band(self, first: int, last: int) -> Band:
        keys = torch.arange(self.shape[3], device=self.values.device)
        return Band(first, last, keys, self.values[:, :, first:last])


@dataclass(frozen=True, eq=False)
class JoinedMap(Readable):
    """The maps of several calls, one after the other: the steps of decoding as one map, over the keys of the last."""

    parts: Sequence[Readable]

    @property
    def shape(self) -> tuple[int, int, int, int]:
        batch, heads, _, _ = self.parts[0].shape
        return batch, heads, sum(part.shape[2] for part in self.parts), max(part.shape[3] for part in self.parts)

    def band(self, first: int, last: int) -> Band:
        batch, heads, _, keys = self.shape
        pieces, start = [], 0
        for part in self.parts:
            inside = max(first - start, 0), min(last - start, part.shape[2])
            start += part.shape[2]
            if inside[0] < inside[1]:
                rows = part.rows(*inside)
                pieces.append(torch.nn.functional.pad(rows, (0, keys - rows.shape[3])))
        weights = torch.cat(pieces, 2) if pieces else torch.zeros(batch, heads, 0, keys)
        return Band(first, last, torch.arange(keys, device=weights.device), weights)
