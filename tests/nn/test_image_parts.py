"""Parts that families of images needed: each is its formula.

Axes:  B batch   H heads   T tokens   D head width   C width   Y X rows and columns of the grid
"""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

from headway.errors import UserError
from headway.nn.bias import PatchBias
from headway.nn.convnet import GridConv, HalvedGrid
from headway.nn.ffn import ResponseNorm, ResponseNormFFN
from headway.nn.head import DistilledClassifier, MeanPool, Pooler
from headway.nn.image import ClassToken, DistilledClassToken, PatchCells, PatchCentres, UnplacedRegisters
from headway.ops.pattern import Positions
from headway.ops.rotary import GridRotary


def numbers(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(3))


def test_a_grid_turns_half_of_the_pairs_by_y_and_half_by_x() -> None:
    """Base 1: every pair makes a whole turn per unit; a quarter of one is (a, b) → (−b, a)."""
    x = torch.tensor([1.0, 2.0, 3.0, 4.0])[None, None, None]  # pairs (1, 3) and (2, 4)
    turn = GridRotary(4, base=1.0)
    assert_close(turn(x, torch.tensor([[[0.25, 0.0]]])).flatten(), torch.tensor([-3.0, 2.0, 1.0, 4.0]))
    assert_close(turn(x, torch.tensor([[[0.0, 0.25]]])).flatten(), torch.tensor([1.0, -4.0, 3.0, 2.0]))
    slower = GridRotary(8, base=16.0)(torch.ones(1, 1, 1, 8), torch.tensor([[[0.5, 0.0]]])).flatten()
    assert_close(slower[:2], torch.tensor([-1.0, 1 / math.sqrt(2) - 1 / math.sqrt(2)]), atol=1e-6, rtol=0)


@pytest.mark.parametrize("seed", range(3))
def test_only_differences_on_the_grid_count(seed: int) -> None:
    draw, turn = torch.Generator().manual_seed(seed), GridRotary(8, base=100.0)
    q, k = torch.randn(2, 1, 1, 1, 8, generator=draw, dtype=torch.float64)
    here, there, step = torch.rand(3, 1, 1, 2, generator=draw)
    products = [(turn(q, here + move) * turn(k, there + move)).sum() for move in (0 * step, step)]
    assert_close(products[0], products[1], atol=1e-5, rtol=0)
    assert_close(turn(q, torch.zeros(1, 1, 2)), q)
    assert_close(turn(q, here).norm(), q.norm(), atol=1e-5, rtol=0)


def test_a_width_without_pairs_for_both_axes_is_refused() -> None:
    with pytest.raises(UserError, match="a multiple of 4"):
        GridRotary(6)


def test_patches_stand_at_their_middles() -> None:
    places = PatchCentres(4, 2).eval()(torch.zeros(1, 3, 8, 16))
    rows, cols = (-0.5, 0.5), (-0.75, -0.25, 0.25, 0.75)
    assert places[0].tolist() == [[0, 0], [0, 0], *([y, x] for y in rows for x in cols)]


def test_training_stretches_all_places_alike() -> None:
    part, images = PatchCentres(4, 1, stretch=2.0), torch.zeros(1, 3, 8, 16)
    still, moved = part.eval()(images), part.train()(images)
    factor = moved[0, 1, 0] / still[0, 1, 0]
    assert_close(moved, still * factor)
    assert 0.5 <= factor <= 2
    assert factor != 1
    with pytest.raises(UserError, match="1 or more"):
        PatchCentres(4, 1, stretch=0.5)


def test_tokens_in_front_are_named() -> None:
    for token in (ClassToken(4), DistilledClassToken(4), UnplacedRegisters(4, 3)):
        x = numbers(2, 5, 4)
        assert_close(token(x)[:, len(token.names) :], x)
    assert UnplacedRegisters(4, 2).names == ("[CLS]", "[REG 1]", "[REG 2]")


