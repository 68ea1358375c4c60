"""Positions of tokens.  Everything about order is a function of positions, so that a full, a chunked, a cached and a
compiled call are one text.

Axes:  B batch   T tokens
"""

from __future__ import annotations

import torch
from torch import Tensor


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
