"""Principal directions, against the singular value decomposition."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from headway.ops.principal_components import principal_directions


@pytest.mark.parametrize("shape", [(40, 6), (6, 40), (5, 5), (2, 9)])
def test_directions_are_those_of_the_singular_value_decomposition(shape: tuple[int, int]) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    around = x - x.mean(0)
    found = principal_directions(around, 2)
    _, sizes, expected = torch.linalg.svd(around, full_matrices=False)
    real = int((sizes[:2] > 1e-9).sum())
    assert found.shape[1] >= real
    assert_close((found[:, :real] * expected[:real].mT).sum(0).abs(), torch.ones(real, dtype=torch.float64))
    assert_close(found.norm(dim=0), torch.ones(found.shape[1], dtype=torch.float64))
    assert bool((found.gather(0, found.abs().argmax(0, keepdim=True)) > 0).all())


def test_a_direction_has_one_sign() -> None:
    x = torch.randn(12, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    x = x - x.mean(0)
    assert_close(principal_directions(x, 2), principal_directions(-x, 2))


def test_the_first_direction_by_eye() -> None:
    x = torch.tensor([[-3.0, 0.1], [3.0, -0.1], [0.0, 0.5], [0.0, -0.5]], dtype=torch.float64)
    assert_close(principal_directions(x, 1)[:, 0].round(decimals=1), torch.tensor([1.0, 0.0], dtype=torch.float64))
