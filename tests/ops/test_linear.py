"""Products by oneDNN against `F.linear`, and what is left to the latter."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from headway.nn.fused_linear import apply
from headway.ops import cross_entropy
from headway.ops import linear as module
from headway.ops.cross_entropy import linear_cross_entropy, linear_cross_entropy_plain
from headway.ops.linear import MIN_ROWS, linear

needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of each product that was left to `F.linear`, on a processor that prefers oneDNN."""
    found, plain = list[int](), F.linear

    def spied(x: torch.Tensor, *others: torch.Tensor | None) -> torch.Tensor:
        found.append(x.shape[:-1].numel())
        return plain(x, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "prefers_onednn", lambda: True)
    monkeypatch.setattr(module, "MIN_PRODUCTS", 1)
    monkeypatch.setattr(F, "linear", spied)
    return found


@needs_onednn
@pytest.mark.parametrize("shape", [(8,), (3, 5), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("inputs_apart", [True, False])
def test_onednn_gives_the_definition(
    shape: tuple[int, ...], biased: bool, inputs_apart: bool, calls: list[int]
) -> None:
    x, weight = torch.randn(*shape, 33), torch.randn(33, 21).T if inputs_apart else torch.randn(21, 33)
    bias = torch.randn(21) if biased else None
    found = linear(x, weight, bias)
    assert not calls
    exact = F.linear(x.double(), weight.double(), None if bias is None else bias.double())
    assert_close(found.double(), exact, atol=2e-5, rtol=2e-6)


@needs_onednn
@pytest.mark.parametrize("shape", [(8,), (3, 5), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("wanted", [(True, True, True), (True, False, None), (False, True, None), (False, False, True)])
@pytest.mark.parametrize("inputs_apart", [True, False])
def test_gradients_are_those_of_the_definition(
    shape: tuple[int, ...], wanted: tuple[bool, bool, bool | None], inputs_apart: bool, calls: list[int]
) -> None:
    """Of each input, where it is wanted; the gradient of the output may lie anyhow."""
    weight = torch.randn(33, 21).T if inputs_apart else torch.randn(21, 33)
    given = (torch.randn(*shape, 33), weight, None if wanted[2] is None else torch.randn(21))
    upstream = torch.randn(21, *shape).movedim(0, -1)
    ours, exact = (
        [
            None if x is None else x.detach().to(dtype).requires_grad_(bool(want))
            for x, want in zip(given, wanted, strict=True)
        ]
        for dtype in (torch.float32, torch.float64)
    )
    linear(*ours).backward(upstream)  # type: ignore[arg-type]
    assert not calls
    F.linear(*exact).backward(upstream.double())  # type: ignore[arg-type]
    for one, other in zip(ours, exact, strict=True):
        assert one is None or other is None or (one.grad is None) == (other.grad is None)
        if one is not None and other is not None and one.grad is not None and other.grad is not None:
            assert_close(one.grad.double(), other.grad, atol=2e-5, rtol=2e-6)


@needs_onednn
def test_gradients_have_gradients(calls: list[int]) -> None:
    def penalty(dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
        torch.manual_seed(0)
        given = [torch.randn(*size).to(dtype).requires_grad_() for size in ((8, 9), (10, 9), (10,))]
        y = linear(given[0], given[1], given[2]).tanh()
        (slope,) = torch.autograd.grad(y.sum(), given[0], create_graph=True)
        return torch.autograd.grad(slope.square().sum(), given)

    found = penalty(torch.float32)
    assert not calls
    for one, other in zip(found, penalty(torch.float64), strict=True):
        assert_close(one.double(), other, atol=2e-5, rtol=2e-5)


@needs_onednn
@pytest.mark.parametrize("biased", [True, False])
def test_the_loss_over_a_vocabulary_takes_it(biased: bool, calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """In chunks of which the last is shorter; losses and gradients are the definition's."""
    monkeypatch.setattr(cross_entropy, "BUFFER", 2**12)
    monkeypatch.setattr(cross_entropy, "FEW", 1)
    monkeypatch.setattr(cross_entropy, "WORDS", 70)
    monkeypatch.setattr(module, "MIN_ROWS", 1)
    x, weight, targets = torch.randn(70, 16), torch.randn(130, 16), torch.randint(130, (70,))
    found, exact = (
        [one.detach().to(dtype, copy=True).requires_grad_() for one in (x, weight, torch.ones(130))]
        for dtype in (torch.float32, torch.float64)
    )
    for given in (found, exact):
        bias = given[2] if biased else None
        loss = linear_cross_entropy if given is found else linear_cross_entropy_plain
        loss(given[0], given[1], bias, targets, smoothing=0.1).backward()
        assert given is exact or not calls
    for one, other in list(zip(found, exact, strict=True))[: 2 + biased]:
        assert one.grad is not None
        assert other.grad is not None
        assert_close(one.grad.double(), other.grad, atol=2e-5, rtol=2e-5)


@needs_onednn
def test_what_is_left_to_torch(calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight = torch.randn(16, 9), torch.randn(5, 9)
    linear(x[: MIN_ROWS - 1], weight)
    linear(x.double(), weight.double())
    linear(x.bfloat16(), weight.bfloat16())
    linear(x, torch.randn(5, 12)[:, :9])  # for such weights oneDNN has only reference code
    with torch.autocast("cpu"):
        linear(x, weight)
    with FlopCounterMode(display=False) as counter:
        linear(x, weight)
    assert counter.get_total_flops() == 2 * 16 * 9 * 5
    monkeypatch.setattr(module, "MIN_PRODUCTS", 16 * 9 * 5 + 1)
    linear(x, weight)
    assert calls == [MIN_ROWS - 1, 16, 16, 16, 16, 16, 16]


@needs_onednn
@torch.no_grad()
def test_layers_that_somebody_watches_are_called(calls: list[int]) -> None:
    layer, x, seen = nn.Linear(9, 5), torch.randn(16, 9), list[int]()
    expected = layer(x)
    calls.clear()
    assert_close(apply(layer, x), expected)
    assert not calls

    def hook(*given: object) -> None:
        seen.append(1)

    handle = layer.register_forward_hook(hook)
    apply(layer, x)
    handle.remove()
    everywhere = nn.modules.module.register_module_forward_hook(hook)
    apply(layer, x)
    everywhere.remove()
    assert seen == [1, 1]
    layer.forward = lambda input: input  # type: ignore[method-assign]
    assert apply(layer, x) is x
