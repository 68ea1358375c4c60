"""Layers that read the same input give the same, joined for training or each by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from headway.nn.fused_linear import apply_each, fuse

DIM = 8
MANY = DIM + 1  # tokens


def layers(bias: bool = True) -> tuple[nn.Linear, ...]:
    torch.manual_seed(0)
    return tuple(nn.Linear(DIM, width, bias, dtype=torch.float64) for width in (8, 4, 4))


def learned(made: tuple[Tensor, ...], *wanted: Tensor) -> tuple[Tensor, ...]:
    return (*made, *torch.autograd.grad(sum(x.sin().sum() for x in made), wanted))  # type: ignore[arg-type]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(MANY,), (3, 4), (2, 3, 5)], ids=str)
def test_one_product_is_each_by_itself(bias: bool, shape: tuple[int, ...]) -> None:
    parts, x = layers(bias), torch.randn(*shape, DIM, dtype=torch.float64, requires_grad=True)
    assert fuse(parts, x.numel() // DIM) is not None
    parameters = [weight for part in parts for weight in part.parameters()]
    found = learned(apply_each(x, *parts), x, *parameters)
    wanted = learned(tuple(part(x) for part in parts), x, *parameters)
    for one, other in zip(found, wanted, strict=True):
        assert_close(one, other, atol=1e-12, rtol=1e-12)


def test_few_tokens_are_not_worth_laying_weights_together() -> None:
    parts = layers()
    assert fuse(parts, DIM) is None
    with torch.no_grad():
        assert fuse(parts, MANY) is None


class Doubled(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


Change = Callable[[tuple[nn.Linear, ...]], tuple[nn.Module, ...]]


def hooked(register: str) -> Change:
    def change(parts: tuple[nn.Linear, ...]) -> tuple[nn.Module, ...]:
        def nothing(*given: Any) -> None: ...

        getattr(parts[1], register)(nothing)
        return parts

    return change


CHANGES: dict[str, Change] = {
    "forward hook": hooked("register_forward_hook"),
    "forward pre-hook": hooked("register_forward_pre_hook"),
    "backward hook": hooked("register_full_backward_hook"),
    "backward pre-hook": hooked("register_full_backward_pre_hook"),
    "a subclass": lambda parts: (parts[0], Doubled(DIM, 4), parts[2]),
    "another kind": lambda parts: (*parts[:2], nn.Identity()),
    "one without a bias": lambda parts: (*parts[:2], nn.Linear(DIM, 4, bias=False)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_who_needs_a_layer_by_itself_gets_it(change: Change) -> None:
    assert fuse(change(layers()), MANY) is None
