"""Maps as tiles: encoded by whole rows, pooled by their largest, and never whole in memory."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from headway.look import tiles
from headway.look.tiles import THUMB_LEVELS, TiledMap, TileLevel, max_pool, tile_levels
from headway.look.weight_codes import HIDDEN, STRONGEST, EncodedRows, encode_rows
from headway.ops.attention_map import Band, Readable, Weights
from tests.look.recordings import weights


def test_the_largest_of_a_block_stands_for_it() -> None:
    cells = torch.tensor([[[1.0, 2, 3, 4, 5], [6, 7, 8, 9, 1], [0, 0, 0, 0, 9]]])
    assert max_pool(cells, 2, 2).tolist() == [[[7, 9, 5], [0, 0, 9]]]
    assert max_pool(cells, 3, 5).tolist() == [[[9]]]
    assert max_pool(cells, 1, 1).equal(cells)


def test_a_thin_diagonal_survives() -> None:
    thumbs = TiledMap(Weights(torch.eye(1000)[None, None]), 512).thumbs
    assert max(thumbs.shape[1:]) <= 24
    assert (thumbs[0].diagonal() == THUMB_LEVELS + 1).all()


@pytest.mark.parametrize(
    ("rows", "columns", "side", "scales"),
    [
        (1, 1, 512, [1]),
        (512, 512, 512, [1]),
        (513, 5, 512, [1, 2]),
        (1024, 1024, 256, [1, 4]),
        (2048, 2048, 256, [1, 4, 8]),
        (4096, 4096, 256, [1, 4, 16]),
        (7, 4097, 256, [1, 4, 16, 32]),
    ],
)
def test_levels_end_where_the_map_fits(rows: int, columns: int, side: int, scales: list[int]) -> None:
    found = tile_levels(rows, columns, side)
    assert [level.scale for level in found] == scales
    assert found[0].shape == (rows, columns)
    assert max(found[-1].shape) <= side


def test_tiles_lie_row_by_row() -> None:
    level = TileLevel(1, (300, 600))
    assert level.tiles == (2, 3)
    assert list(level.places()) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]


class Counted(Readable):
    """A map that knows the most weights that were ever asked of it at once."""

    def __init__(self, values: Tensor):
        self.values, self.most = values, 0

    @property
    def shape(self) -> tuple[int, int, int, int]:
        batch, heads, rows, columns = self.values.shape
        return batch, heads, rows, columns

    def band(self, first: int, last: int) -> Band:
        self.most = max(self.most, self.values[:, :, first:last].numel())
        return Band(first, last, torch.arange(self.shape[3]), self.values[:, :, first:last])


@pytest.mark.parametrize("cells", [200, 1000, 2**23])
def test_tiles_of_all_levels_are_the_map(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However small the bands are, in tiles that do not fit the map evenly."""
    monkeypatch.setattr(tiles, "CELLS", cells)
    monkeypatch.setattr(tiles, "TILE", 8)
    given = weights(3, 37, 70)
    tiled = TiledMap(Weights(given), 20)
    assert [level.scale for level in tiled.levels] == [1, 4]
    for number, level in enumerate(tiled.levels):
        whole = encode_rows(max_pool(given[0], level.scale, level.scale), STRONGEST)
        assert whole.codes.shape[1:] == level.shape
        for i, j in level.places():
            assert same(tiled.tile(number, i, j), rows_of(whole, i).columns(j * 8, (j + 1) * 8))


def rows_of(whole: EncodedRows, i: int) -> EncodedRows:
    rows = slice(i * 8, (i + 1) * 8)
    return EncodedRows(whole.codes[:, rows], whole.decimals[:, rows], whole.floors[:, rows])


def same(one: EncodedRows, other: EncodedRows) -> bool:
    return all((a == b).all() for a, b in zip(one, other, strict=True))


class Sparse(Counted):
    """A map whose bands name only some keys: every `step`-th from `start` on."""

    def __init__(self, values: Tensor, start: int, step: int):
        self.keys = torch.arange(start, values.shape[3], step)
        seen = torch.full_like(values, HIDDEN)
        seen[..., self.keys] = values[..., self.keys]
        super().__init__(seen)

    def band(self, first: int, last: int) -> Band:
        return Band(first, last, self.keys, self.values[:, :, first:last, self.keys])


@pytest.mark.parametrize(("start", "step"), [(0, 1), (5, 1), (8, 1), (69, 1), (70, 1), (3, 2)])
def test_keys_that_no_row_sees_are_hidden(start: int, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "TILE", 8)
    sparse = Sparse(weights(2, 20, 70), start, step)
    tiled = TiledMap(sparse, 20)
    for number, level in enumerate(tiled.levels):
        whole = encode_rows(max_pool(sparse.values[0], level.scale, level.scale), STRONGEST)
        for i in range(level.tiles[0]):
            assert same(tiled.strip(number, i), rows_of(whole, i))


def test_masked_keys_are_hidden_and_blocks_of_them() -> None:
    given, keep = weights(1, 40, 40), torch.ones(1, 40, 40, dtype=torch.bool).tril()
    tiled = TiledMap(Weights(given, keep), 20)
    assert (tiled.tile(0, 0, 0).codes[0] == 0).tolist() == (~keep[0]).tolist()
    assert (tiled.tile(1, 0, 0).codes[0] == 0).tolist() == (~torch.ones(20, 20, dtype=torch.bool).tril()).tolist()
    assert (tiled.thumbs[0] == 0).any()


@pytest.mark.parametrize("held", [1_000, 2**24])
def test_coarse_levels_are_made_of_finer_ones_or_of_the_map(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same either way; in little memory, the map is asked again."""
    monkeypatch.setattr(tiles, "MAX_CACHED_LEVEL", held)
    given = weights(1, 150, 150)
    tiled = TiledMap(Weights(given), 20)
    assert [level.scale for level in tiled.levels] == [1, 4, 8]
    assert tiled.is_cached(1) is (held > 1_000)
    for number in (2, 1, 0):
        scale = tiled.levels[number].scale
        assert same(tiled.tile(number, 0, 0), encode_rows(max_pool(given[0], scale, scale), STRONGEST))


@pytest.mark.slow
def test_a_long_map_is_never_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "CELLS", 20_000)
    counted = Counted(weights(4, 600, 600))
    tiled = TiledMap(counted, 64)
    assert tiled.thumbs.shape == tiled.thumbs_shape == (4, 19, 19)
    for number, level in enumerate(tiled.levels):
        for i, j in level.places():
            tiled.tile(number, i, j)
    # a band of 16 rows, of which each cell of the coarsest level is made, is the least that can be had
    assert counted.most <= max(20_000, 4 * 16 * 600)


def test_a_strip_serves_all_its_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    tiled = TiledMap(Weights(weights(1, 10, 600)), 2**20)
    for j in range(3):
        assert tiled.tile(0, 0, j).codes.shape == (1, 10, min(256, 600 - j * 256))
    assert tiled.strip.cache_info().misses == 1


def test_one_piece_may_hold_all_heads_of_a_small_map() -> None:
    assert TiledMap(Weights(weights(2, 256, 256)), 512).whole
    assert not TiledMap(Weights(weights(2, 256, 257)), 512).whole
