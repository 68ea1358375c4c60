"""The lazy attention map: a matrix of weights that is read in bands and multiplied without being materialised.

Attention is the product of this matrix with the values.  `map.times(v)` evaluates it by the cheapest way that equals
the definition: the fused kernel with a flag or with no mask at all; by blocks of queries over the keys they reach,
where the pattern is local or a mask would be large; the explicit matrix only where somebody edits it.

The matrix may be far larger than memory.  Whatever yields it in bands of rows (`Readable`) can be asked for any rows,
the strongest keys of each query, its entropy, or the mass that each key receives.

Axes:  B batch   H heads   G kv-heads   T queries   S keys   D head width   E value width   K keys that a band sees
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from headway.errors import UserError
from headway.ops.attend import DOT, DotScore, Edit, Score, SoftCapped, attend, attention_weights, causal_keep
from headway.ops.pattern import Causal, Full, Pattern, Positions, Span, both, merge_spans

CELLS = 2**23  # weights that a band may hold: 32 MiB of float32
BLOCK = 256  # queries at a time; measured best for windows of 1k on two cores
LARGE = 2**24  # cells of a mask or bias that are not built in one piece: 64 MiB of float32


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

    def seen(self, band: Band) -> Tensor | None:
        """Which keys of a band each of its queries may see, B|1 (last − first) K; None where that is all of them."""
        return None

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
        total = torch.zeros(batch, heads, keys, device="cpu")  # it moves to the first band
        for band in self.bands():
            weights = band.weights
            if queries is not None:
                weights = weights * queries[:, None, band.first : band.last, None]
            total = total.to(weights).index_add(2, band.keys, weights.sum(2))
        return total


class Band(NamedTuple):
    """Rows first … last − 1 of a map, at the keys that any of them may see; all others weigh nothing."""

    first: int
    last: int
    keys: Tensor  # K      indices of these keys among the S
    weights: Tensor  # B H (last − first) K


class TopKeys(NamedTuple):
    weights: Tensor  # B H T k, falling
    keys: Tensor  # B H T k


class Bias(Protocol):
    """A float to add to each logit, B|1 H|1 T S, from queries (B H T D), keys (B G S D) and where they stand."""

    def __call__(self, q: Tensor, k: Tensor, q_pos: Positions, k_pos: Positions) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class AttentionMap(Readable):
    """softmax(score(q, k) + bias) over the keys that `pattern` and `keep` let each query see, B H T S, lazily."""

    q: Tensor  # B H T D
    k: Tensor  # B G S D
    q_pos: Positions
    k_pos: Positions
    pattern: Pattern = Full()
    keep: Tensor | None = None  # B T S, an axis may be 1
    bias: Bias | None = None
    score: Score = DOT
    sink: Tensor | None = None  # H

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return self.q.shape[0], self.q.shape[1], self.q.shape[2], self.k.shape[2]

    @property
    def depth(self) -> int:
        # the additive score holds a vector for each pair
        return 1 if isinstance(self.score, DotScore | SoftCapped) else self.q.shape[3]

    def times(self, v: Tensor, *, dropout: float = 0.0, edit: Edit | None = None) -> Tensor:
        """This matrix times `v` (B G S E), B H T E; `edit` sees and may replace the whole matrix first."""
        if edit is not None or not self.in_blocks():
            return self.times_whole(v, dropout, edit)
        # what all blocks together would keep for the gradient; above the limit each is computed again instead
        again = torch.is_grad_enabled() and self.mask_cells() * self.share_reached() > LARGE
        return torch.cat([self.part(*block).times(v, dropout, again) for block in self.blocks()], 2)

    def band(self, first: int, last: int) -> Band:
        part = self.part(first, last)
        keep, causal = part.map.sight()
        bias = part.map.logit_bias()
        q, k = part.map.q, part.map.k
        weights = attention_weights(q, k, keep=keep, bias=bias, causal=causal, score=self.score, sink=self.sink)
        return Band(first, last, part.indices(), weights)

    def seen(self, band: Band) -> Tensor | None:
        part = self.part(band.first, band.last).map
        keep, causal = part.sight()
        keep = both(keep, causal_keep(part.q, part.k)) if causal else keep
        return None if keep is None else keep.expand(-1, band.last - band.first, len(band.keys))

    def times_whole(self, v: Tensor, dropout: float, edit: Edit | None = None) -> Tensor:
        keep, causal = self.sight()
        return attend(
            self.q,
            self.k,
            v,
            keep=keep,
            bias=self.logit_bias(),
            causal=causal,
            score=self.score,
            sink=self.sink,
            dropout=dropout,
            edit=edit,
        )

    def logit_bias(self) -> Tensor | None:
        return None if self.bias is None else self.bias(self.q, self.k, self.q_pos, self.k_pos)

    def sight(self) -> tuple[Tensor | None, bool]:
        """(keep, causal) for `attend`: no mask where the pattern hides nothing, the flag where that says the same."""
        if torch.compiler.is_exporting():  # what is true of this length need not be of others
            return both(self.keep, self.pattern.keep(self.q_pos.at, self.k_pos.at)), False
        if self.sees_all():
            return self.keep, False
        if self.is_lower_triangle():
            return self.keep, True
        return both(self.keep, self.pattern.keep(self.q_pos.at, self.k_pos.at)), False

    def sees_all(self) -> bool:
        if isinstance(self.pattern, Full):
            return True
        spans = self.spans()
        return spans is not None and self.pattern.covers(*spans)

    def is_lower_triangle(self) -> bool:
        """Whether query i sees just the keys 0 … i."""
        if not isinstance(self.pattern, Causal) or self.q_pos.start is None:
            return False
        window = self.pattern.window
        return self.q_pos.start == self.k_pos.start and (window is None or window >= self.shape[2])

    def spans(self) -> tuple[Span, Span] | None:
        """The positions of the queries and of the keys, where both are known to run in order."""
        q, k = self.q_pos, self.k_pos
        if q.start is None or k.start is None:
            return None
        return (q.start, q.start + len(q)), (k.start, k.start + len(k))

    def in_blocks(self) -> bool:
        """Whether blocks of queries are worth it: the mask or bias is large, or much of it is never seen."""
        if torch.compiler.is_exporting():  # the graph is for every length
            return False
        if self.shape[2] <= BLOCK or not (cells := self.mask_cells()):
            return False
        return cells > LARGE or self.share_reached() < 0.7

    def mask_cells(self) -> int:
        """How many cells of mask, bias or pairs evaluation in one piece would hold."""
        heads, queries, keys = self.shape[1:]
        rows = 1 if self.keep is None else self.keep.shape[0]
        if not isinstance(self.score, DotScore) or self.sink is not None:
            return self.shape[0] * heads * queries * keys * self.depth
        if self.bias is not None:
            return rows * heads * queries * keys
        if self.sees_all():
            return 0 if self.keep is None else self.keep.numel()
        return 0 if self.keep is None and self.is_lower_triangle() else rows * queries * keys

    def blocks(self) -> list[Span]:
        queries = self.shape[2]
        return [(first, min(first + BLOCK, queries)) for first in range(0, queries, BLOCK)]

    def share_reached(self) -> float:
        """The part of the matrix that evaluation by blocks computes."""
        reached = sum((last - first) * sum(b - a for a, b in self.reach(first, last)) for first, last in self.blocks())
        return reached / (self.shape[2] * self.shape[3])

    def reach(self, first: int, last: int) -> list[Span]:
        """Index spans of the keys that queries first … last − 1 may see."""
        spans, keys = self.spans(), self.shape[3]
        if spans is None or first == last:
            return [(0, keys)]
        origin = spans[1][0]
        reached = self.pattern.reach((spans[0][0] + first, spans[0][0] + last))
        inside = ((max(a - origin, 0), min(b - origin, keys)) for a, b in reached)
        return merge_spans([(a, b) for a, b in inside if a < b])

    def part(self, first: int, last: int) -> MapPart:
        """Queries first … last − 1 of this map with the keys in their reach."""
        spans = self.reach(first, last)
        k_pos = self.k_pos.cut(*spans[0]) if len(spans) == 1 else Positions(select_spans(self.k_pos.at, 1, spans))
        keep = self.keep
        if keep is not None:
            keep = select_spans(keep if keep.shape[1] == 1 else keep[:, first:last], 2, spans)
        q, k = self.q[:, :, first:last], select_spans(self.k, 2, spans)
        return MapPart(replace(self, q=q, k=k, q_pos=self.q_pos.cut(first, last), k_pos=k_pos, keep=keep), spans)


@dataclass(frozen=True)
class MapPart:
    """Some rows of a map, at the keys that they reach."""

    map: AttentionMap
    spans: list[Span]

    def times(self, v: Tensor, dropout: float, again: bool) -> Tensor:
        """This part times the values in its reach, computed `again` for the gradient or kept for it."""
        v = select_spans(v, 2, self.spans)
        if not again:
            return self.map.times_whole(v, dropout)
        return checkpoint(self.map.times_whole, v, dropout, use_reentrant=False, preserve_rng_state=dropout > 0)

    def indices(self) -> Tensor:
        device = self.map.k.device
        return torch.cat([torch.arange(a, b, device=device) for a, b in self.spans] or [torch.arange(0, device=device)])


def select_spans(x: Tensor, axis: int, spans: list[Span]) -> Tensor:
    """The entries of `x` in `spans` along `axis`; an axis of 1 stands for all."""
    if x.shape[axis] == 1 and spans:
        return x
    slices = [x.narrow(axis, first, last - first) for first, last in spans]
    return slices[0] if len(slices) == 1 else torch.cat(slices, axis) if slices else x.narrow(axis, 0, 0)


@dataclass(frozen=True, eq=False)
class Weights(Readable):
    """Weights that are already there: what an edited site used."""

    values: Tensor  # B H T S
    keep: Tensor | None = None  # B|1 T S

    @property
    def shape(self) -> tuple[int, int, int, int]:
        batch, heads, queries, keys = self.values.shape
        return batch, heads, queries, keys

    def band(self, first: int, last: int) -> Band:
        keys = torch.arange(self.shape[3], device=self.values.device)
        return Band(first, last, keys, self.values[:, :, first:last])

    def seen(self, band: Band) -> Tensor | None:
        return None if self.keep is None else self.keep[:, band.first : band.last, band.keys]


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
        weights = torch.cat(pieces, 2) if pieces else torch.zeros(batch, heads, 0, keys, device="cpu")
        return Band(first, last, torch.arange(keys, device=weights.device), weights)
