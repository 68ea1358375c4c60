"""Logit biases: relative position biases, added to the scores of queries and keys before the softmax.

Each is called with queries, keys and their positions, for whole maps or for any rows and columns of one, so it is a
function of the positions alone.  A bias over grids, whose flat positions run y · cols + x, needs their sizes: `on`
binds it to the grids of a call.

Axes:  B batch   H heads   G kv-heads   T queries   S keys   D head width   C model width   L distances
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import UserError
from headway.nn.learned_score import at_least_one
from headway.ops.attend import per_head
from headway.ops.attention_map import Bias
from headway.ops.pattern import Positions
from headway.ops.relative import (
    alibi_slopes,
    decomposed_index,
    log_offsets,
    relative_index_2d,
    t5_bucket_both_ways,
)
from headway.ops.rotary import PAIRS, Layout, Rotary, sinusoid
from headway.ops.window import Halo

Grid = tuple[int, int]  # rows, columns
Bucket = Callable[[Tensor, int, int], Tensor]  # (key − query, buckets, longest) → bucket


class GridBias(Protocol):
    """A bias between the cells of two grids, whose sizes may differ from call to call."""

    def on(self, q_grid: Grid, k_grid: Grid) -> Bias: ...


class T5Bias(nn.Module):
    """A learned number per head and bucket of distances, `table` (buckets, H).

    `bucket` is `t5_bucket_both_ways` in an encoder and `t5_bucket_backward` in a decoder.
    """

    weight_decay = False

    def __init__(self, heads: int, buckets: int = 32, longest: int = 128, bucket: Bucket = t5_bucket_both_ways):
        super().__init__()
        bucket(torch.zeros(1, device="cpu"), buckets, longest)  # impossible numbers are told here and not in a call
        self.bucket, self.buckets, self.longest = bucket, buckets, longest
        self.table = learned_table(buckets, heads)

    def forward(self, q: Tensor, k: Tensor, q_pos: Positions, k_pos: Positions) -> Tensor:
        return bias_by_distance(self.values, q_pos, k_pos)

    def values(self, distance: Tensor) -> Tensor:
        return select_rows(self.table, self.bucket(distance, self.buckets, self.longest))


class GatedT5Bias(T5Bias):
    """The same times a gate, which is the last number of each query: WavLM's, with `GatedBiasAttention`."""

    def forward(self, q: Tensor, k: Tensor, q_pos: Positions, k_pos: Positions) -> Tensor:
        return q[..., -1:] * super().forward(q, k, q_pos, k_pos)


@dataclass(frozen=True)
class Alibi:
    """−slope · |query − key|, a slope for each head; nothing is learned."""

    heads: int

    def __post_init__(self) -> None:
        at_least_one("Alibi", heads=self.heads)

    def __call__(self, q: Tensor, k: Tensor, q_pos: Positions, k_pos: Positions) -> Tensor:
        return bias_by_distance(self.values, q_pos, k_pos)

    def values(self, distance: Tensor) -> Tensor:
        slopes = alibi_slopes(self.heads, distance.device)
        return -slopes.view(-1, *[1] * distance.dim()) * distance.abs()


class WindowBias(nn.Module):
    """Swin's: a learned number per head and offset of two cells of a window, `table` ((2·rows − 1)·(2·cols − 1), H)."""

    weight_decay = False

    def __init__(self, heads: int, rows: int, cols: int):
        super().__init__()
        at_least_one("WindowBias", heads=heads, rows=rows, cols=cols)
        self.window = rows, cols
        self.table = learned_table((2 * rows - 1) * (2 * cols - 1), heads)

    def forward(self, q: Tensor, k: Tensor, q_pos: Positions, k_pos: Positions) -> Tensor:
        return bias_by_offset(self.table, self.window, q_pos, k_pos)


