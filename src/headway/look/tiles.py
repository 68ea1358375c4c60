"""Attention maps as bytes: max-pooled, quantised to 131 steps and cut into tiles, one strip of rows at a time.

    weight = (q / QUANT_LEVELS) ** QUANT_POWER     error at most QUANT_POWER / (2 · QUANT_LEVELS) = 0.0048

Small weights have finer steps than large ones: in long inputs most are small, and still differ.  A cell of many weights
shows the largest, so a thin diagonal survives.  Quantisation is monotonic, so pooling first gives the same result and
leaves less to quantise.

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

from headway.ops.attention_map import CELLS, Band, Readable

QUANT_LEVELS, QUANT_POWER = 130, 1.25
TILE = 256  # cells per side of a tile
SCALE_STEP = 4  # a cell of one level covers 4 × 4 cells of the next finer one
THUMB = 24  # cells per side of a thumbnail, at most
MAX_CACHED_STRIPS = 8  # neighbouring tiles are requested together
MAX_CACHED_LEVEL = 2**24  # bytes of a level that is cached whole, to pool a coarser one from it


def quantise(weights: Tensor) -> Tensor:
    """Weights between 0 and 1 as steps 0 … QUANT_LEVELS, uint8."""
    return weights.float().nan_to_num(0).clamp(0, 1).pow(1 / QUANT_POWER).mul(QUANT_LEVELS).round().to(torch.uint8)


def dequantise(steps: Tensor) -> Tensor:
    """The weights of quantised steps."""
    return (steps.float() / QUANT_LEVELS) ** QUANT_POWER


def max_pool(cells: Tensor, down: int, along: int) -> Tensor:
    """The maximum of each block of `down` × `along` cells, H h w; blocks at the edges may be smaller."""
    heads, rows, columns = cells.shape
    h, w = ceil(rows / down), ceil(columns / along)
    more = 0, w * along - columns, 0, h * down - rows
    whole = F.pad(cells, more) if any(more) else cells
    # rows first, then columns: 6 times as fast as both at once
    return whole.reshape(heads, h, down, w * along).amax(2).view(heads, h, w, along).amax(3)


@dataclass(frozen=True)
class TileLevel:
    """A resolution of a map: `scale` × `scale` weights per cell, in tiles."""

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


def tile_levels(rows: int, columns: int, side: int) -> list[TileLevel]:
    """The levels of a map, finest first, up to the first with at most `side` cells per side."""
    scales, coarsest = [1], 2 ** max(0, ceil(max(rows, columns) / side) - 1).bit_length()
    while scales[-1] < coarsest:
        scales.append(min(scales[-1] * SCALE_STEP, coarsest))
    return [TileLevel(scale, (ceil(rows / scale), ceil(columns / scale))) for scale in scales]


class TiledMap:
    """The tiles of one map 1 H T S, each computed on demand."""

    def __init__(self, map: Readable, side: int):
        self.map = map
        _, self.heads, rows, columns = map.shape
        self.levels = tile_levels(rows, columns, side)
        self.strip = lru_cache(MAX_CACHED_STRIPS)(self.compute_strip)

    @property
    def whole(self) -> bool:
        """Whether a head fits into one tile, so that one blob may hold all heads."""
        return len(self.levels) == 1 and self.levels[0].tiles == (1, 1)

    def tile(self, level: int, i: int, j: int) -> Tensor:
        """The cells of one tile of each head, H h w."""
        return self.strip(level, i)[:, :, j * TILE : (j + 1) * TILE]

    @cached_property
    def thumbs(self) -> Tensor:
        """A thumbnail of each head, H h w."""
        coarsest = len(self.levels) - 1
        strips = [self.strip(coarsest, i) for i in range(self.levels[coarsest].tiles[0])]
        return max_pool(torch.cat(strips, 1), *self.blocks)

    @property
    def thumbs_shape(self) -> tuple[int, int, int]:
        """H h w, without reading the map."""
        (rows, columns), (down, along) = self.levels[-1].shape, self.blocks
        return self.heads, ceil(rows / down), ceil(columns / along)

    @property
    def blocks(self) -> tuple[int, int]:
        """Rows and columns of cells of the coarsest level per cell of a thumbnail."""
        rows, columns = self.levels[-1].shape
        return ceil(rows / THUMB), ceil(columns / THUMB)

    def compute_strip(self, level: int, i: int) -> Tensor:
        """A row of tiles, H h w: pooled from the finer level, if that is cached, and else from the map."""
        if level > 1 and self.is_cached(level - 1):
            ratio = self.levels[level].scale // self.levels[level - 1].scale
            last = min((i + 1) * ratio, self.levels[level - 1].tiles[0])
            finer = [self.strip(level - 1, each) for each in range(i * ratio, last)]
            return max_pool(torch.cat(finer, 1), ratio, ratio)
        return self.pool_map(self.levels[level].scale, i)

    def is_cached(self, level: int) -> bool:
        """Whether all strips of a level stay in memory while others are pooled from them."""
        rows, columns = self.levels[level].shape
        return self.levels[level].tiles[0] <= MAX_CACHED_STRIPS - 2 and self.heads * rows * columns <= MAX_CACHED_LEVEL

    @torch.no_grad()
    def pool_map(self, scale: int, i: int) -> Tensor:
        """A row of tiles from bands of weights that stay small for inputs of any length."""
        first, last = i * TILE * scale, min((i + 1) * TILE * scale, self.map.shape[2])
        room = CELLS // (self.heads * self.map.shape[3] * self.map.depth)
        size = max(1, room // scale) * scale
        bands = (self.map.band(at, min(at + size, last)) for at in range(first, last, size))
        return torch.cat([self.cells(band, scale) for band in bands], 1)

    def cells(self, band: Band, scale: int) -> Tensor:
        """A band as cells over all keys, H h w.  Contiguous keys need not be spread first."""
        keys, width = band.keys, ceil(self.map.shape[3] / scale)
        contiguous = len(keys) > 0 and bool((keys.diff() == 1).all())
        start = int(keys[0]) if contiguous else 0
        weights = band.weights[0] if contiguous else self.map.spread(band)[0]
        weights = F.pad(weights, (start % scale, 0)) if start % scale else weights
        found = quantise(max_pool(weights, scale, scale))
        return F.pad(found, (start // scale, width - start // scale - found.shape[2]))
