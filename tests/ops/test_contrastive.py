"""Contrastive losses: their laws, the definition written out pair by pair, and numbers by hand."""

from __future__ import annotations

from math import exp, log

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from headway.errors import UserError
from headway.ops.losses import cosines, info_nce, nt_xent


def vectors(rows: int = 5, width: int = 4, seed: int = 0) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(rows, width, generator=draw), torch.randn(rows, width, generator=draw)


def cosine(a: Tensor, b: Tensor) -> float:
    return float(a @ b / (a.norm() * b.norm()))


def plain_info_nce(a: Tensor, b: Tensor, scale: float, owners: list[int]) -> float:
    """Pair by pair."""
    total, rows = 0.0, range(len(a))
    for x, y in ((a, b), (b, a)):
        for i in rows:
            among = [j for j in rows if j == i or owners[j] != owners[i]]
            total -= log(exp(scale * cosine(x[i], y[i])) / sum(exp(scale * cosine(x[i], y[j])) for j in among))
    return total / 2


def plain_nt_xent(a: Tensor, b: Tensor, temperature: float) -> float:
    views, n, total = torch.cat([a, b]), len(a), 0.0
    for i in range(2 * n):
        alike = {j: exp(cosine(views[i], views[j]) / temperature) for j in range(2 * n) if j != i}
        total -= log(alike[(i + n) % (2 * n)] / sum(alike.values()))
    return total / 2


@pytest.mark.parametrize("owners", [[0, 1, 2, 3, 4], [0, 0, 1, 2, 1], [3, 3, 3, 3, 3]])
def test_info_nce_is_its_definition(owners: list[int]) -> None:
    a, b = vectors()
    assert float(info_nce(a, b, 3.0, torch.tensor(owners))) == pytest.approx(
        plain_info_nce(a, b, 3.0, owners), rel=1e-5
    )


@pytest.mark.parametrize("temperature", [0.1, 0.5, 2.0])
def test_nt_xent_is_its_definition(temperature: float) -> None:
    a, b = vectors()
    assert float(nt_xent(a, b, temperature)) == pytest.approx(plain_nt_xent(a, b, temperature), rel=1e-5)


def test_a_batch_of_its_own_images_alone_is_as_without_owners() -> None:
    a, b = vectors()
    assert_close(info_nce(a, b, 7.0, torch.arange(5)), info_nce(a, b, 7.0))


@pytest.mark.slow
@given(order=st.permutations(range(5)), seed=st.integers(0, 9))
def test_the_order_of_pairs_and_sides_changes_nothing(order: list[int], seed: int) -> None:
    a, b = vectors(seed=seed)
    for loss in (lambda x, y: info_nce(x, y, 5.0), nt_xent):
        assert_close(loss(a[order], b[order]), loss(a, b), rtol=1e-5, atol=1e-5)
        assert_close(loss(b, a), loss(a, b), rtol=1e-5, atol=1e-5)
        assert_close(loss(3.0 * a, b / 7.0), loss(a, b), rtol=1e-5, atol=1e-5)  # only directions count


def test_numbers_by_hand() -> None:
    """Two images and two texts at right angles: each finds its own among e^s and 1; vectors all alike find nothing."""
    a = torch.eye(2)
    assert float(info_nce(a, a, 2.0)) == pytest.approx(2 * log(1 + exp(-2)))
    assert float(info_nce(torch.ones(4, 3), torch.ones(4, 3), 9.0)) == pytest.approx(4 * log(4))
    assert float(nt_xent(a, a, 0.5)) == pytest.approx(2 * log(1 + 2 * exp(-2)))
    assert float(nt_xent(torch.ones(4, 3), torch.ones(4, 3))) == pytest.approx(4 * log(7), rel=1e-5)
    assert cosines(torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0, 0.0], [0.0, -2.0]])).tolist() == [
        pytest.approx([0.6, -0.8])
    ]


def test_gradients_are_those_of_finite_differences() -> None:
    a, b = (x.double().requires_grad_() for x in vectors(3))
    scale, owners = torch.tensor(2.0, dtype=torch.double, requires_grad=True), torch.tensor([0, 1, 0])
    assert torch.autograd.gradcheck(lambda *x: info_nce(*x, owners), (a, b, scale))
    assert torch.autograd.gradcheck(nt_xent, (a, b))


def test_what_belongs_together_is_drawn_together() -> None:
    a, b = (x.requires_grad_() for x in vectors(6, 8))
    for _ in range(60):
        grads = torch.autograd.grad(info_nce(a, b, 5.0), (a, b))
        a, b = ((x - 0.1 * grad).detach().requires_grad_() for x, grad in zip((a, b), grads, strict=True))
    assert cosines(a, b).argmax(1).tolist() == list(range(6))


def test_mistakes_are_told() -> None:
    a, b = vectors()
    with pytest.raises(UserError, match="a contrastive loss of 5×4 and 4×4; allowed: N×P both"):
        info_nce(a, b[:4], 1.0)
    with pytest.raises(UserError, match="temperature=0"):
        nt_xent(a, b, 0.0)