def test_the_bias_of_a_pair_of_patches() -> None:
    """On its own grid of 2×3: a row of the table for each offset, and three for the class token."""
    bias, q = PatchBias(2, 2, 3), numbers(1, 2, 7, 4)
    at = Positions(PatchCells(1, 1, (2, 3))(torch.zeros(1, 1, 2, 3)))
    got = bias(q, q, at, at)
    cells = [(y, x) for y in range(2) for x in range(3)]
    for i in range(7):
        for j in range(7):
            row = 15 + (2 if i == j else 0 if i == 0 else 1)  # class to patch, patch to class, class to class
            if i and j:
                (qy, qx), (ky, kx) = cells[i - 1], cells[j - 1]
                row = (qy - ky + 1) * 5 + qx - kx + 2
            assert_close(got[0, :, i, j], bias.table[row])
    assert_close(bias(q[:, :, 2:4], q, at.cut(2, 4), at), got[:, :, 2:4])


@pytest.mark.parametrize("grid", [(4, 5), (1, 2), (3, 3)])
def test_offsets_on_other_grids_are_interpolated(grid: tuple[int, int]) -> None:
    """As a table that is stretched to the other grid's offsets."""
    bias, other = PatchBias(2, 2, 3), PatchBias(2, *grid)
    table = bias.table[:-3].T.unflatten(1, (3, 5))[None]
    stretched = F.interpolate(table, (2 * grid[0] - 1, 2 * grid[1] - 1), mode="bilinear")[0].flatten(1).T
    other.table.data = torch.cat([stretched, bias.table[-3:]])
    images, q = torch.zeros(1, 1, *grid), numbers(1, 2, 1 + grid[0] * grid[1], 4)
    of_its_own, of_ours = (Positions(PatchCells(1, 1, one)(images)) for one in (grid, (2, 3)))
    assert_close(bias(q, q, of_ours, of_ours), other(q, q, of_its_own, of_its_own))
    bias(q, q, of_ours, of_ours).square().sum().backward()
    assert bias.table.grad is not None
    assert bias.table.grad.abs().sum() > 0


def test_responses_are_normed_by_their_mean_over_channels() -> None:
    norm, x = ResponseNorm(4), numbers(2, 3, 5, 4)
    assert_close(norm(x), x)  # at first
    norm.weight.data, norm.bias.data = numbers(4), numbers(2, 4)[1]
    length = x.square().sum((1, 2), keepdim=True).sqrt()
    assert_close(norm(x), norm.weight * x * length / (length.mean(-1, keepdim=True) + 1e-6) + norm.bias + x)
    ffn = ResponseNormFFN(4, 4)
    ffn.middle = norm
    assert_close(ffn(x), ffn.down(norm(F.gelu(ffn.up(x)))))


def test_a_depthwise_convolution_sees_one_channel() -> None:
    conv, x = GridConv(3, 3, 7, groups=3, bias=True), numbers(2, 5, 4, 3)
    assert conv.bias is not None
    for channel in range(3):
        only = F.conv2d(x[..., channel][:, None], conv.weight[channel][None], conv.bias[channel][None], padding=3)
        assert_close(conv(x)[..., channel], only[:, 0])


def test_a_grid_is_halved_square_by_square() -> None:
    part = HalvedGrid(3, 4, nn.LayerNorm(3))
    x = numbers(2, 5, 6, 3)
    cell = part.norm(x)[:, 2:4, 4:6]  # B 2 2 C
    expected = torch.einsum("byxc,ocyx->bo", cell, part.conv.weight) + part.conv.bias
    assert part(x).shape == (2, 2, 3, 4)
    assert_close(part(x)[:, 1, 2], expected)
    assert part(x[:, :1, :1]).shape == (2, 1, 1, 4)


def test_two_heads_answer_with_their_mean() -> None:
    head, x = DistilledClassifier(4, 3), numbers(2, 6, 4)
    assert_close(head(x), (head.out(x[:, 0]) + head.distilled(x[:, 1])) / 2)


def test_a_vector_of_patches_is_normed() -> None:
    head, x = Pooler(4, pool=MeanPool(1), inside=nn.LayerNorm(4)), numbers(2, 6, 4)
    assert_close(head(x), F.layer_norm(x[:, 1:].mean(1), (4,)))
