"""Maps of tiles at the cells of the whole grid, against maps that are computed over all cells at once."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from headway.look.grid_map import GridMap, Tiling, area, pooled_grids, tiling_of
from headway.nn.attention import SelfAttention, split
from headway.nn.bias import NeighbourBias, WindowBias
from headway.nn.trace import Uniform, record
from headway.nn.window_attention import LocalAttention, PooledAttention, Windowed
from headway.ops.attention_map import Readable
from headway.ops.window import Windows

DIM, HEADS = 8, 2
GRIDS = [(8, 8), (10, 7), (4, 12), (3, 2)]  # of whole windows, to be padded, one window high, smaller than a window
SHIFTS = [0, 1, 2]


def image(grid: tuple[int, int]) -> Tensor:
    return torch.randn(1, *grid, DIM, generator=torch.Generator().manual_seed(1))


def lively(model: torch.nn.Module) -> torch.nn.Module:
    torch.manual_seed(2)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model.eval()


def windowed(shift: int) -> Windowed:
    part = Windowed(SelfAttention(DIM, HEADS, logit_bias=WindowBias(HEADS, 4, 4)), Windows(4, 4, shift, shift))
    lively(part)
    return part


def placed(part: Windowed | LocalAttention, x: Tensor, *edits: object) -> GridMap:
    site = "attention.weights" if isinstance(part, Windowed) else "weights"
    with torch.no_grad(), record(part, site, edit=dict.fromkeys([site], *edits) if edits else None) as trace:
        part(x)
    map, inner = trace[site], part.attention if isinstance(part, Windowed) else part
    assert isinstance(map, Readable)
    return GridMap(map, tiling_of(inner, part, (x.shape[1], x.shape[2]), map.shape[2]))


def global_map(part: Windowed, x: Tensor) -> Tensor:
    """All cells against all cells, H Q Q, with a mask and a bias that are told of each pair by itself."""
    grid, inner = (x.shape[1], x.shape[2]), part.attention
    q, k = (split(project(x.flatten(1, 2)), HEADS)[0] for project in (inner.q, inner.k))  # H Q D
    logits = q @ k.mT / (DIM // HEADS) ** 0.5
    cells = [(y, c) for y in range(grid[0]) for c in range(grid[1])]
    bias = inner.logit_bias
    assert isinstance(bias, WindowBias)
    for i, one in enumerate(cells):
        for j, other in enumerate(cells):
            seen = [window_of(a, b, side, part.windows.shift_rows) for a, b, side in zip(one, other, grid, strict=True)]
            if None in seen:
                logits[:, i, j] = float("-inf")
            else:
                down, along = seen
                assert down is not None
                assert along is not None
                logits[:, i, j] += bias.table[(down + 3) * 7 + along + 3]
    return logits.softmax(-1)


def window_of(query: int, key: int, side: int, shift: int) -> int | None:
    """Query minus key within a window of 4 along one axis; None where they do not see each other."""
    shift = 0 if side <= 4 else shift
    long = -(-side // 4) * 4
    q, k = (query - shift) % long, (key - shift) % long
    together = q // 4 == k // 4 and (query < shift) == (key < shift)
    return q % 4 - k % 4 if together else None


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("shift", SHIFTS)
@torch.no_grad()
def test_windows_are_the_global_map_under_the_mask_of_windows(grid: tuple[int, int], shift: int) -> None:
    part, x = windowed(shift), image(grid)
    assert_close(placed(part, x).full()[0], global_map(part, x), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("stride", [1, 2])
@torch.no_grad()
def test_neighbourhoods_are_the_global_map_under_the_mask_of_neighbours(grid: tuple[int, int], stride: int) -> None:
    part = LocalAttention(DIM, HEADS, 3, stride=stride, grid_bias=NeighbourBias(HEADS, 3, stride=stride))
    x = image(grid)
    lively(part)
    asked = x[:, ::stride, ::stride]
    q, k = split(part.q(asked.flatten(1, 2)), HEADS)[0], split(part.k(x.flatten(1, 2)), HEADS)[0]
    logits = q @ k.mT / (DIM // HEADS) ** 0.5
    assert isinstance(part.grid_bias, NeighbourBias)
    cells = [(y, c) for y in range(grid[0]) for c in range(grid[1])]
    for i, query in enumerate((y, c) for y in range(0, grid[0], stride) for c in range(0, grid[1], stride)):
        for j, key in enumerate(cells):
            down, along = key[0] - query[0], key[1] - query[1]
            near = abs(down) <= 1 and abs(along) <= 1
            logits[:, i, j] += part.grid_bias.table[(down + 1) * 3 + along + 1] if near else float("-inf")
    found = placed(part, x)
    assert found.shape == (1, HEADS, *logits.shape[1:])
    assert_close(found.full()[0], logits.softmax(-1), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("part", [windowed(2), LocalAttention(DIM, HEADS, 3)], ids=["windows", "neighbours"])
def test_any_rows_are_those_of_the_whole(part: Windowed | LocalAttention) -> None:
    found = placed(part, image((10, 7)))
    full = found.full()
    for first, last in ((0, 1), (5, 23), (69, 70), (7, 7)):
        assert_close(found.rows(first, last), full[:, :, first:last])
        assert len(found.band(first, last).keys) <= 70
    assert_close(found.entropy(), torch.special.entr(full).sum(-1))
    assert_close(found.received(), full.sum(2))
    assert_close(found.top(3).weights, full.topk(3).values)


def test_a_band_asks_only_the_tiles_that_hold_it() -> None:
    found = placed(windowed(0), image((8, 8)))
    assert len(found.band(0, 1).keys) == 16
    assert len(found.band(0, 8).keys) == 32


def test_what_an_edit_used_is_placed_too() -> None:
    found = placed(windowed(1), image((10, 7)), Uniform()(0)).full()[0, 0]
    assert_close(found.sum(-1), torch.ones(70))
    assert all(len(set(row[row > 0].tolist())) == 1 for row in found)


def test_tiles_that_share_a_key_hold_the_same() -> None:
    part, x = LocalAttention(DIM, HEADS, 3), image((6, 6))
    tiling = tiling_of(part, part, (6, 6), 4)
    numbers = tiling.k_cells[:, None, :, None].float()
    assert_close(tiling.keys(numbers)[0, :, 0], torch.arange(36.0))
    asked = tiling.q_cells[:, None, :, None].float()
    assert_close(tiling.queries(asked)[0, :, 0], torch.arange(36.0))
    assert x.shape[1:3] == tiling.q_grid


def test_pairs_that_share_no_tile_are_elsewhere() -> None:
    cells = torch.tensor([[0, 1], [2, -1]])
    tiling = Tiling(cells, cells, (1, 3), (1, 3))
    pairs = torch.arange(8.0).reshape(2, 1, 2, 2)
    assert tiling.pairs(pairs, -1.0)[0].tolist() == [[0, 1, -1], [2, 3, -1], [-1, -1, 4]]


def test_pooling_makes_two_grids() -> None:
    assert pooled_grids(PooledAttention(DIM, HEADS, stride_q=2, stride_kv=4), (9, 6)) == ((5, 3), (3, 2))
    assert pooled_grids(PooledAttention(DIM, HEADS, kernel=1), (9, 6)) == ((9, 6), (9, 6))
    assert area((9, 6)) == 54
