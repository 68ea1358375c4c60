"""CKA by its definition, and what it does not see: turns and scales."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from headway.errors import UserError
from headway.inspect.layer_similarity import cka_matrix, linear_cka


def by_definition(x: Tensor, y: Tensor) -> float:
    """‖Xᵀ Y‖² / (‖Xᵀ X‖ ‖Yᵀ Y‖), the numbers one by one."""

    def product(a: Tensor, b: Tensor) -> float:
        total = 0.0
        for i in range(a.shape[1]):
            for j in range(b.shape[1]):
                total += sum(float(a[n, i] * b[n, j]) for n in range(len(a))) ** 2
        return total

    x, y = (one.double() - one.double().mean(0) for one in (x, y))
    return product(x, y) / (product(x, x) * product(y, y)) ** 0.5


def test_it_is_the_definition() -> None:
    torch.manual_seed(0)
    x = torch.randn(6, 3)
    y = torch.cat([x[:, :1] + 5, torch.randn(6, 3)], 1)
    assert linear_cka(x, y) == pytest.approx(by_definition(x, y))
    layers = [x, y, torch.randn(6, 2)]
    assert_close(cka_matrix(layers, layers)[0, 2].item(), by_definition(x, layers[2]))


def test_turns_scales_and_shifts_are_not_seen() -> None:
    torch.manual_seed(1)
    x = torch.randn(20, 4)
    turn, _ = torch.linalg.qr(torch.randn(4, 4))
    assert linear_cka(x, 3 * x @ turn + 7) == pytest.approx(1.0)
    assert linear_cka(x, torch.randn(20, 4)) < 0.6


def test_the_matrix_of_a_model_with_itself_is_symmetric() -> None:
    torch.manual_seed(2)
    layers = [torch.randn(9, width) for width in (2, 5, 3)]
    found = cka_matrix(layers, layers)
    assert_close(found, found.mT)
    assert_close(found.diagonal(), torch.ones(3, dtype=torch.float64))


def test_layers_are_of_the_same_samples() -> None:
    with pytest.raises(UserError, match="3 and 4 samples"):
        linear_cka(torch.randn(3, 2), torch.randn(4, 2))
