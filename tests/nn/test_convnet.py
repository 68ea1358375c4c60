"""Convolutions on grids are torch's with the channels last; local relations are attention among neighbours.

Axes:  B batch   Y X rows and columns of the grid   C width   H maps
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from headway.errors import UserError
from headway.nn.convnet import GridConv, MaxPool, Normed, Stem, no_activation
from headway.nn.window_attention import LocalRelation
from tests.laws.subjects import cases

grids = st.tuples(st.integers(1, 9), st.integers(1, 9))


def first(x: Tensor) -> Tensor:
    """B Y X C → B C Y X"""
    return x.movedim(-1, 1)


@cases(30)
@given(grid=grids, kernel=st.sampled_from([1, 3, 7]), stride=st.integers(1, 3), channels=st.sampled_from([1, 3, 8]))
def test_a_convolution_is_torchs_and_halves_as_it_says(
    grid: tuple[int, int], kernel: int, stride: int, channels: int
) -> None:
    conv, x = GridConv(channels, 5, kernel, stride=stride, bias=True).double(), torch.randn(2, *grid, channels).double()
    expected = F.conv2d(first(x).contiguous(), conv.weight, conv.bias, stride, kernel // 2)
    assert conv(x).shape == (2, -(-grid[0] // stride), -(-grid[1] // stride), 5)
    assert_close(first(conv(x)), expected)
    assert_close(first(conv(first(x).contiguous().movedim(1, -1))), expected)  # as images lie in memory


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [1, 3])
def test_a_strided_convolution_of_few_channels_has_the_right_gradients(kernel: int) -> None:
    conv, x = GridConv(4, 8, kernel, stride=2).double(), torch.randn(1, 5, 4, 4).double().requires_grad_()
    for _ in range(20):  # torch's own writes beyond its memory, which one call may survive
        conv(x).sum().backward()
    assert torch.autograd.gradcheck(lambda x, _: conv(x), (x, conv.weight))


@cases(10)
@given(grid=grids)
def test_pooling_is_torchs(grid: tuple[int, int]) -> None:
    x = torch.randn(2, *grid, 3)
    assert_close(first(MaxPool()(x)), F.max_pool2d(first(x), 3, 2, 1))


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_of_a_grid_is_that_of_images(training: bool) -> None:
    ours, theirs, x = Normed(nn.Identity(), 3), nn.BatchNorm2d(3), torch.randn(4, 5, 2, 3)
    ours.body = GridConv(3, 3, 1)
    nn.init.eye_(ours.body.weight[..., 0, 0])
    ours.train(training)
    theirs.train(training)
    assert_close(first(ours(x)), theirs(first(x)).relu())
    assert_close(dict(ours.norm.named_buffers()), dict(theirs.named_buffers()))


def brute(model: LocalRelation, x: Tensor, share: int) -> Tensor:
    """Cell by cell, channel by channel, as the paper has it."""
    (B, Y, X, C), r, s = x.shape, model.size // 2, model.stride
    q, k, v = model.q(x), model.k(x), F.linear(x, model.v.weight)
    y = torch.zeros(B, -(-Y // s), -(-X // s), C, dtype=x.dtype)
    for row, col, channel in ((a, b, c) for a in range(0, Y, s) for b in range(0, X, s) for c in range(C)):
        rows, cols = range(max(row - r, 0), min(row + r + 1, Y)), range(max(col - r, 0), min(col + r + 1, X))
        near, head = [(a, b) for a in rows for b in cols], channel // share
        logits = torch.stack([q[:, row, col, head] * k[:, a, b, head] for a, b in near], 1)
        if model.grid_bias is not None:
            table = model.grid_bias.table  # type: ignore[attr-defined]
            logits = logits + torch.stack([table[(a - row + r) * model.size + b - col + r, head] for a, b in near])
        values = torch.stack([v[:, a, b, channel] for a, b in near], 1)
        y[:, row // s, col // s, channel] = (logits.softmax(1) * values).sum(1)
    return y


@pytest.mark.parametrize("prior", [False, True])
@pytest.mark.parametrize(("dim", "stride"), [(6, 1), (5, 1), (5, 2)])
def test_a_local_relation_is_the_papers(dim: int, stride: int, prior: bool) -> None:
    model = LocalRelation(dim, 3, share=2, stride=stride, prior=prior).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    x = torch.randn(2, 4, 5, dim).double()
    assert_close(model(x), brute(model, x, 2))


def test_where_nothing_is_alike_neighbours_are_averaged() -> None:
    """Queries of 0 look at all neighbours alike: at a corner of 2×2 cells, at an edge of 2×3."""
    model = LocalRelation(1, 3)
    nn.init.zeros_(model.q.weight)
    nn.init.ones_(model.v.weight)
    x = torch.arange(9.0).view(1, 3, 3, 1)
    expected = [[2.0, 2.5, 3.0], [3.5, 4.0, 4.5], [5.0, 5.5, 6.0]]
    assert_close(model(x)[0, ..., 0], torch.tensor(expected))


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (
            lambda: Stem(3, GridConv(3, 4, 3))(torch.zeros(2, 1, 5, 5)),
            "images are 2×1×5×5; allowed: B 3 H W, of one pixel or more",
        ),
        (lambda: Stem(1)(torch.zeros(2, 1, 0, 5)), "images are 2×1×0×5; allowed: B 1 H W, of one pixel or more"),
        (
            lambda: GridConv(3, 4, 2),
            "GridConv(kernel=2, stride=1); allowed: an odd kernel and a stride of 1 or more",
        ),
    ],
)
def test_mistakes_are_told(call: Callable[[], object], told: str) -> None:
    with pytest.raises(UserError) as error:
        call()
    assert str(error.value) == told


def test_no_activation_is_no_change() -> None:
    x = torch.randn(3)
    assert no_activation(x) is x
