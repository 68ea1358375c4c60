"""Where tokens stand.  Everything about order is a function of positions, so that a full, a chunked, a cached and a
compiled call are one text.

Axes:  B batch   T tokens
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Positions:
    """Positions as data, `at` (B|1 T), and `start` where they are known to run start, start + 1, … without a look.

    A known run is what lets a kernel take a flag, or a block of keys, in place of a dense mask.
    """

    at: Tensor
    start: int | None = None

    @staticmethod
    def run(start: int, length: int, device: torch.device | None = None) -> Positions:
        return Positions(torch.arange(start, start + length, device=device)[None], start)

    def __len__(self) -> int:
        return self.at.shape[1]

    def cut(self, first: int, last: int) -> Positions:
        """The positions of tokens first … last − 1."""
        return Positions(self.at[:, first:last], None if self.start is None else self.start + first)

    def following(self, length: int) -> Positions:
        """The `length` positions right after these."""
        if self.start is not None:
            return Positions.run(self.start + len(self), length, self.at.device)
        return Positions(self.at[:, -1:] + 1 + torch.arange(length, device=self.at.device))

    def then(self, more: Positions) -> Positions:
        """These positions followed by `more`."""
        if len(self) == 0:
            return more
        if self.start is not None and more.start == self.start + len(self):
            return Positions.run(self.start, len(self) + len(more), self.at.device)
        batch = max(self.at.shape[0], more.at.shape[0])
        return Positions(torch.cat([self.at.expand(batch, -1), more.at.expand(batch, -1)], 1))
