"""Patches: cut and put together without loss, errors of hidden ones alone, tables laid on grids."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from headway.errors import UserError
from headway.ops.patches import (
    Resample,
    absolute_error,
    bicubic,
    bicubic_smooth,
    exact,
    hidden_mask,
    normalise,
    patchify,
    squared_error,
    unpatchify,
)

few = st.integers(1, 4)


@given(rows=few, cols=few, patch=few, channels=few)
def test_an_image_is_put_together_again(rows: int, cols: int, patch: int, channels: int) -> None:
    image = torch.randn(2, channels, rows * patch, cols * patch)
    patches = patchify(image, patch)
    assert patches.shape == (2, rows * cols, patch * patch * channels)
    assert_close(unpatchify(patches, (rows, cols), patch), image, rtol=0, atol=0)


def test_patches_run_row_by_row_and_their_channels_last() -> None:
    image = torch.arange(2 * 2 * 4).view(1, 2, 2, 4)  # two channels of 2×4 pixels
    assert patchify(image, 2).tolist() == [[[0, 8, 1, 9, 4, 12, 5, 13], [2, 10, 3, 11, 6, 14, 7, 15]]]


def test_a_patch_of_it_is_what_a_convolution_of_that_stride_sees() -> None:
    image, kernel = torch.randn(2, 3, 6, 9), torch.randn(5, 3, 3, 3)
    seen = F.conv2d(image, kernel, stride=3).flatten(2).mT
    assert_close(patchify(image, 3) @ kernel.permute(2, 3, 1, 0).flatten(0, 2), seen, atol=1e-5, rtol=1e-5)


def test_an_image_that_does_not_divide_is_told() -> None:
    with pytest.raises(UserError, match=r"an image of 6×7 does not divide into patches of 3; .*resize it to 6×6"):
        patchify(torch.zeros(1, 1, 6, 7), 3)


def test_normalised_patches_have_mean_0_and_variance_1() -> None:
    patches = normalise(5 + 3 * torch.randn(2, 4, 12))
    assert_close(patches.mean(-1), torch.zeros(2, 4), atol=1e-6, rtol=0)
    assert_close(patches.var(-1), torch.ones(2, 4), atol=1e-4, rtol=0)
    assert normalise(torch.full((1, 1, 12), 7.0)).abs().max() == 0  # of one colour


@pytest.mark.parametrize("error", [squared_error, absolute_error])
def test_only_hidden_patches_count(error: object) -> None:
    assert callable(error)
    said, wanted = torch.randn(2, 4, 3), torch.randn(2, 4, 3)
    hidden = torch.tensor([[True, False, False, True], [False, True, False, False]])
    seen_otherwise = said + torch.randn_like(said) * ~hidden[..., None]
    hidden_otherwise = said + hidden[..., None]
    loss = error(said, wanted, hidden)
    assert_close(error(seen_otherwise, wanted, hidden), loss, rtol=0, atol=0)
    assert not torch.allclose(error(hidden_otherwise, wanted, hidden), loss)
    alone = [error(said[b, n][None, None], wanted[b, n][None, None], hidden[:1, :1]) for b, n in hidden.nonzero()]
    assert_close(torch.stack(alone).sum(), loss)  # a sum over patches, whatever batch they are in


def test_errors_by_hand() -> None:
    said, wanted = torch.tensor([[[1.0, 3.0], [9.0, 9.0]]]), torch.tensor([[[0.0, 0.0], [0.0, 0.0]]])
    hidden = torch.tensor([[True, False]])
    assert squared_error(said, wanted, hidden) == 5  # (1 + 9) / 2
    assert absolute_error(said, wanted, hidden) == 2


def test_what_is_not_visible_is_hidden() -> None:
    hidden = hidden_mask(torch.tensor([[2, 0], [1, 3]]), 4)
    assert hidden.tolist() == [[False, True, False, True], [True, False, True, False]]


@pytest.mark.parametrize("resample", [exact, bicubic, bicubic_smooth])
def test_a_table_on_its_own_grid_is_itself(resample: Resample) -> None:
    table = torch.randn(3, 4, 5)
    assert_close(resample(table, (3, 4)), table, rtol=0, atol=0)


@pytest.mark.parametrize("resample", [bicubic, bicubic_smooth])
@pytest.mark.parametrize("grid", [(6, 2), (2, 9)])
def test_a_table_on_another_grid_tells_rows_from_columns(resample: Resample, grid: tuple[int, int]) -> None:
    rows = torch.arange(4.0)[:, None, None].expand(4, 4, 1)
    down, across = resample(rows, grid)[..., 0], resample(rows.transpose(0, 1), (grid[1], grid[0]))[..., 0]
    assert down.shape == grid
    assert_close(down, across.T)
    assert bool((down.diff(dim=0) > 0).all())
    assert down.diff(dim=1).abs().max() < 1e-5


def test_another_grid_is_refused_where_that_is_asked() -> None:
    with pytest.raises(UserError, match="a grid of 2×3 cells for learned positions of 3×4"):
        exact(torch.zeros(3, 4, 5), (2, 3))
