"""Buckets, slopes, offsets and sinusoids: literal tables, and the published formulas as slow loops."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from headway.errors import UserError
from headway.ops.relative import (
    alibi_slopes,
    decomposed_index,
    grid_offset,
    log_offsets,
    relative_index_2d,
    t5_bucket_backward,
    t5_bucket_both_ways,
)
from headway.ops.rotary import HALVES, sinusoid, sinusoid_2d

sides = st.integers(1, 9)


def run(length: int) -> Tensor:
    return torch.arange(length)[None]


def near(table: Tensor, expected: list[list[float]]) -> None:
    assert_close(table, torch.tensor(expected), atol=5e-5, rtol=0)


class TestT5:
    def test_eight_buckets_backward(self):
        """0 … 3 are exact; 4–5, 6–7, 8–11 and 12 and more share; what stands ahead is 0."""
        distance = -torch.tensor([-3, 0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 16, 99])
        assert t5_bucket_backward(distance, 8, 16).tolist() == [0, 0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 6, 7, 7, 7]

    def test_eight_buckets_both_ways(self):
        """The lower half looks back, the upper half ahead, and both halves have 0 and 1 exact."""
        distance = torch.tensor([-9, -8, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 8, 9])
        assert t5_bucket_both_ways(distance, 8, 8).tolist() == [3, 3, 3, 3, 3, 2, 2, 1, 0, 5, 6, 6, 7, 7, 7, 7, 7]

    def test_edges_of_the_published_table(self):
        """Where the 32 buckets of T5 begin, read off Hugging Face's `_relative_position_bucket`."""
        backward = t5_bucket_backward(-torch.arange(1000), 32, 128)
        both = t5_bucket_both_ways(-torch.arange(1000), 32, 128)
        assert starts(backward) == [*range(17), 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113]
        assert starts(both) == [*range(9), 12, 16, 23, 32, 46, 64, 91]
        assert_close(t5_bucket_both_ways(torch.arange(1, 1000), 32, 128), both[1:] + 16)

    @given(distance=st.integers(-3000, 3000), half=st.integers(2, 40), longest=st.integers(41, 500))
    @example(distance=-40, half=40, longest=42)
    def test_is_the_published_formula(self, distance: int, half: int, longest: int):
        def slow(far: int, buckets: int) -> int:
            exact = buckets // 2
            if far <= exact:
                return far
            share = math.log(far / exact) / math.log(longest / exact) * (buckets - exact)
            assume(far >= longest or abs(share - round(share)) > 1e-4)  # edges are float32's to decide
            return min(exact + math.floor(share), buckets - 1)

        away = torch.tensor(distance)
        assert t5_bucket_backward(away, 2 * half, longest) == slow(max(-distance, 0), 2 * half)
        ahead = half if distance > 0 else 0
        assert t5_bucket_both_ways(away, 2 * half, longest) == slow(abs(distance), half) + ahead

    @pytest.mark.parametrize("bucket", [t5_bucket_backward, t5_bucket_both_ways])
    def test_too_few_buckets_or_too_near(self, bucket):
        with pytest.raises(UserError, match="2 buckets or more"):
            bucket(torch.tensor(0), 1, 128)
        with pytest.raises(UserError, match="longest distance"):
            bucket(torch.tensor(0), 32, 8)


def starts(buckets: Tensor) -> list[int]:
    """The first distance in each bucket, of buckets for distances 0, 1, 2, …"""
    assert (buckets.diff() >= 0).all()
    return [0, *(buckets.diff().nonzero().flatten() + 1).tolist()]


class TestAlibi:
    def test_powers_of_two(self):
        assert alibi_slopes(8).tolist() == [2.0**-i for i in range(1, 9)]
        assert alibi_slopes(1).tolist() == [2.0**-8]

    def test_others_take_every_second_slope_of_the_next_power(self):
        assert_close(alibi_slopes(3), torch.tensor([2**-4, 2**-8, 2**-2]))
        assert_close(alibi_slopes(12), torch.cat((alibi_slopes(8), alibi_slopes(16)[0::2][:4])))

    @given(heads=st.integers(1, 200))
    def test_slopes_differ(self, heads: int):
        slopes = alibi_slopes(heads)
        assert len(slopes) == len(slopes.unique()) == heads
        assert ((slopes > 0) & (slopes < 1)).all()

    def test_no_heads(self):
        with pytest.raises(UserError, match="heads=0"):
            alibi_slopes(0)


