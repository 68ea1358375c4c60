"""Maps as bytes: weights in 131 steps, pooled by their largest, cut into tiles, a strip of rows at a time.

    weight = (q / LEVELS) ** POWER          which misses by at most POWER / (2 · LEVELS) = 0.0048

Small weights have finer steps than large ones: in long inputs most are small, and still differ.  Where many weights
share one cell the largest is shown, so a thin diagonal survives.  Steps keep the order of weights: the byte of the
largest is the largest of the bytes, so pooling comes first and leaves less to be counted in steps.

Axes:  H heads   T queries   S keys   h w rows and columns of cells
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import ceil

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.ops.reading import CELLS, Band, Readable

LEVELS, POWER = 130, 1.25
TILE = 256  # cells of a tile's side
STEP = 4  # one level holds a cell for so many by so many of the next finer one
THUMB = 24  # cells of a thumbnail's side, at most
STRIPS = 8  # that are kept, as neighbouring tiles are asked for together
HELD = 2**24  # bytes of a level that is kept whole, for a coarser one to be made of it


def quantised(weights: Tensor) -> Tensor:
    """Weights between 0 and 1 as steps 0 … LEVELS, uint8."""
    return weights.float().nan_to_num(0).clamp(0, 1).pow(1 / POWER).mul(LEVELS).round().to(torch.uint8)


def restored(steps: Tensor) -> Tensor:
    """The weights that steps stand for."""
    return (steps.float() / LEVELS) ** POWER


def pooled(cells: Tensor, down: int, along: int) -> Tensor:
    """The largest of each block of `down` × `along` cells, H h w; blocks at the edges may be smaller."""
    heads, rows, columns = cells.shape
    h, w = ceil(rows / down), ceil(columns / along)
    more = 0, w * along - columns, 0, h * down - rows
    whole = F.pad(cells, more) if any(more) else cells
    # rows first, then columns: 6 times as fast as both at once
    return whole.reshape(heads, h, down, w * along).amax(2).view(heads, h, w, along).amax(3)


@dataclass(frozen=True)
class Level:
    """A map with `scale` × `scale` weights to a cell, in tiles."""

    scale: int
    shape: tuple[int, int]  # rows and columns of cells

    @property
    def tiles(self) -> tuple[int, int]:
        """Rows and columns of tiles."""
        return ceil(self.shape[0] / TILE), ceil(self.shape[1] / TILE)

    def places(self) -> Iterator[tuple[int, int]]:
        """Row and column of each tile, row by row."""
        down, along = self.tiles
        return ((i, j) for i in range(down) for j in range(along))


def levels(rows: int, columns: int, side: int) -> list[Level]:
    """The levels of a map, the finest first, up to the first with at most `side` cells to a side."""
    scales, coarsest = [1], 2 ** max(0, ceil(max(rows, columns) / side) - 1).bit_length()
    while scales[-1] < coarsest:
        scales.append(min(scales[-1] * STEP, coarsest))
    return [Level(scale, (ceil(rows / scale), ceil(columns / scale))) for scale in scales]


class Tiled:
    """The tiles of one map 1 H T S, each computed when it is asked for."""

    def __init__(self, map: Readable, side: int):
        self.map = map
        _, self.heads, rows, columns = map.shape
        self.levels = levels(rows, columns, side)
        self.strip = lru_cache(STRIPS)(self.computed)

    @property
    def whole(self) -> bool:
        """Whether one tile holds each head, and so one piece may hold them all."""
        return len(self.levels) == 1 and self.levels[0].tiles == (1, 1)

    def tile(self, level: int, i: int, j: int) -> Tensor:
        """The cells of one tile of each head, H h w."""
        return self.strip(level, i)[:, :, j * TILE : (j + 1) * TILE]

    @cached_property
    def thumbs(self) -> Tensor:
        """All of each head in a few cells, H h w."""
        coarsest = len(self.levels) - 1
        strips = [self.strip(coarsest, i) for i in range(self.levels[coarsest].tiles[0])]
        return pooled(torch.cat(strips, 1), *self.blocks)

    @property
    def thumbs_shape(self) -> tuple[int, int, int]:
        """H h w, without a look at the map."""
        (rows, columns), (down, along) = self.levels[-1].shape, self.blocks
        return self.heads, ceil(rows / down), ceil(columns / along)

    @property
    def blocks(self) -> tuple[int, int]:
        """Rows and columns of cells of the coarsest level that a cell of a thumbnail stands for."""
        rows, columns = self.levels[-1].shape
        return ceil(rows / THUMB), ceil(columns / THUMB)

    def computed(self, level: int, i: int) -> Tensor:
        """A row of tiles, H h w: out of the finer level, where that is kept, and else out of the map."""
        if level > 1 and self.kept(level - 1):
            ratio = self.levels[level].scale // self.levels[level - 1].scale
            last = min((i + 1) * ratio, self.levels[level - 1].tiles[0])
            finer = [self.strip(level - 1, each) for each in range(i * ratio, last)]
            return pooled(torch.cat(finer, 1), ratio, ratio)
        return self.gathered(self.levels[level].scale, i)

    def kept(self, level: int) -> bool:
        """Whether all strips of a level stay in memory while others are made of them."""
        rows, columns = self.levels[level].shape
        return self.levels[level].tiles[0] <= STRIPS - 2 and self.heads * rows * columns <= HELD

    @torch.no_grad()
    def gathered(self, scale: int, i: int) -> Tensor:
        """A row of tiles out of bands of weights that stay small however long the input is."""
        first, last = i * TILE * scale, min((i + 1) * TILE * scale, self.map.shape[2])
        room = CELLS // (self.heads * self.map.shape[3] * self.map.depth)
        size = max(1, room // scale) * scale
        bands = (self.map.band(at, min(at + size, last)) for at in range(first, last, size))
        return torch.cat([self.cells(band, scale) for band in bands], 1)

    def cells(self, band: Band, scale: int) -> Tensor:
        """A band as cells over all keys, H h w.  Keys that stand together need not be spread first."""
        keys, width = band.keys, ceil(self.map.shape[3] / scale)
        together = len(keys) > 0 and bool((keys.diff() == 1).all())
        start = int(keys[0]) if together else 0
        weights = band.weights[0] if together else self.map.spread(band)[0]
        weights = F.pad(weights, (start % scale, 0)) if start % scale else weights
        found = quantised(pooled(weights, scale, scale))
        return F.pad(found, (start // scale, width - start // scale - found.shape[2]))
