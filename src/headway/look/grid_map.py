"""Window attention as maps over the whole grid.

Windows and neighbourhoods are attended tile by tile, so their maps are (B·N) H T S, with N tiles per image.  Here the
same weights are mapped to the cells of the grid, un-shifted and without padding.  Rows are still computed lazily: for a
band of cells, only the tiles that contain them.

`Detail` holds the numbers behind the weights of one site, in the same coordinates: queries, keys, values, bias and
output matrix.

Axes:  N tiles   H heads   G kv-heads   T queries (of a tile)   S keys (of a tile)   Q queries of the grid
       K keys of the grid   D head width   E value width   C width
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import isqrt

import torch
from torch import Tensor, nn

from headway.errors import UserError
from headway.nn.attention import Attention
from headway.nn.latent_attention import GlobalTokenAttention
from headway.nn.learned_score import AdditiveScore
from headway.nn.low_precision import Int8Linear
from headway.nn.trunk import device_of
from headway.nn.window_attention import First, LocalAttention, PooledAttention, Windowed
from headway.ops.attend import Additive, DotScore, SoftCapped, causal_keep, per_head
from headway.ops.attention_map import AttentionMap, Band, Readable, Weights
from headway.ops.pattern import Positions, both

GridSize = tuple[int, int]  # rows, columns


@dataclass(frozen=True, eq=False)
class Tiling:
    """The cell of the grid, y·X + x, of each query and key of each tile; −1 for padding."""

    q_cells: Tensor  # N T
    k_cells: Tensor  # N S
    q_grid: GridSize
    k_grid: GridSize

    @cached_property
    def owners(self) -> tuple[Tensor, Tensor]:
        """The tile of each query of the grid, and its index in the tile: Q and Q."""
        order = self.q_cells.flatten().argsort()[-area(self.q_grid) :]  # padding sorts first
        return order // self.q_cells.shape[1], order % self.q_cells.shape[1]

    def queries(self, x: Tensor) -> Tensor:
        """Values of the queries of each tile, N H T D, at the queries of the grid: H Q D."""
        tiles, slots = self.owners
        return x[tiles, :, slots].transpose(0, 1)

    def keys(self, x: Tensor) -> Tensor:
        """The same for keys, N H S D → H K D.  Tiles that share a key hold copies of it; a key in no tile is 0."""
        real = self.k_cells >= 0
        found = x.new_zeros(area(self.k_grid), x.shape[1], x.shape[3])
        found[self.k_cells[real]] = x.transpose(1, 2)[real]
        return found.transpose(0, 1)

    def pairs(self, x: Tensor, elsewhere: float) -> Tensor:
        """Values of the pairs of each tile, N H T S, at the pairs of the grid, H Q K; `elsewhere` at all others."""
        tiles, slots = self.owners
        found = x.new_full((len(tiles), x.shape[1], area(self.k_grid) + 1), elsewhere)
        at = self.k_cells[tiles] % (area(self.k_grid) + 1)  # −1 becomes the last, which is cut off
        found.scatter_(2, at[:, None].expand(-1, x.shape[1], -1), x[tiles, :, slots])
        return found[..., :-1].transpose(0, 1)


@dataclass(frozen=True, eq=False)
class GridMap(Readable):
    """A map of tiles, N H T S, as one over the cells of the grid: 1 H Q K."""

    tiles: Readable
    tiling: Tiling

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return 1, self.tiles.shape[1], area(self.tiling.q_grid), area(self.tiling.k_grid)

    @torch.no_grad()
    def band(self, first: int, last: int) -> Band:
        tiles, slots = (owner[first:last] for owner in self.tiling.owners)
        needed, at = tiles.unique(return_inverse=True)
        weights = select_tiles(self.tiles, needed).full()[at, :, slots]  # Q′ H S
        cells = self.tiling.k_cells[needed]  # n S
        keys = cells[cells >= 0].unique()
        places = torch.searchsorted(keys, cells.clamp(min=0))[at]  # Q′ S
        # padding has weight 0, so it may be added anywhere
        weights = torch.where((cells >= 0)[at][:, None], weights, 0.0)
        found = weights.new_zeros(*weights.shape[:2], len(keys))
        found.scatter_add_(2, places.clamp(max=max(len(keys) - 1, 0))[:, None].expand_as(weights), weights)
        return Band(first, last, keys, found.transpose(0, 1)[None])

    @torch.no_grad()
    def seen(self, band: Band) -> Tensor:
        """Keys outside the tile of a query are hidden from it, and those that the tile's own mask hides."""
        tiles, slots = (owner[band.first : band.last] for owner in self.tiling.owners)
        needed, at = tiles.unique(return_inverse=True)
        chosen = select_tiles(self.tiles, needed)
        inside = chosen.seen(chosen.band(0, chosen.shape[2]))
        cells = self.tiling.k_cells[tiles]  # Q′ S
        keep = cells >= 0
        if inside is not None:
            keep &= inside.expand(len(needed), -1, -1)[at, slots]
        found = keep.new_zeros(len(tiles), area(self.tiling.k_grid) + 1)
        found.scatter_(1, torch.where(keep, cells, area(self.tiling.k_grid)), True)
        return found[None, :, band.keys]


