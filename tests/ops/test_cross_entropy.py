"""The chunked cross-entropy equals its definition, in value and gradients, over every option."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from headway.errors import UserError
from headway.ops import cross_entropy as module
from headway.ops.cross_entropy import linear_cross_entropy, linear_cross_entropy_plain, token_losses

Loss = Callable[..., Tensor]


@pytest.fixture(autouse=True)
def always_in_small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FEW", -1)
    monkeypatch.setattr(module, "BUFFER", 150)
    monkeypatch.setattr(module, "WORDS", 5)


def drawn(n: int, c: int, v: int, dtype: torch.dtype = torch.float64, *, bias: bool = True) -> list[Tensor | None]:
    x, weight = torch.randn(n, c, dtype=dtype), torch.randn(v, c, dtype=dtype)
    return [x, weight, torch.randn(v, dtype=dtype) if bias else None]


def with_gradients(loss: Loss, inputs: list[Tensor | None], targets: Tensor, **options: float) -> list[Tensor]:
    """The loss and the gradients of three times it."""
    given = [None if one is None else one.clone().requires_grad_() for one in inputs]
    value = loss(*given, targets, **options)
    (3.0 * value).backward()
    return [value.detach(), *(one.grad for one in given if one is not None and one.grad is not None)]


@pytest.mark.slow
@given(
    n=st.integers(0, 40),
    v=st.integers(1, 130),
    smoothing=st.sampled_from([0.0, 0.1, 0.7]),
    scale=st.sampled_from([1.0, 0.25]),
    bias=st.booleans(),
)
def test_chunks_equal_the_definition(n: int, v: int, smoothing: float, scale: float, bias: bool) -> None:
    inputs, targets = drawn(n, 5, v, bias=bias), torch.randint(v, (n,))
    options = {"smoothing": smoothing, "scale": scale}
    ours = with_gradients(linear_cross_entropy, inputs, targets, **options)
    plain = with_gradients(linear_cross_entropy_plain, inputs, targets, **options)
    assert len(ours) == len(plain) == (4 if bias else 3)
    for one, other in zip(ours, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_gradients_are_those_of_the_loss(smoothing: float) -> None:
    inputs, targets = [one.requires_grad_() for one in drawn(7, 3, 60) if one is not None], torch.randint(60, (7,))
    assert torch.autograd.gradcheck(
        lambda *given: linear_cross_entropy(*given, targets, smoothing=smoothing, scale=0.5), inputs
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_float32_is_as_close_as_float32_can_be(smoothing: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUFFER", 50_000)
    inputs, targets = drawn(300, 64, 1003, torch.float32), torch.randint(1003, (300,))
    ours = with_gradients(linear_cross_entropy, inputs, targets, smoothing=smoothing)
    exact = with_gradients(
        linear_cross_entropy_plain, [i.double() for i in inputs if i is not None], targets, smoothing=smoothing
    )
    for one, other in zip(ours, exact, strict=True):
        assert (one - other).norm() <= 1e-5 * other.norm()


def test_large_logits_do_not_overflow() -> None:
    x, weight, targets = torch.full((20, 1), 1e4), torch.tensor([[1.0], [-1.0]]).repeat(40, 1), torch.ones(20).long()
    ours, plain = (
        with_gradients(f, [x, weight, None], targets) for f in (linear_cross_entropy, linear_cross_entropy_plain)
    )
    for one, other in zip(ours, plain, strict=True):
        torch.testing.assert_close(one, other)


def test_literally() -> None:
    x, weight = torch.tensor([[1.0], [0.0]]), torch.tensor([[0.0], [math.log(3.0)]])
    # softmax of (0, ln 3) is (1/4, 3/4), and of (0, 0) it is (1/2, 1/2)
    each = token_losses(x, weight, None, torch.tensor([1, 0]))
    torch.testing.assert_close(each, torch.tensor([math.log(4 / 3), math.log(2)]))
    smoothed = linear_cross_entropy(x, weight, None, torch.tensor([1, 0]), smoothing=0.5)
    expected = 0.75 * math.log(4 / 3) + 0.25 * math.log(4) + math.log(2)
    torch.testing.assert_close(smoothed, torch.tensor(expected))


@pytest.mark.parametrize("wanted", [(True, False, False), (False, True, False), (False, False, True)])
def test_only_what_is_wanted_gets_a_gradient(wanted: tuple[bool, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[list[bool]] = []
    add = module.Gradients.add

    def watched(grads: module.Gradients, *given: Any) -> None:
        made.append([grad is not None for grad in (grads.x, grads.weight, grads.bias)])
        add(grads, *given)

    monkeypatch.setattr(module.Gradients, "add", watched)
    inputs = [one.requires_grad_(want) for one, want in zip(drawn(30, 4, 20), wanted, strict=True) if one is not None]
    linear_cross_entropy(*inputs, torch.randint(20, (30,))).backward()
    assert [one.grad is not None for one in inputs] == list(wanted)
    assert made[0] == list(wanted)  # the others were not even computed


def test_no_tokens_cost_nothing() -> None:
    inputs = drawn(0, 4, 20, torch.float32)
    value, *grads = with_gradients(linear_cross_entropy, inputs, torch.zeros(0, dtype=torch.long))
    assert value == 0.0
    assert [grad.shape for grad in grads] == [one.shape for one in inputs if one is not None]
    assert all(not grad.any() for grad in grads)


def test_a_tied_weight_gathers_both_gradients() -> None:
    table, ids, targets = torch.randn(50, 8, dtype=torch.float64), torch.randint(50, (30,)), torch.randint(50, (30,))

    def grad(loss: Loss) -> Tensor:
        weight = table.clone().requires_grad_()
        first = loss(F.embedding(ids, weight), weight, None, targets)
        (first + loss(F.embedding(targets, weight), weight, None, ids)).backward()
        assert weight.grad is not None
        return weight.grad

    torch.testing.assert_close(grad(linear_cross_entropy), grad(linear_cross_entropy_plain))


def test_token_losses_are_the_parts_of_the_sum() -> None:
    x, weight, bias = drawn(40, 6, 70)
    assert x is not None
    assert weight is not None
    targets = torch.randint(70, (40,))
    each = token_losses(x, weight, bias, targets, 0.5)
    logits = F.linear(x * 0.5, weight, bias)
    torch.testing.assert_close(each, F.cross_entropy(logits, targets, reduction="none"))
    trained = linear_cross_entropy(x, weight.requires_grad_(), bias, targets, scale=0.5)
    assert torch.equal(each.sum(), trained.detach())  # evaluation and training see the same numbers


def test_evaluation_makes_no_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> None:
        raise AssertionError("a gradient was computed")

    monkeypatch.setattr(module.Gradients, "add", refuse)
    inputs = [one.requires_grad_() for one in drawn(30, 4, 20) if one is not None]
    targets = torch.randint(20, (30,))
    with torch.no_grad():
        assert not linear_cross_entropy(*inputs, targets).requires_grad
    assert not token_losses(*inputs, targets).requires_grad
    with pytest.raises(AssertionError, match="a gradient"):
        linear_cross_entropy(*inputs, targets)


def test_bf16_is_summed_in_float32() -> None:
    inputs, targets = drawn(60, 16, 200, torch.bfloat16), torch.randint(200, (60,))
    ours = with_gradients(linear_cross_entropy, inputs, targets)
    exact = with_gradients(linear_cross_entropy_plain, [i.double() for i in inputs if i is not None], targets)
    assert [one.dtype for one in ours] == [torch.float32, *[torch.bfloat16] * 3]
    torch.testing.assert_close(ours[0], exact[0].float(), rtol=1e-5, atol=0.0)
    for one, other in zip(ours[1:], exact[1:], strict=True):
        torch.testing.assert_close(one, other.bfloat16(), rtol=2e-2, atol=1e-3)


def test_the_same_bits_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUFFER", 50_000)
    inputs, targets = drawn(300, 64, 1003, torch.float32), torch.randint(1003, (300,))
    first, second = (with_gradients(linear_cross_entropy, inputs, targets, smoothing=0.1) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


def test_few_logits_take_the_plain_way_and_many_never_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    widths: list[int] = []
    chunks = module.chunks_of_logits

    def watched(*given: Tensor) -> object:
        for chunk, logits in chunks(*given):
            widths.append(logits.numel())
            yield chunk, logits

    monkeypatch.setattr(module, "chunks_of_logits", watched)
    x, weight = torch.randn(600, 2), torch.randn(50_257, 2)
    linear_cross_entropy(x[:5], weight, None, torch.zeros(5).long())
    assert widths == []
    linear_cross_entropy(x, weight, None, torch.zeros(600).long())
    assert len(widths) == 4  # 600 · 50,257 / 2²³, rounded up
    assert max(widths) <= module.BUFFER
    assert sum(widths) == 600 * 50_257


def test_several_batches_are_one() -> None:
    """Sums divided by the count of all targets: gradients do not know how the targets were cut into batches."""
    inputs, targets = drawn(60, 6, 40), torch.randint(40, (60,))
    whole = with_gradients(lambda *given: linear_cross_entropy(*given) / 60, inputs, targets)
    given = [one.clone().requires_grad_() for one in inputs if one is not None]
    for part in (slice(0, 7), slice(7, 40), slice(40, 60)):
        (3.0 * linear_cross_entropy(given[0][part], *given[1:], targets[part]) / 60).backward()
    for one, other in zip(whole[1:], given, strict=True):
        torch.testing.assert_close(one, other.grad, rtol=1e-6, atol=1e-12)


def test_impossible_shapes_are_told() -> None:
    x, weight, targets = torch.zeros(4, 3), torch.zeros(9, 3), torch.zeros(4, dtype=torch.long)
    with pytest.raises(UserError, match=r"x 4×3, weight 9×2"):
        linear_cross_entropy(x, weight[:, :2], None, targets)
    with pytest.raises(UserError, match="targets 3"):
        token_losses(x, weight, None, targets[:3])
    with pytest.raises(UserError, match="bias 4"):
        linear_cross_entropy(x, weight, torch.zeros(4), targets)
    with pytest.raises(UserError, match="smoothing=1"):
        linear_cross_entropy(x, weight, None, targets, smoothing=1.0)
    with pytest.raises((IndexError, RuntimeError)):
        linear_cross_entropy(x, weight, None, targets + 9)


def mixed(loss: Loss) -> Loss:
    def in_mixed_precision(*given: Any, **options: float) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return loss(*given, **options)

    return in_mixed_precision


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_mixed_precision_is_the_definition_rounded(smoothing: float) -> None:
    """Products in bf16: as near to the definition in float32 as it is itself in mixed precision, up to a half more."""
    inputs, targets = drawn(60, 16, 200, torch.float32), torch.randint(200, (60,))
    exact = with_gradients(linear_cross_entropy_plain, inputs, targets, smoothing=smoothing)
    plain = with_gradients(mixed(linear_cross_entropy_plain), inputs, targets, smoothing=smoothing)
    ours = with_gradients(mixed(linear_cross_entropy), inputs, targets, smoothing=smoothing)
    assert {one.dtype for one in ours} == {torch.float32}
    assert any(not torch.equal(one, other) for one, other in zip(ours, exact, strict=True))
    for one, other, right in zip(ours[1:], plain[1:], exact[1:], strict=True):
        assert (one - right).norm() <= 1.5 * (other - right).norm() <= 0.03 * right.norm()


def test_sums_over_words_are_float32_in_mixed_precision() -> None:
    """2,000 equal logits: in bf16 a sum of them would stop at 256."""
    x, weight = torch.zeros(3, 8), torch.randn(2000, 8)
    for loss in (linear_cross_entropy, linear_cross_entropy_plain):
        found = mixed(loss)(x, weight, None, torch.zeros(3, dtype=torch.int64))
        assert found.item() == pytest.approx(3 * math.log(2000), rel=1e-6)
