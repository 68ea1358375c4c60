"""Windows and haloed tiles: literal 4×4 examples, and brute force from coordinates for every size."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from headway.errors import UserError
from headway.ops.window import Halo, Windows

sides = st.integers(1, 9)
halos = st.builds(Halo, size=st.sampled_from([1, 3, 5, 7]), tile=st.integers(1, 5))


@st.composite
def windows(draw: st.DrawFn) -> Windows:
    rows, cols = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    return Windows(rows, cols, draw(st.integers(0, rows - 1)), draw(st.integers(0, cols - 1)))


def image(Y: int, X: int, batch: int = 2) -> Tensor:
    return torch.arange(1, batch * Y * X * 3 + 1).float().reshape(batch, Y, X, 3)


class TestWindows:
    def test_cells_of_four_by_four(self):
        assert Windows(2, 2).cells(4, 4).tolist() == [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]
        # up and left by one: the first window starts at (1, 1), the last holds the four corners
        shifted = [[5, 6, 9, 10], [7, 4, 11, 8], [13, 14, 1, 2], [15, 12, 3, 0]]
        assert Windows(2, 2, 1, 1).cells(4, 4).tolist() == shifted

    def test_keep_of_four_by_four(self):
        assert Windows(2, 2).keep(4, 4) is None
        keep = Windows(2, 2, 1, 1).keep(4, 4)
        assert keep is not None
        left_from_right = [[1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1]]
        top_from_bottom = [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]
        expected = torch.tensor([torch.ones(4, 4).tolist(), left_from_right, top_from_bottom, torch.eye(4).tolist()])
        assert torch.equal(keep, expected.bool())

    def test_padding_of_three_by_three(self):
        assert Windows(2, 2).cells(3, 3).tolist() == [[0, 1, 3, 4], [2, -1, 5, -1], [6, 7, -1, -1], [8, -1, -1, -1]]
        keep = Windows(2, 2).keep(3, 3)
        assert keep is not None
        assert keep[1, [0, 2]].int().tolist() == [[1, 0, 1, 0], [1, 0, 1, 0]]

    @pytest.mark.slow
    @given(window=windows(), Y=sides, X=sides)
    def test_merge_mends_what_partition_cuts(self, window: Windows, Y: int, X: int):
        x = image(Y, X)
        cut = window.partition(x)
        assert cut.shape == (2 * len(window.cells(Y, X)), window.rows * window.cols, 3)
        assert torch.equal(window.merge(cut, (Y, X)), x)

    @given(window=windows(), Y=sides, X=sides)
    def test_partition_puts_cells_where_cells_says(self, window: Windows, Y: int, X: int):
        x, cells = image(Y, X), window.cells(Y, X)
        rows = torch.cat((x.flatten(1, 2), torch.zeros(2, 1, 3)), 1)  # cell −1 is the row of zeros
        assert torch.equal(window.partition(x), rows[:, cells].flatten(0, 1))
        assert sorted(cells[cells >= 0].tolist()) == list(range(Y * X))

    @pytest.mark.slow
    @given(window=windows(), Y=sides, X=sides)
    def test_keep_is_the_shifted_window_in_the_flat_plane(self, window: Windows, Y: int, X: int):
        def tile(cell: int) -> tuple[int, int]:  # tiles that start at (shift, shift), with no rolling
            y, x = divmod(cell, X)
            return (y - window.shift_rows) // window.rows, (x - window.shift_cols) // window.cols

        keep = window.keep(Y, X)
        for n, cells in enumerate(window.cells(Y, X).tolist()):
            for i, q in enumerate(cells):
                if q < 0:
                    assert keep is not None
                    assert keep[n, i].any()  # padding is nobody's answer, but its softmax is finite
                    continue
                expected = [k >= 0 and tile(k) == tile(q) for k in cells]
                assert (keep[n, i].tolist() if keep is not None else [True] * len(cells)) == expected
                assert expected.count(True) == sum(tile(k) == tile(q) for k in range(Y * X))

    @given(window=windows(), Y=sides, X=sides)
    def test_fit_is_swins_rule(self, window: Windows, Y: int, X: int):
        fitted = window.fit(Y, X)
        assert (fitted.rows, fitted.shift_rows) == ((Y, 0) if window.rows >= Y else (window.rows, window.shift_rows))
        assert (fitted.cols, fitted.shift_cols) == ((X, 0) if window.cols >= X else (window.cols, window.shift_cols))
        assert fitted.fit(Y, X) in (fitted, Windows(fitted.rows, fitted.cols))

    @pytest.mark.parametrize("wrong", [(0, 2), (2, -1), (2, 2, 2, 0), (2, 2, 0, 3), (2, 2, -1, 0)])
    def test_impossible_windows(self, wrong: tuple[int, ...]):
        with pytest.raises(UserError, match="shifts from 0 to window"):
            Windows(*wrong)


class TestHalo:
    def test_three_by_three_in_tiles_of_two(self):
        """The first tile of a 4×4 grid: queries 0 1 4 5, and the same with a border of one."""
        halo = Halo(size=3, tile=2)
        assert halo.cells(4, 4)[0].reshape(4, 4).tolist() == [
            [-1, -1, -1, -1],
            [-1, 0, 1, 2],
            [-1, 4, 5, 6],
            [-1, 8, 9, 10],
        ]
        corner, inner = halo.keep(4, 4)[0, [0, 3]].reshape(2, 4, 4).int().tolist()
        assert corner == [[0, 0, 0, 0], [0, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 0]]
        assert inner == [[0, 0, 0, 0], [0, 1, 1, 1], [0, 1, 1, 1], [0, 1, 1, 1]]
        assert halo.offsets()[0].reshape(4, 4).tolist() == [[0, 1, 2, 2], [3, 4, 5, 5], [6, 7, 8, 8], [6, 7, 8, 8]]

    @given(halo=halos, Y=sides, X=sides)
    def test_merge_mends_what_queries_cuts(self, halo: Halo, Y: int, X: int):
        assert torch.equal(halo.merge(halo.queries(image(Y, X)), (Y, X)), image(Y, X))

    @given(halo=halos, Y=sides, X=sides)
    def test_keys_are_where_cells_says(self, halo: Halo, Y: int, X: int):
        x, cells = image(Y, X), halo.cells(Y, X)
        rows = torch.cat((x.flatten(1, 2), torch.zeros(2, 1, 3)), 1)
        assert torch.equal(halo.keys(x), rows[:, cells].flatten(0, 1))
        assert cells.shape == (len(halo.queries(x)) // 2, (halo.tile + halo.size - 1) ** 2)

    @pytest.mark.slow
    @given(halo=halos, Y=sides, X=sides)
    def test_each_query_sees_its_neighbours_and_knows_which(self, halo: Halo, Y: int, X: int):
        keep, offsets, reach = halo.keep(Y, X), halo.offsets(), halo.size // 2
        assert offsets.min() >= 0
        assert offsets.max() < halo.size**2
        assert keep.any(-1).all()  # padding too: its softmax is finite
        query_cells, key_cells = halo.tiles.cells(Y, X), halo.cells(Y, X)
        for n, i in (query_cells >= 0).nonzero().tolist():
            q, seen = int(query_cells[n, i]), keep[n, i]
            found = dict(zip(key_cells[n, seen].tolist(), offsets[i, seen].tolist(), strict=True))
            assert len(found) == seen.sum()
            assert found == {
                (q // X + dy) * X + q % X + dx: (dy + reach) * halo.size + dx + reach
                for dy in range(-reach, reach + 1)
                for dx in range(-reach, reach + 1)
                if 0 <= q // X + dy < Y and 0 <= q % X + dx < X
            }

    def test_attention_by_tiles_is_attention_over_neighbourhoods(self):
        """softmax over the halo's keys equals the dense one in which far cells are hidden; so do its gradients."""
        Y, X, halo = 5, 7, Halo(size=3, tile=3)
        x = torch.randn(2, Y, X, 4, dtype=torch.float64, requires_grad=True)
        cell = torch.arange(Y * X)
        dy, dx = (cell // X)[:, None] - cell // X, (cell % X)[:, None] - cell % X
        flat = x.flatten(1, 2)
        dense = (flat @ flat.mT).masked_fill((dy.abs() > 1) | (dx.abs() > 1), float("-inf")).softmax(-1) @ flat
        logits = (halo.queries(x) @ halo.keys(x).mT).masked_fill(~halo.keep(Y, X).repeat(2, 1, 1), float("-inf"))
        tiled = halo.merge(logits.softmax(-1) @ halo.keys(x), (Y, X)).flatten(1, 2)
        assert_close(tiled, dense)
        assert_close(*(torch.autograd.grad(y.square().sum(), x) for y in (tiled, dense)))

    @pytest.mark.parametrize("wrong", [(2, 4), (0, 4), (-1, 4), (3, 0)])
    def test_impossible_halos(self, wrong: tuple[int, int]):
        with pytest.raises(UserError, match="odd size"):
            Halo(*wrong)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(4, 4), (5, 7)])
def test_compiles_in_one_graph(size: tuple[int, int]):
    def everything(x: Tensor) -> list[Tensor | None]:
        window, halo = Windows(2, 2, 1, 0).fit(*size), Halo(3, 2)
        cut = window.merge(window.partition(x), size), halo.merge(halo.queries(x), size), halo.keys(x)
        return [*cut, window.keep(*size), window.cells(*size), halo.keep(*size), halo.offsets()]

    torch._dynamo.reset()
    x = image(*size)
    assert_close(torch.compile(everything, fullgraph=True, backend="eager")(x), everything(x))
