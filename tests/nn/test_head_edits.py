"""A head is switched off, made uniform, or left alone; all others, and what is hidden, stay as they were."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from headway import record
from headway.nn.attention import SelfAttention
from headway.nn.trace import Off, Only, Uniform
from headway.ops.pattern import Causal


@pytest.fixture
def weights() -> Tensor:
    """Causal weights of three heads, and a query that sees nothing: 2 3 4 4."""
    drawn = torch.rand(2, 3, 4, 4, generator=torch.Generator().manual_seed(1)).tril()
    drawn = drawn / drawn.sum(-1, keepdim=True)
    drawn[1, :, 2] = 0
    return drawn


def test_a_head_is_off(weights: Tensor) -> None:
    edited = Off()(1)(weights)
    assert edited[:, 1].eq(0).all()
    assert torch.equal(edited[:, [0, 2]], weights[:, [0, 2]])


def test_a_head_is_uniform_over_what_it_may_see(weights: Tensor) -> None:
    edited = Uniform()(2)(weights)
    assert edited[0, 2].tolist()[1] == [0.5, 0.5, 0, 0]
    assert_close(edited[0, 2].sum(-1), torch.ones(4))
    assert edited[1, 2, 2].eq(0).all()
    assert torch.equal(edited[:, :2], weights[:, :2])


def test_a_head_is_left_alone(weights: Tensor) -> None:
    edited = Only()(0)(weights)
    assert torch.equal(edited[:, 0], weights[:, 0])
    assert edited[:, 1:].eq(0).all()


@pytest.mark.parametrize("how", [Off(), Uniform(), Only()])
def test_an_edit_gives_new_weights_of_the_same_kind(how: Off | Uniform | Only, weights: Tensor) -> None:
    before = weights.clone()
    edited = how(0)(weights.double())
    assert (edited.shape, edited.dtype) == (weights.shape, torch.float64)
    assert torch.equal(weights, before)
    assert how == type(how)()


def test_all_heads_but_one_off_is_that_one_alone() -> None:
    model, x = SelfAttention(16, 4, pattern=Causal()), torch.randn(2, 5, 16)

    def others(weights: Tensor) -> Tensor:
        for head in (0, 1, 3):
            weights = Off()(head)(weights)
        return weights

    with record(model, edit={"weights": others}):
        expected = model(x)
    with record(model, edit={"weights": Only()(2)}):
        assert_close(model(x), expected)
