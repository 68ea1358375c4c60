"""Attention patterns (masks) and positions: what a query may see is a function of where queries and keys stand.

Patterns are frozen values: causal, sliding window, chunked, prefix, global.  Each answers three questions.  `keep` is
the definition, a mask computed from positions given as data.  `reach` and `covers` say the same of whole ranges of
positions without building a mask, so that evaluation can skip keys that nobody sees and masks that hide nothing.
Patterns combine: `Causal() & Chunked(64)`, `Window(32) | Global(1)`.

Everything about order is a function of `Positions`, so that a full, a chunked, a cached and a compiled call are one
text.

Axes:  B batch   T queries or tokens   S keys
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from headway.errors import UserError

END = sys.maxsize
Span = tuple[int, int]  # positions first … last − 1
EVERYWHERE: Span = (-END, END)


class Pattern(ABC):
    """What a query may see, told by positions alone."""

    @abstractmethod
    def keep(self, q_pos: Tensor, k_pos: Tensor) -> Tensor | None:
        """True where the key may be seen, B|1 T S, for positions B|1 T and B|1 S; None where all may."""

    @abstractmethod
    def reach(self, queries: Span) -> list[Span]:
        """Spans outside which no query in `queries` sees anything."""

    @abstractmethod
    def covers(self, queries: Span, keys: Span) -> bool:
        """Whether every one of `queries` surely sees every one of `keys`."""

    def looks_ahead(self) -> bool:
        """Whether some query may see a key that stands after it."""
        return True

    def __and__(self, other: Pattern) -> Pattern:
        return Both(self, other)

    def __or__(self, other: Pattern) -> Pattern:
        return Either(self, other)


@dataclass(frozen=True)
class Full(Pattern):
    """Every query sees every key."""

    def keep(self, q_pos: Tensor, k_pos: Tensor) -> Tensor | None:
        return None

    def reach(self, queries: Span) -> list[Span]:
        return [EVERYWHERE]

    def covers(self, queries: Span, keys: Span) -> bool:
        return True


@dataclass(frozen=True)
class Causal(Pattern):
    """A query sees itself and what stands before it: the last `window` positions, or all where window is None."""

    window: int | None = None

    def __post_init__(self) -> None:
        if self.window is not None:
            at_least_one(self, "window", self.window)

    def keep(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        behind = distance(q_pos, k_pos)
        return behind >= 0 if self.window is None else (behind >= 0) & (behind < self.window)

    def reach(self, queries: Span) -> list[Span]:
        return [(-END if self.window is None else queries[0] - self.window + 1, queries[1])]

    def covers(self, queries: Span, keys: Span) -> bool:
        return keys[1] - 1 <= queries[0] and (self.window is None or queries[1] - 1 - keys[0] < self.window)

    def looks_ahead(self) -> bool:
        return False


@dataclass(frozen=True)
class Window(Pattern):
    """A query sees itself and `radius` positions on each side."""

    radius: int

    def __post_init__(self) -> None:
        at_least_one(self, "radius", self.radius)

    def keep(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        return distance(q_pos, k_pos).abs() <= self.radius

    def reach(self, queries: Span) -> list[Span]:
        return [(queries[0] - self.radius, queries[1] + self.radius)]

    def covers(self, queries: Span, keys: Span) -> bool:
        return queries[1] - 1 - keys[0] <= self.radius and keys[1] - 1 - queries[0] <= self.radius


@dataclass(frozen=True)
class Chunked(Pattern):
    """A query sees its own chunk of `size` positions."""

    size: int

    def __post_init__(self) -> None:
        at_least_one(self, "size", self.size)

    def keep(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        return distance(q_pos // self.size, k_pos // self.size) == 0

    def reach(self, queries: Span) -> list[Span]:
        return [(queries[0] // self.size * self.size, ((queries[1] - 1) // self.size + 1) * self.size)]

    def covers(self, queries: Span, keys: Span) -> bool:
        ends = (queries[0], queries[1] - 1, keys[0], keys[1] - 1)
        return len({end // self.size for end in ends}) == 1


@dataclass(frozen=True)
class Prefix(Pattern):
    """A query sees the first `length` positions, and what stands before it."""

    length: int

    def __post_init__(self) -> None:
        at_least_one(self, "length", self.length)

    def keep(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        return (distance(q_pos, k_pos) >= 0) | (k_pos < self.length)[:, None, :]

    def reach(self, queries: Span) -> list[Span]:
        return [(-END, max(queries[1], self.length))]

    def covers(self, queries: Span, keys: Span) -> bool:
        return keys[1] - 1 <= queries[0] or keys[1] <= self.length


@dataclass(frozen=True)
class Global(Pattern):
    """The first `tokens` positions see all and are seen by all; alone it hides the rest: `Window(32) | Global(1)`."""

    tokens: int

    def __post_init__(self) -> None:
        at_least_one(self, "tokens", self.tokens)

    def keep(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        return (k_pos < self.tokens)[:, None, :] | (q_pos < self.tokens)[:, :, None]

    def reach(self, queries: Span) -> list[Span]:
        return [EVERYWHERE] if queries[0] < self.tokens else [(-END, self.tokens)]

    def covers(self, queries: Span, keys: Span) -> bool:
        return queries[1] <= self.tokens or keys[1] <= self.tokens


@dataclass(frozen=True)
class Both(Pattern):
    """What `a` and `b` both let see."""

    a: Pattern
    b: Pattern

    def keep(self, q_pos: Tensor, k_pos: Tensor) -> Tensor | None:
        return both(self.a.keep(q_pos, k_pos), self.b.keep(q_pos, k_pos))

    def reach(self, queries: Span) -> list[Span]:
        pairs = ((s, t) for s in self.a.reach(queries) for t in self.b.reach(queries))
        return [span for s, t in pairs if (span := (max(s[0], t[0]), min(s[1], t[1])))[0] < span[1]]

    def covers(self, queries: Span, keys: Span) -> bool:
        return self.a.covers(queries, keys) and self.b.covers(queries, keys)

    def looks_ahead(self) -> bool:
        return self.a.looks_ahead() and self.b.looks_ahead()


@dataclass(frozen=True)
class Either(Pattern):
    """What `a` or `b` lets see."""

    a: Pattern
    b: Pattern

    def keep(self, q_pos: Tensor, k_pos: Tensor) -> Tensor | None:
        a, b = self.a.keep(q_pos, k_pos), self.b.keep(q_pos, k_pos)
        return None if a is None or b is None else a | b

    def reach(self, queries: Span) -> list[Span]:
        return merge_spans([*self.a.reach(queries), *self.b.reach(queries)])

    def covers(self, queries: Span, keys: Span) -> bool:
        return self.a.covers(queries, keys) or self.b.covers(queries, keys)

    def looks_ahead(self) -> bool:
        return self.a.looks_ahead() or self.b.looks_ahead()


class Positions:
    """Positions as data, `at` (B|1 T), and `start` where they are known to run start, start + 1, … without a look.

    A known run is what lets a kernel take a flag, or a block of keys, in place of a dense mask.  Its numbers are
    written out only where somebody reads them: a step of decoding asks for positions in every layer, and few look.
    """

    def __init__(
        self, at: Tensor | None, start: int | None = None, length: int = 0, device: torch.device | None = None
    ):
        """A run may come without its numbers, by `length` and `device`: see `run`."""
        assert at is not None or start is not None
        self.known, self.start = at, start
        self.length, self.device = (length, device) if at is None else (at.shape[1], at.device)

    @staticmethod
    def run(start: int, length: int, device: torch.device | None = None) -> Positions:
        return Positions(None, start, length, device)

    @property
    def at(self) -> Tensor:
        if self.known is None:
            start = self.start or 0
            self.known = torch.arange(start, start + self.length, device=self.device)[None]
        return self.known

    @property
    def rows(self) -> int:
        """B, or 1 where all rows stand alike."""
        return 1 if self.known is None else self.known.shape[0]

    def __len__(self) -> int:
        return self.length

    def stands_like(self, other: Positions) -> bool:
        """Whether these are the same positions, as far as that is known without a look."""
        run = self.start is not None and self.rows == other.rows == 1
        return self is other or (run and (self.start, self.length) == (other.start, other.length))

    def cut(self, first: int, last: int) -> Positions:
        """The positions of tokens first … last − 1."""
        if self.start is not None and self.rows == 1:
            first, last, _ = slice(first, last).indices(self.length)
            return Positions.run(self.start + first, max(last - first, 0), self.device)
        return Positions(self.at[:, first:last], None if self.start is None else self.start + first)

    def following(self, length: int) -> Positions:
        """The `length` positions right after these."""
        if self.start is not None:
            return Positions.run(self.start + len(self), length, self.device)
        return Positions(self.at[:, -1:] + 1 + torch.arange(length, device=self.device))

    def then(self, more: Positions) -> Positions:
        """These positions followed by `more`."""
        if len(self) == 0:
            return more
        if self.start is not None and more.start == self.start + len(self):
            return Positions.run(self.start, len(self) + len(more), self.device)
        batch = max(self.rows, more.rows)
        return Positions(torch.cat([self.at.expand(batch, -1), more.at.expand(batch, -1)], 1))


def both(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """The keys that masks `a` and `b` both keep; None keeps all."""
    return a if b is None else b if a is None else a & b


def distance(q_pos: Tensor, k_pos: Tensor) -> Tensor:
    """How far each key stands behind each query, B|1 T S; negative where it stands ahead."""
    return q_pos[:, :, None] - k_pos[:, None, :]


def merge_spans(spans: list[Span]) -> list[Span]:
    """The same positions as spans in order that neither touch nor overlap."""
    out: list[Span] = []
    for first, last in sorted(spans):
        if out and first <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], last))
        else:
            out.append((first, last))
    return out


def at_least_one(pattern: Pattern, name: str, value: int) -> None:
    if value < 1:
        raise UserError(
            f"{type(pattern).__name__}({name}={value}) would let a query see nothing",
            allowed=f"{name} of 1 or more",
            do="to see everything give Full()",
        )