@dataclass(frozen=True, eq=False)
class NoGradMap(Readable):
    """A map that is read without gradients, whatever its biases require."""

    map: Readable

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return self.map.shape

    @property
    def depth(self) -> int:
        return self.map.depth

    @torch.no_grad()
    def band(self, first: int, last: int) -> Band:
        return self.map.band(first, last)

    @torch.no_grad()
    def seen(self, band: Band) -> Tensor | None:
        return self.map.seen(band)


def select_tiles(map: Readable, tiles: Tensor) -> Readable:
    """Some tiles of a map alone."""
    if isinstance(map, Weights):
        return Weights(map.values[tiles])
    assert isinstance(map, AttentionMap)
    keep = map.keep if map.keep is None or len(map.keep) == 1 else map.keep[tiles]
    return replace(
        map,
        q=map.q[tiles],
        k=map.k[tiles],
        keep=keep,
        q_pos=select_positions(map.q_pos, tiles),
        k_pos=select_positions(map.k_pos, tiles),
    )


def select_positions(positions: Positions, tiles: Tensor) -> Positions:
    return positions if positions.rows == 1 else Positions(positions.at[tiles])


def tiling_of(part: Attention, grid_module: nn.Module, grid: GridSize, queries: int) -> Tiling:
    """How a part cuts a grid into tiles of `queries` queries.

    `grid_module` is given the grid: a `Windowed` around the attention, or the attention itself.
    """
    if isinstance(grid_module, Windowed):
        cells = grid_module.windows.fit(*grid).cells(*grid)
        return Tiling(cells, cells, grid, grid)
    assert isinstance(part, LocalAttention)
    from headway.ops.window import Halo

    halo = Halo(part.size, isqrt(queries), part.stride)
    strided = halo.strided(*grid)
    return Tiling(halo.tiles.cells(*strided), halo.cells(*grid), strided, grid)


