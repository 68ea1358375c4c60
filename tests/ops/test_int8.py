"""Linear layers in int8: the definition by hand, its fast evaluation bit for bit, and how far both are from float32."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from headway.ops.int8 import PackedInt8, has_int8_kernel, int8_linear, int8_product, quantise_channels, quantise_rows
from tests.laws.subjects import cases

needs_kernel = pytest.mark.skipif(not has_int8_kernel(), reason="needs fbgemm")


def drawn(*shape: int, seed: int) -> Tensor:
    """Numbers as activations are: most small, a few large."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).pow(3)


def test_a_layer_by_hand() -> None:
    weight, scale = torch.tensor([[127, -64], [0, 10]], dtype=torch.int8), torch.tensor([0.5, 2.0])
    # s = 2 / 127 for the row (1, -2): q = (64, -127); the row of zeros stays 0
    x, s = torch.tensor([[1.0, -2.0], [0.0, 0.0]]), 2 / 127
    expected = torch.tensor([[0.5 * (127 * 64 + 64 * 127) * s + 1, 2.0 * -1270 * s - 1], [1.0, -1.0]])
    assert_close(int8_linear(x, weight, scale, torch.tensor([1.0, -1.0])), expected)


@pytest.mark.parametrize(
    "weight", [drawn(9, 7, seed=1), torch.ones(3, 6), torch.tensor([[3.0, 0, 0, -2, 1]]), torch.zeros(2, 3)]
)
def test_weights_are_rounded_and_pairs_stay_in_16_bits(weight: Tensor) -> None:
    quantised, scale = quantise_channels(weight)
    assert ((quantised * scale[:, None] - weight).abs() <= scale[:, None] * 0.5001).all()
    pairs = torch.nn.functional.pad(quantised.int(), (0, weight.shape[1] % 2)).unflatten(1, (-1, 2))
    assert int(pairs.clamp(min=0).sum(-1).max()) <= 128
    assert int((-pairs).clamp(min=0).sum(-1).max()) <= 128
    lone = torch.tensor([[5.0, 0.0, 0.0, -5.0]])  # no neighbours of like sign: all 127 steps are used
    assert quantise_channels(lone)[0].tolist() == [[127, 0, 0, -127]]


@needs_kernel
@cases(20)
@given(st.integers(1, 70), st.integers(1, 140), st.integers(0, 40), st.sampled_from(["drawn", "signs", "ones"]))
def test_the_kernel_gives_the_same_bits(outputs: int, inputs: int, rows: int, kind: str) -> None:
    """Also where all weights and activations are as large as they can be, which saturates 16 bits if any does."""
    weight, x = drawn(outputs, inputs, seed=2), drawn(rows, inputs, seed=3)
    if kind != "drawn":
        weight, x = (t.sign() if kind == "signs" else torch.ones_like(t) for t in (weight, x))
    quantised, scale = quantise_channels(weight)
    q, _ = quantise_rows(x)
    assert torch.equal(PackedInt8(quantised, scale)(q), int8_product(q, quantised, scale))


def test_the_error_is_that_of_rounding() -> None:
    weight, x = drawn(40, 96, seed=4), drawn(5, 96, seed=5)
    quantised, scale = quantise_channels(weight)
    _, row_scale = quantise_rows(x)
    error = (int8_linear(x, quantised, scale) - x @ weight.mT).abs()
    # |q s − x| ≤ s / 2 in each activation, and the same in each weight
    limit = (
        row_scale / 2 * weight.abs().sum(1) + x.abs().sum(1, keepdim=True) * scale / 2
    ) + 96 * row_scale * scale / 4
    assert (error <= limit * 1.0001).all()
    assert (error > limit / 100).any()


def test_a_row_depends_on_nothing_but_itself() -> None:
    weight, x = drawn(30, 64, seed=6), drawn(9, 64, seed=7)
    quantised, scale = quantise_channels(weight)
    loud = torch.cat([x[:1], 1e4 * x[1:]])  # one scale for all would leave nothing of the first row
    assert torch.equal(int8_linear(loud, quantised, scale)[0], int8_linear(x[:1], quantised, scale)[0])
