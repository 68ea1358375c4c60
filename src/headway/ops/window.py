"""Attention among neighbours in a grid, as geometry: cut the grid into tiles, attend within each, lay them back.

`Windows` are Swin's: the tiles are the neighbourhoods, and shifting the cut in every second layer joins them.  `Halo`
gives every cell its own R×R neighbourhood: a tile of queries shares a tile of keys that is R // 2 cells wider all
round, which stores ((tile + R − 1) / tile)² copies of the feature map in place of R².

Slots outside the grid hold zeros and are hidden from every real cell.  They see one another instead, which is
nobody's answer but leaves no row of a mask empty.

Axes:  B batch   Y X rows and columns of the grid   C channels   N tiles   T cells of a tile   S keys of a tile
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.errors import UserError


@dataclass(frozen=True)
class Windows:
    """Windows of rows × cols cells, the grid rolled up and left by the shift before it is cut."""

    rows: int
    cols: int
    shift_rows: int = 0
    shift_cols: int = 0

    def __post_init__(self) -> None:
        if not (0 <= self.shift_rows < self.rows and 0 <= self.shift_cols < self.cols):
            raise UserError(f"{self} cannot cut a grid", allowed="windows of 1 or more, shifts from 0 to window − 1")

    def fit(self, Y: int, X: int) -> Windows:
        """For a grid no larger than the window along an axis: the window shrinks to the grid and does not shift."""
        rows, shift_rows = (Y, 0) if self.rows >= Y else (self.rows, self.shift_rows)
        cols, shift_cols = (X, 0) if self.cols >= X else (self.cols, self.shift_cols)
        return Windows(rows, cols, shift_rows, shift_cols)

    def partition(self, x: Tensor) -> Tensor:
        """B Y X C → (B·N) T C, the windows of a grid along its rows, and the cells of a window along its own."""
        x = roll(pad_to_tiles(x, self.rows, self.cols), -self.shift_rows, -self.shift_cols)
        B, Y, X, C = x.shape
        x = x.reshape(B, Y // self.rows, self.rows, X // self.cols, self.cols, C)
        return x.transpose(2, 3).reshape(-1, self.rows * self.cols, C)

    def merge(self, tokens: Tensor, grid: tuple[int, int]) -> Tensor:
        """(B·N) T C → B Y X C, the inverse of `partition` for a grid of (Y, X)."""
        (Y, X), C = grid, tokens.shape[-1]
        down, along = -(-Y // self.rows), -(-X // self.cols)
        x = tokens.reshape(-1, down, along, self.rows, self.cols, C).transpose(2, 3)
        x = x.reshape(-1, down * self.rows, along * self.cols, C)
        return roll(x, self.shift_rows, self.shift_cols)[:, :Y, :X]

    def keep(self, Y: int, X: int, device: torch.device | None = None) -> Tensor | None:
        """True where a cell may see another of its window, N T T: not across the seam of a shift, and not padding.

        None where there is nothing to hide.  A batch repeats it: `keep.repeat(B, 1, 1)`.
        """
        if not (self.shift_rows or self.shift_cols or Y % self.rows or X % self.cols):
            return None
        # rolling carries the first `shift` rows and columns to the other end, next to cells that they do not touch
        y, x = torch.arange(Y, device=device)[:, None], torch.arange(X, device=device)
        region = 1 + 2 * (y < self.shift_rows) + (x < self.shift_cols)  # Y X, from 1: padding becomes region 0
        region = self.partition(region[None, :, :, None])[..., 0]  # N T
        return region[:, :, None] == region[:, None, :]

    def cells(self, Y: int, X: int, device: torch.device | None = None) -> Tensor:
        """The cell y·X + x of the grid that each slot of each window holds, N T; −1 for padding."""
        numbers = torch.arange(1, Y * X + 1, device=device).reshape(1, Y, X, 1)
        return self.partition(numbers)[..., 0] - 1


@dataclass(frozen=True)
class Halo:
    """Neighbourhoods of size × size cells around each cell, computed for tiles of tile × tile queries at a time.

    With a stride, queries stand at every stride-th cell of every stride-th row, as those of a strided convolution do.
    """

    size: int
    tile: int
    stride: int = 1

    def __post_init__(self) -> None:
        if self.size < 1 or self.size % 2 == 0 or self.tile < 1 or self.stride < 1:
            raise UserError(f"{self} has no middle", allowed="an odd size; tile and stride of 1 or more")

    @property
    def tiles(self) -> Windows:
        return Windows(self.tile, self.tile)

    @property
    def span(self) -> int:
        """How many cells the keys of a tile measure each way."""
        return (self.tile - 1) * self.stride + self.size

    def strided(self, Y: int, X: int) -> tuple[int, int]:
        """The grid that the queries of a grid of (Y, X) are."""
        return -(-Y // self.stride), -(-X // self.stride)

    def queries(self, x: Tensor) -> Tensor:
        """B Y X C → (B·N) T C with T = tile²."""
        return self.tiles.partition(x[:, :: self.stride, :: self.stride])

    def keys(self, x: Tensor) -> Tensor:
        """B Y X C → (B·N) S C with S = span²: the same tiles, each with its border; zeros outside."""
        B, Y, X, C = x.shape
        rows = F.pad(x.reshape(B, Y * X, C), (0, 0, 0, 1))  # a row of zeros for cell −1
        # by rows, not by unfold, whose backward is six times slower (53 against 9 ms, 8×56×56×96, size 7, tile 8)
        cells = self.cells(Y, X, x.device).flatten() % rows.shape[1]
        return rows.index_select(1, cells).reshape(-1, self.span**2, C)

    def merge(self, tokens: Tensor, grid: tuple[int, int]) -> Tensor:
        """(B·N) T C → B Y X C, the inverse of `queries` where these are a grid of (Y, X)."""
        return self.tiles.merge(tokens, grid)

    def keep(self, Y: int, X: int, device: torch.device | None = None) -> Tensor:
        """True where the key lies in the query's neighbourhood and in the grid, N T S."""
        dy, dx = self.deltas(device)
        near = (dy.abs() <= self.size // 2) & (dx.abs() <= self.size // 2)  # T S
        q, k = self.tiles.cells(*self.strided(Y, X), device) >= 0, self.cells(Y, X, device) >= 0  # N T, N S
        return near & (q[:, :, None] == k[:, None, :])

    def offsets(self, device: torch.device | None = None) -> Tensor:
        """Which neighbour each key is to each query, T S: (dy + size // 2)·size + dx + size // 2, key minus query.

        Keys out of the neighbourhood, which `keep` hides, have the number of the nearest one in it.
        """
        dy, dx = ((delta + self.size // 2).clamp(0, self.size - 1) for delta in self.deltas(device))
        return dy * self.size + dx

    def cells(self, Y: int, X: int, device: torch.device | None = None) -> Tensor:
        """The cell y·X + x of the grid that each key of each tile is, N S; −1 outside."""
        border, step = torch.arange(self.span, device=device) - self.size // 2, self.tile * self.stride
        y = (torch.arange(0, Y, step, device=device)[:, None] + border)[:, None, :, None]
        x = (torch.arange(0, X, step, device=device)[:, None] + border)[None, :, None, :]
        inside = (y >= 0) & (y < Y) & (x >= 0) & (x < X)  # tiles down, tiles along, span, span
        return torch.where(inside, y * X + x, -1).reshape(-1, self.span**2)

    def deltas(self, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
        """(dy, dx), each T S: key minus query."""
        q, k = torch.arange(self.tile**2, device=device)[:, None], torch.arange(self.span**2, device=device)
        dy, dx = k // self.span - q // self.tile * self.stride, k % self.span - q % self.tile * self.stride
        return dy - self.size // 2, dx - self.size // 2


def pad_to_tiles(x: Tensor, rows: int, cols: int) -> Tensor:
    """`x` (B Y X C) with zeros below and to the right, up to whole tiles."""
    below, right = -x.shape[1] % rows, -x.shape[2] % cols
    return F.pad(x, (0, 0, 0, right, 0, below)) if below or right else x  # torch copies to pad by nothing


def roll(x: Tensor, down: int, right: int) -> Tensor:
    """`x` (B Y X C) with what leaves one side coming in at the other."""
    return x.roll((down, right), (1, 2)) if down or right else x  # torch copies to roll by nothing