class PatchBias(nn.Module):
    """BEiT's: a learned number per head and offset of two patches, and three more for the class token.

    `table` ((2·rows − 1)·(2·cols − 1) + 3, H): the last are of the class token to a patch, a patch to it, and itself.
    Positions are those of `PatchCells`; offsets between whole numbers are interpolated.
    """

    weight_decay = False

    def __init__(self, heads: int, rows: int, cols: int):
        super().__init__()
        at_least_one("PatchBias", heads=heads, rows=rows, cols=cols)
        self.grid = rows, cols
        self.table = learned_table((2 * rows - 1) * (2 * cols - 1) + 3, heads)

    def forward(self, q: Tensor, k: Tensor, q_pos: Positions, k_pos: Positions) -> Tensor:
        offsets = q_pos.at[:, :, None] - k_pos.at[:, None]  # B|1 T S 2
        q_class, k_class = q_pos.at[:, :, None, 0] < 0, k_pos.at[:, None, :, 0] < 0
        special = torch.where(q_class & k_class, len(self.table) - 1, len(self.table) - 2 - q_class.int())
        either = q_class | k_class
        if not offsets.is_floating_point():
            return self.chosen(torch.where(either, special, self.index(offsets)))
        low = torch.minimum(offsets.floor(), self.last(offsets) - 1)
        share = self.held(offsets) - self.held(low)  # what lies further out is as at the edge
        corners = [torch.tensor(corner, device=q.device) for corner in ((0, 0), (0, 1), (1, 0), (1, 1))]
        parts: list[Tensor] = []
        for corner in corners:
            weight = torch.where(corner.bool(), share, 1 - share).prod(-1)  # B|1 T S
            parts.append(self.chosen(self.index(low.long() + corner)) * weight[:, None].to(self.table.dtype))
        return torch.where(either[:, None], self.chosen(special), torch.stack(parts).sum(0))

    def last(self, offsets: Tensor) -> Tensor:
        """The largest offset along each axis, which is the least one's negative."""
        return torch.tensor([side - 1 for side in self.grid], dtype=offsets.dtype, device=offsets.device)

    def held(self, offsets: Tensor) -> Tensor:
        last = self.last(offsets)
        return torch.maximum(torch.minimum(offsets, last), -last)

    def index(self, offsets: Tensor) -> Tensor:
        """The row of the table for whole offsets, B|1 T S 2 → B|1 T S."""
        y, x = (self.held(offsets) + self.last(offsets)).unbind(-1)
        return y * (2 * self.grid[1] - 1) + x

    def chosen(self, index: Tensor) -> Tensor:
        return select_rows(self.table, index).transpose(0, 1)


class ContinuousBias(nn.Module):
    """Swin-V2's: 16 · sigmoid(MLP(offset)), so that a window unlike the `pretrained` one can use what was learned."""

    in_float32 = ("up", "down")  # small

    def __init__(self, heads: int, rows: int, cols: int, *, hidden: int = 512, pretrained: Grid | None = None):
        super().__init__()
        at_least_one("ContinuousBias", heads=heads, rows=rows, cols=cols, hidden=hidden)
        self.window, self.pretrained = (rows, cols), pretrained
        self.up, self.down = nn.Linear(2, hidden), nn.Linear(hidden, heads, bias=False)

    def forward(self, q: Tensor, k: Tensor, q_pos: Positions, k_pos: Positions) -> Tensor:
        offsets = log_offsets(self.window, self.pretrained, self.up.weight.device).to(self.up.weight)
        values = 16 * self.down(F.relu(self.up(offsets))).sigmoid()  # (2·rows − 1)·(2·cols − 1) H
        return bias_by_offset(values, self.window, q_pos, k_pos)


class NeighbourBias(nn.Module):
    """A learned number per head and neighbour in size × size cells: the geometry prior of local attention.

    Bound to a tile of queries, which stand `stride` cells apart, and to its keys, which reach size // 2 cells further
    all round.
    """

    weight_decay = False

    def __init__(self, heads: int, size: int, *, stride: int = 1):
        super().__init__()
        at_least_one("NeighbourBias", heads=heads, size=size, stride=stride)
        self.size, self.stride = size, stride
        self.table = learned_table(size * size, heads)

    def on(self, q_grid: Grid, k_grid: Grid) -> Bias:
        halo = Halo(self.size, q_grid[0], self.stride)
        if k_grid != (halo.span, halo.span):
            said = f"a bias for {self.size}×{self.size} neighbours was given {k_grid[0]}×{k_grid[1]} keys"
            raise UserError(said, allowed=f"{halo.span}×{halo.span}", do="make it of the size of its attention")
        return partial(self, halo)

    def forward(self, halo: Halo, q: Tensor, k: Tensor, q_pos: Positions, k_pos: Positions) -> Tensor:
        offsets = halo.offsets(q.device)[q_pos.at[:, :, None], k_pos.at[:, None, :]]  # B|1 T S
        return select_rows(self.table, offsets).transpose(0, 1)


