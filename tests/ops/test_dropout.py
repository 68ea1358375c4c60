"""Dropout: what `F.dropout` is, drawn from fewer bits."""

from __future__ import annotations

import pytest
import torch

from headway.ops.attend import STEPS, drop

MANY = 2**20


@pytest.mark.parametrize("share", [0.001, 0.1, 0.3, 0.5, 0.9, 0.999])
def test_about_the_share_is_left_out(share: float) -> None:
    torch.manual_seed(0)
    lost = (drop(torch.ones(MANY), share) == 0).double().mean().item()
    assert abs(lost - share) < 5 * (share * (1 - share) / MANY) ** 0.5 + 1 / STEPS


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_the_others_make_up_exactly(share: float) -> None:
    """By the share that 16 bits can tell, so that the expectation is x and not nearly x."""
    torch.manual_seed(0)
    y = drop(torch.ones(1000, dtype=torch.float64), share)
    assert set(y.tolist()) == {0.0, 1 / (1 - round(share * STEPS) / STEPS)}


def test_the_gradient_goes_where_the_values_went() -> None:
    torch.manual_seed(0)
    x = torch.rand(7, 5, 3, requires_grad=True)
    y = drop(x + 1, 0.4)
    (slope,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(slope * (x + 1), y)


@pytest.mark.parametrize("apart", [1, 2, 3, 4, 8])
def test_values_that_share_their_bits_do_not_follow_one_another(apart: int) -> None:
    torch.manual_seed(0)
    lost = (drop(torch.ones(MANY), 0.5) == 0).double() - 0.5
    assert abs((lost[apart:] * lost[:-apart]).mean().item()) * 4 < 5 / MANY**0.5


def test_the_generator_decides_alone() -> None:
    def drawn(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return drop(torch.ones(3, 7), 0.5)

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))


def test_nothing_and_everything() -> None:
    x = torch.rand(5)
    assert torch.equal(drop(x, 0.0), x)
    assert torch.equal(drop(x, 1.0), torch.zeros(5))
    assert drop(torch.empty(0, 4), 0.5).shape == (0, 4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_type_stays(dtype: torch.dtype) -> None:
    assert drop(torch.ones(9, dtype=dtype), 0.5).dtype == dtype
