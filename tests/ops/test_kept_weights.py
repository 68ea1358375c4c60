"""Attention that keeps its weights for the gradient equals the definition: rounded in bf16, exactly in float64."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from headway.ops import attend as module
from headway.ops.attend import attend

BF16 = torch.bfloat16


@pytest.fixture(autouse=True)
def several_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART", 70)


def qkv(T: int, S: int, G: int = 4) -> list[Tensor]:
    draw = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=draw) for shape in ((3, 4, T, 8), (3, G, S, 8), (3, G, S, 8))]


def identity(weights: Tensor) -> Tensor:
    return weights


def leaves(tensors: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    return [x.to(BF16).to(dtype).requires_grad_() for x in tensors]  # the same numbers in both


OPTIONS = list(itertools.product((1, 4), (False, True), ("none", "padding", "each"), (False, True), (1, 5)))


@pytest.mark.parametrize(("G", "biased", "mask", "causal", "T"), OPTIONS)
def test_bf16_is_the_definition_rounded(G: int, biased: bool, mask: str, causal: bool, T: int) -> None:
    given = [*qkv(T, 7, G), *([torch.randn(1, 4, T, 7)] if biased else [])]
    hidden = torch.rand(3, T, 7, generator=torch.Generator().manual_seed(1)) > 0.4
    hidden[1, 0] = False  # a query that sees nothing
    keep = {"none": None, "padding": hidden[:, :1], "each": hidden}[mask]
    found = list[list[Tensor]]()
    pull = torch.randn(3, 4, T, 8, generator=torch.Generator().manual_seed(2))
    for dtype, edit in ((BF16, None), (torch.float32, identity)):
        q, k, v, *bias = own = leaves(given, dtype)
        y = attend(q, k, v, keep=keep, bias=bias[0] if bias else None, causal=causal, edit=edit)
        assert ("KeptWeights" in names_of(y)) == (dtype is BF16)
        found.append([y, *torch.autograd.grad((y * pull.to(dtype)).sum(), own)])
    for low, exact in zip(*found, strict=True):
        assert low.dtype is BF16
        assert (low.float() - exact).norm() <= 0.015 * exact.norm()
    if keep is not None:
        assert found[0][0][1, :, 0].eq(0).all()


def names_of(y: Tensor) -> str:
    """The functions that made a result, the last two."""
    functions = [y.grad_fn, *(one for one, _ in y.grad_fn.next_functions)] if y.grad_fn else []
    return " ".join(type(one).__name__ for one in functions)


@pytest.mark.parametrize("hidden", [False, True])
def test_gradients_of_a_learned_bias(hidden: bool) -> None:
    given = [x.double().requires_grad_() for x in (*qkv(3, 4), torch.randn(1, 4, 3, 4))]
    keep = torch.ones(3, 3, 4, dtype=torch.bool).tril(1) if hidden else None
    assert torch.autograd.gradcheck(lambda q, k, v, bias: attend(q, k, v, keep=keep, bias=bias), given)


def test_in_mixed_precision_products_are_bf16_and_sums_float32() -> None:
    """2,000 equal keys in float32: a sum of their weights in bf16 would stop at 256."""
    q, k, v = (torch.ones(1, 1, n, 8, requires_grad=True) for n in (2, 2000, 2000))
    with torch.autocast("cpu", BF16):
        y = attend(q, k, v)
    assert "KeptWeights" in names_of(y)
    assert y.dtype is BF16
    assert_close(y.float(), torch.ones_like(y, dtype=torch.float32), rtol=0.01, atol=0)
    y.sum().backward()
    assert {x.grad.dtype for x in (q, k, v) if x.grad is not None} == {torch.float32}


def test_long_rows_and_what_needs_no_gradient_take_torchs_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KEPT", 34)
    for length, taken in ((4, True), (5, False)):
        q, k, v = leaves(qkv(length, 7), BF16)
        assert ("KeptWeights" in names_of(attend(q, k, v))) == taken
    assert attend(*(x.to(BF16) for x in qkv(4, 7))).grad_fn is None


def test_parts_are_the_whole() -> None:
    for shape in ((3, 4, 5, 7), (7, 2, 3, 3), (2, 5, 1, 1), (1, 3, 20, 20), (2, 2, 3, 0)):
        seen = torch.zeros(shape[:2], dtype=torch.int64)
        for part in module.parts(torch.empty(shape)):
            seen[part] += 1
        assert seen.eq(1).all()