class DecomposedBias(nn.Module):
    """MViT-v2's: q · R_rows[Δy] + q · R_cols[Δx], the query as it is before it is scaled.

    The tables (2·max(q, k) − 1, D) are made for queries and keys in grids of these sizes; for others they are
    stretched linearly, as in the published code.
    """

    weight_decay = False

    def __init__(self, head_dim: int, q_grid: Grid, k_grid: Grid):
        super().__init__()
        (q_rows, q_cols), (k_rows, k_cols) = q_grid, k_grid
        at_least_one("DecomposedBias", head_dim=head_dim, q_rows=q_rows, q_cols=q_cols, k_rows=k_rows, k_cols=k_cols)
        self.rows = learned_table(2 * max(q_rows, k_rows) - 1, head_dim)
        self.cols = learned_table(2 * max(q_cols, k_cols) - 1, head_dim)

    def on(self, q_grid: Grid, k_grid: Grid) -> Bias:
        return partial(self, q_grid, k_grid)

    def forward(self, q_grid: Grid, k_grid: Grid, q: Tensor, k: Tensor, q_pos: Positions, k_pos: Positions) -> Tensor:
        (q_rows, q_cols), (k_rows, k_cols) = q_grid, k_grid
        down = bias_along_axis(self.rows, q, (q_rows, q_pos.at // q_cols), (k_rows, k_pos.at // k_cols))
        return down + bias_along_axis(self.cols, q, (q_cols, q_pos.at % q_cols), (k_cols, k_pos.at % k_cols))


class TransformerXLBias(nn.Module):
    """(u · k + (q + v) · W r(query − key)) / √D: with the scaled dot product, Transformer-XL's and Conformer's logits.

    `r` (C wide) has sine and cosine in turn, of the distance query − key: positive where the key stands before the
    query, as in Hugging Face's Wav2Vec2-Conformer; XLNet's has all sines first (HALVES).  u and v are (H, D).  Numbers
    that queries and keys carry behind their D are left to others.
    """

    weight_decay = True
    in_float32 = ("place",)  # read as a matrix

    def __init__(self, heads: int, head_dim: int, dim: int, *, layout: Layout = PAIRS):
        super().__init__()
        at_least_one("TransformerXLBias", heads=heads, head_dim=head_dim)
        self.waves = Rotary(dim, layout=layout)
        self.place = nn.Linear(dim, heads * head_dim, bias=False)
        self.u, self.v = learned_table(heads, head_dim), learned_table(heads, head_dim)

    def forward(self, q: Tensor, k: Tensor, q_pos: Positions, k_pos: Positions) -> Tensor:
        width = self.u.shape[1]
        q, k = q[..., :width], k[..., :width]
        content = (per_head(k, q.shape[1]) @ self.u[:, :, None]).mT  # B H 1 S
        asked, runs = q + self.v[:, None], distances(q_pos, k_pos)
        placed = self.at_any(asked, q_pos, k_pos) if runs is None else self.at_runs(asked, runs)
        return (content + placed) * width**-0.5

    def at_any(self, asked: Tensor, q_pos: Positions, k_pos: Positions) -> Tensor:
        """asked · W r(query − key), B H T S: sines of a difference are what rotary embedding turns a vector by."""
        asked = asked @ self.place.weight.unflatten(0, (asked.shape[1], -1))  # B H T C
        key_waves = sinusoid(-k_pos.at, self.waves.head_dim, layout=self.waves.layout)[:, None]  # B|1 1 S C
        return self.waves(asked, q_pos.at) @ key_waves.to(asked.dtype).mT

    def at_runs(self, asked: Tensor, runs: Tensor) -> Tensor:
        """The same from the distances of two runs; with 8 heads a third of the time of `at_any`."""
        waves = sinusoid(-runs, self.waves.head_dim, layout=self.waves.layout)
        r = self.place(waves.to(asked.dtype))  # L (H D)
        r = r.unflatten(-1, (asked.shape[1], -1)).transpose(0, 1)  # H L D
        return skew(asked @ r.mT)


class DistanceVectors(nn.Module):
    """norm(table): a vector for each of 2 · buckets buckets of distances, N C, which the layers of a model share.

    Each distance has a bucket of its own, unless `bucket` says which; those beyond the last share it.
    """

    def __init__(
        self,
        dim: int,
        buckets: int,
        *,
        bucket: Callable[[Tensor], Tensor] | None = None,
        norm: nn.Module | None = None,
    ):
        super().__init__()
        self.buckets, self.bucket = buckets, bucket or nn.Identity()
        self.bucket(torch.zeros(1, device="cpu"))  # impossible numbers are told here, not in a later call
        self.table, self.norm = nn.Embedding(2 * buckets, dim), norm or nn.Identity()

    def forward(self) -> Tensor:
        return self.norm(self.table.weight)

    def rows(self, q_pos: Positions, k_pos: Positions) -> Tensor:
        """Which of the vectors each pair has, by query − key, B|1 T S."""
        distance = q_pos.at[:, :, None] - k_pos.at[:, None, :]
        return (self.bucket(distance) + self.buckets).clamp(0, 2 * self.buckets - 1)


class DisentangledBias(nn.Module):
    """(q · K r + k · Q r) · scale, r being the vector of the distance query − key: DeBERTa's.

    K and Q are the projections of keys and of queries of the attention itself, or projections of distances alone.
    """

    weight_decay = True

    def __init__(self, distance: DistanceVectors, query: nn.Linear, key: nn.Linear, scale: float):
        super().__init__()
        self.distance, self.query, self.key, self.scale = distance, query, key, scale

    def forward(self, q: Tensor, k: Tensor, q_pos: Positions, k_pos: Positions) -> Tensor:
        vectors, rows = self.distance(), self.distance.rows(q_pos, k_pos)[:, None]  # N C, B|1 1 T S
        keys, queries = (
            layer(vectors).unflatten(-1, (q.shape[1], -1)).movedim(0, -1) for layer in (self.key, self.query)
        )
        rows = rows.expand(q.shape[0], q.shape[1], -1, -1)
        asked = (q @ keys).gather(-1, rows)  # keys, queries: H D N
        told = (k @ queries).gather(-1, rows.mT).mT
        return (asked + told) * self.scale


def distances(q_pos: Positions, k_pos: Positions) -> Tensor | None:
    """key − query for all pairs of two runs, in order, with one to spare at each end: T + S + 1.  None if unknown."""
    if q_pos.start is None or k_pos.start is None or torch.compiler.is_exporting():  # to a graph for every length
        return None
    first = k_pos.start - q_pos.start - len(q_pos)
    return torch.arange(first, first + len(q_pos) + len(k_pos) + 1, device=q_pos.at.device)


def bias_by_distance(values: Callable[[Tensor], Tensor], q_pos: Positions, k_pos: Positions) -> Tensor:
    """B|1 H T S from `values` of the distances key − query (… → H …), each computed once where positions are runs."""
    runs = distances(q_pos, k_pos)
    if runs is None:
        return values(k_pos.at[:, None, :] - q_pos.at[:, :, None]).transpose(0, 1)
    return values(runs).unfold(-1, len(k_pos), 1)[:, 1:-1].flip(1)[None]


def skew(x: Tensor) -> Tensor:
    """… T L → … T S: the entries at the `distances` that each query has; a view, for each row begins one earlier."""
    queries, runs = x.shape[-2:]
    return x.flatten(-2)[..., queries:].unflatten(-1, (queries, runs - 1))[..., : runs - queries - 1]


def bias_by_offset(values: Tensor, window: Grid, q_pos: Positions, k_pos: Positions) -> Tensor:
    """B|1 H T S from `values` ((2·rows − 1)·(2·cols − 1), H) for every offset of two cells of a window."""
    rows, cols = window
    if max(len(q_pos), len(k_pos)) > rows * cols:
        said = f"a bias for windows of {rows}×{cols} was given {len(q_pos)} queries and {len(k_pos)} keys"
        raise UserError(said, allowed=f"{rows * cols} cells or fewer", do="put the attention into Windowed")
    return select_rows(values, relative_index_2d(q_pos.at, k_pos.at, window)).transpose(0, 1)


def select_rows(values: Tensor, index: Tensor) -> Tensor:
    """`values` (N H) at `index` (…), H …"""
    # not values[index]: the fused kernel reads a bias twice as fast whose keys lie side by side (39, 75 ms, 1024 keys)
    return values.T.index_select(1, index.flatten()).unflatten(1, index.shape)


def bias_along_axis(values: Tensor, q: Tensor, queries: tuple[int, Tensor], keys: tuple[int, Tensor]) -> Tensor:
    """q (B H T D) · the row of `values` (N D) for its offset to each key, B H T S, along one axis of the grids.

    `queries` and `keys` are the lengths of their axes and where on them they stand, B|1 T and B|1 S.
    """
    (q_len, q_at), (k_len, k_at) = queries, keys
    index = decomposed_index(q_len, k_len, q.device)[q_at[:, None, :, None], k_at[:, None, None, :]]  # B|1 1 T S
    return (q @ interpolate_rows(values, q_len, k_len).mT).gather(-1, index.expand(*q.shape[:2], -1, -1))


def interpolate_rows(values: Tensor, q_len: int, k_len: int) -> Tensor:
    """`values` (N D) with a row for each of the 2·max(q_len, k_len) − 1 offsets."""
    offsets = 2 * max(q_len, k_len) - 1
    return values if len(values) == offsets else F.interpolate(values.T[None], offsets, mode="linear")[0].T


def learned_table(rows: int, cols: int) -> nn.Parameter:
    return nn.Parameter(nn.init.trunc_normal_(torch.empty(rows, cols), std=0.02))