def pooled_grids(part: PooledAttention, grid: GridSize) -> tuple[GridSize, GridSize]:
    """The grids of the queries and of the keys after pooling."""
    strides = (pool.stride[0] if isinstance(pool, nn.Conv2d) else 1 for pool in (part.q_pool, part.k_pool))
    queries, keys = ((-(-grid[0] // stride), -(-grid[1] // stride)) for stride in strides)
    return queries, keys


def area(grid: GridSize) -> int:
    return grid[0] * grid[1]


@dataclass(frozen=True, eq=False)
class Detail:
    """out · softmax(score(q, k) + bias) v of one site, in the coordinates of its axes.

    Queries and keys are as they enter the score: rotated, normalised, and weighted where the score does that.  The
    score is "dot", scale · q · k, or "additive", `additive` · tanh(q + k).
    """

    score: str
    scale: float
    q: Tensor  # H T D
    k: Tensor  # H S D, kv-heads repeated
    v: Tensor  # H S E, kv-heads repeated
    x: Tensor | None  # T C, the input of each query; None where a query is pooled from several
    out: Tensor  # C (H·E)
    bias: Tensor | None  # H|1 T S, −inf where a key is hidden
    additive: Tensor | None  # D: the vector of the additive score

    def terms(self, head: int, row: int, col: int) -> Tensor:
        """The contribution of each dimension to the logit, D, without the bias."""
        q, k = self.q[head, row], self.k[head, col]
        return self.scale * q * k if self.additive is None else self.additive * (q + k).tanh()


@torch.no_grad()
def detail_of(part: Attention, map: AttentionMap, v: Tensor, x: Tensor, tiling: Tiling | None) -> Detail:
    """The detail of a part whose map is 1 H T S, or N H T S in tiles; `v` is B G S E and `x` its input."""
    heads, score = map.shape[1], map.score
    if what := lacks_detail(part):
        raise UserError(f"the details of {what} are not shown", do="look at the weights")
    if isinstance(score, DotScore):
        q, k, scale = score.dotted(map.q, map.k)
        kind, additive = "dot", None
    else:
        assert isinstance(score, Additive | AdditiveScore)
        q, k, scale, kind, additive = map.q, map.k, 1.0, "additive", score.v
    k, v, bias = per_head(k, heads), per_head(v, heads), logit_bias(map)
    if tiling is None:
        q, k, v, bias = q[0], k[0], v[0], None if bias is None else bias[0]
    else:
        # keys outside the tile of a query are hidden from it
        bias = q.new_zeros(1, 1, 1, 1, dtype=torch.float32) if bias is None else bias
        bias = tiling.pairs(bias.expand(map.shape[0], -1, *map.shape[2:]), float("-inf"))
        q, k, v = tiling.queries(q), tiling.keys(k), tiling.keys(v)
    inputs = inputs_at_queries(part, x)
    out = output_matrix(part, heads * v.shape[2])
    return Detail(kind, scale, q, k, v, inputs if len(inputs) == q.shape[1] else None, out, bias, additive)


def lacks_detail(part: Attention) -> str | None:
    """What a part computes that no detail shows, which is a sum of products over queries that are made alike."""
    if isinstance(part.score, SoftCapped):
        return "capped scores"
    return "tokens with projections of their own" if isinstance(part, GlobalTokenAttention) and part.tokens else None


def inputs_at_queries(part: Attention, x: Tensor) -> Tensor:
    """The input of a part, 1 T C or of a grid 1 Y X C, at its queries: T C."""
    stride = getattr(part, "stride", 1)  # of a grid, only the cells with a query
    return (x[:, ::stride, ::stride] if x.dim() == 4 else x).flatten(0, -2)


def logit_bias(map: AttentionMap) -> Tensor | None:
    """The bias of the logits, B|1 H|1 T S, −inf where a key is hidden; None if there is none."""
    keep, causal = map.sight()
    keep = both(keep, causal_keep(map.q, map.k)) if causal else keep
    bias = map.logit_bias()
    if keep is None:
        return None if bias is None else bias.float()
    bias = torch.zeros(1, 1, 1, 1, device=keep.device) if bias is None else bias.float()
    found = torch.where(keep[:, None], bias, float("-inf"))
    return found.expand(-1, -1, *map.shape[2:])


def output_matrix(part: Attention, wide: int) -> Tensor:
    """The output matrix of the concatenated heads, C (H·E)."""
    out = part.get_submodule("out")
    if isinstance(out, Int8Linear):
        return out.dequantised()
    if isinstance(out, nn.Linear):
        return out.weight
    dim = out.dim if isinstance(out, First) else wide
    return torch.eye(wide, device=device_of(part))[:dim]  # without a matrix, the heads are passed on