class TestGrids:
    def test_offsets_in_a_grid_of_two_rows_and_three_columns(self):
        dy, dx = grid_offset(torch.tensor([[0, 5]]), run(6), 3)
        assert dy.tolist() == [[[0, 0, 0, -1, -1, -1], [1, 1, 1, 0, 0, 0]]]
        assert dx.tolist() == [[[0, -1, -2, 0, -1, -2], [2, 1, 0, 2, 1, 0]]]

    def test_index_in_a_window_of_two_by_two(self):
        """Nine offsets; 4 is the middle, a cell to itself."""
        expected = [[4, 3, 1, 0], [5, 4, 2, 1], [7, 6, 4, 3], [8, 7, 5, 4]]
        assert relative_index_2d(run(4), run(4), (2, 2)).tolist() == [expected]

    @given(rows=sides, cols=sides)
    def test_equal_index_is_equal_offset_and_all_are_used(self, rows: int, cols: int):
        index = relative_index_2d(run(rows * cols), run(rows * cols), (rows, cols))[0]
        dy, dx = grid_offset(run(rows * cols), run(rows * cols), cols)
        pairs = set(zip(index.flatten().tolist(), dy.flatten().tolist(), dx.flatten().tolist(), strict=True))
        assert sorted(i for i, _, _ in pairs) == list(range((2 * rows - 1) * (2 * cols - 1)))

    def test_log_offsets_of_two_by_three(self):
        end, mid = math.log2(9) / 3, math.log2(5) / 3
        expected = [[dy, dx] for dy in (-end, 0.0, end) for dx in (-end, -mid, 0.0, mid, end)]
        assert_close(log_offsets((2, 3)), torch.tensor(expected))

    @pytest.mark.slow
    @given(rows=sides, cols=sides, then=st.tuples(sides, sides) | st.none())
    def test_log_offsets_lie_where_relative_index_looks(self, rows: int, cols: int, then: tuple[int, int] | None):
        cells = run(rows * cols)
        table = log_offsets((rows, cols), then)[relative_index_2d(cells, cells, (rows, cols))[0]]
        for axis, offset in enumerate(grid_offset(cells, cells, cols)):
            share = 8 * offset[0].double() / max((then or (rows, cols))[axis] - 1, 1)
            assert_close(table[..., axis].double(), share.sign() * (1 + share.abs()).log2() / 3, atol=1e-6, rtol=0)

    def test_decomposed_index_by_hand(self):
        assert decomposed_index(2, 2).tolist() == [[1, 0], [2, 1]]
        assert decomposed_index(4, 2).tolist() == [[2, 0], [3, 1], [4, 2], [5, 3]]  # keys at 0 and 2
        assert decomposed_index(2, 4).tolist() == [[3, 2, 1, 0], [5, 4, 3, 2]]  # queries at 0 and 2

    @given(q_len=st.integers(1, 60), k_len=st.integers(1, 60))
    def test_decomposed_index_fits_its_table_and_keeps_order(self, q_len: int, k_len: int):
        index = decomposed_index(q_len, k_len)
        assert index.shape == (q_len, k_len)
        assert index.min() >= 0
        assert index.max() <= 2 * max(q_len, k_len) - 2
        assert (index.diff(dim=0) >= 0).all()
        assert (index.diff(dim=1) <= 0).all()

    @given(coarse=st.integers(1, 12), stride=st.integers(1, 5))
    def test_decomposed_index_of_pooled_keys_or_queries_is_a_stride_of_the_full_one(self, coarse: int, stride: int):
        fine = coarse * stride
        full = decomposed_index(fine, fine)
        assert torch.equal(decomposed_index(coarse, fine), full[::stride])
        # pooled keys count from their own last, which stands `stride − 1` before the end
        assert torch.equal(decomposed_index(fine, coarse), full[:, ::stride] - (stride - 1))


