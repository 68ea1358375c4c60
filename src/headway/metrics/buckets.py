"""Scores by the length of the source: where a model begins to fail is hidden in the mean over all lengths."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headway.errors import UserError

EDGES = (5, 10, 15, 20, 30, 50)  # the last length of each bucket; one more holds all that is longer


@dataclass(frozen=True)
class Bucket:
    """The scores of sources of `first` to `last` tokens; without a last, of all longer ones."""

    first: int
    last: int | None
    count: int
    numbers: Mapping[str, float]

    @property
    def label(self) -> str:
        if self.last is None:
            return f"> {self.first - 1}"
        return str(self.last) if self.first == self.last else f"{self.first}–{self.last}"


def by_length(
    lengths: Sequence[int], score: Callable[[Sequence[int]], Mapping[str, float]], *, edges: Sequence[int] = EDGES
) -> tuple[Bucket, ...]:
    """The buckets that have rows, shortest first; `score` is given the numbers of a bucket's rows."""
    if not lengths or min(lengths) < 0:
        raise UserError(f"{len(lengths)} lengths of sources", allowed="one or more, each 0 or more")
    if not edges or list(edges) != sorted(set(edges)):
        raise UserError(
            f"{list(edges)} are no edges of buckets", allowed="one number or more, each above the one before"
        )
    rows: list[list[int]] = [[] for _ in range(len(edges) + 1)]
    for row, length in enumerate(lengths):
        rows[bisect_left(edges, length)].append(row)
    firsts = [min(1, *lengths), *(edge + 1 for edge in edges)]
    held = zip(firsts, [*edges, None], rows, strict=True)
    return tuple(Bucket(first, last, len(inside), score(inside)) for first, last, inside in held if inside)


def quantile_edges(lengths: Sequence[int], buckets: int = 5) -> tuple[int, ...]:
    """Edges that share out the rows about equally; fewer where many are equally long."""
    if not lengths or buckets < 2:
        raise UserError(f"{len(lengths)} rows in {buckets} buckets", allowed="one row or more, in 2 buckets or more")
    ordered = sorted(lengths)
    return tuple(sorted({ordered[len(ordered) * at // buckets] for at in range(1, buckets)}))