class TestSinusoid:
    def test_the_paper(self):
        """sin and cos in turn, of p and of p / 100."""
        expected = [[0, 1, 0, 1], [0.8415, 0.5403, 0.01, 0.99995], [0.9093, -0.4161, 0.02, 0.9998]]
        near(sinusoid(torch.arange(3), 4), expected)

    def test_fairseq(self):
        """sines first, of p and of p / 10 000."""
        near(
            sinusoid(torch.tensor([1, 100]), 4, layout=HALVES, steps=1),
            [[0.8415, 0.0001, 0.5403, 1.0], [-0.5064, 0.01, 0.8623, 0.99995]],
        )

    @pytest.mark.slow
    @given(position=st.integers(-2000, 2000), half=st.integers(2, 32), fewer=st.integers(0, 1))
    def test_is_the_formula(self, position: int, half: int, fewer: int):
        steps = half - fewer
        angles = [position / 10_000 ** (i / steps) for i in range(half)]
        expected = torch.tensor([f(angle) for angle in angles for f in (math.sin, math.cos)])
        assert_close(sinusoid(torch.tensor(position), 2 * half, steps=steps), expected, atol=1e-3, rtol=0)

    @given(dim=st.sampled_from([16, 32, 64, 128]), base=st.sampled_from([1000.0, 10_000.0]))
    def test_positions_differ_and_drift_apart(self, dim: int, base: float):
        table = sinusoid(torch.arange(200), dim, base)
        apart = torch.cdist(table, table, compute_mode="donot_use_mm_for_euclid_dist")
        assert apart[~torch.eye(200, dtype=torch.bool)].min() > 0.5
        by_distance = torch.stack([apart.diagonal(step).mean() for step in range(4)])
        assert (by_distance.diff() > 0.1).all()

    def test_distance_is_the_same_everywhere(self):
        table = sinusoid(torch.arange(50), 32)
        apart = torch.cdist(table, table, compute_mode="donot_use_mm_for_euclid_dist")
        for step in range(1, 50):
            assert_close(apart.diagonal(step), apart[0, step].expand(50 - step), atol=1e-4, rtol=0)

    def test_a_grid_of_two_by_two(self):
        """sin y, cos y, sin x, cos x."""
        near(
            sinusoid_2d(2, 2, 4),
            [[0, 1, 0, 1], [0, 1, 0.8415, 0.5403], [0.8415, 0.5403, 0, 1], [0.8415, 0.5403, 0.8415, 0.5403]],
        )

    @given(rows=sides, cols=sides)
    def test_grid_halves_are_lines(self, rows: int, cols: int):
        table = sinusoid_2d(rows, cols, 16).reshape(rows, cols, 2, 8)
        assert torch.equal(table[:, 0, 0], sinusoid(torch.arange(rows), 8, layout=HALVES))
        assert torch.equal(table[0, :, 1], sinusoid(torch.arange(cols), 8, layout=HALVES))
        assert torch.equal(table[:, :, 0], table[:, :1, 0].expand(rows, cols, 8))
        assert torch.equal(table[:, :, 1], table[:1, :, 1].expand(rows, cols, 8))

    def test_widths_that_cannot_be(self):
        for wrong in (lambda: sinusoid(torch.arange(3), 5), lambda: sinusoid(torch.arange(3), 2, steps=0)):
            with pytest.raises(UserError, match="even dim"):
                wrong()
        with pytest.raises(UserError, match="multiple of 4"):
            sinusoid_2d(2, 2, 6)


@pytest.mark.slow
def test_compiles_in_one_graph():
    def everything(position: Tensor) -> list[Tensor]:
        distance = position[:, None, :] - position[:, :, None]
        return [
            t5_bucket_both_ways(distance),
            t5_bucket_backward(distance),
            alibi_slopes(6),
            relative_index_2d(position, position, (2, 3)),
            log_offsets((2, 3), (4, 4)),
            decomposed_index(6, 3),
            sinusoid(position, 8),
            sinusoid_2d(2, 3, 8),
        ]

    torch._dynamo.reset()
    assert_close(torch.compile(everything, fullgraph=True, backend="eager")(run(6)), everything(run(6)))
