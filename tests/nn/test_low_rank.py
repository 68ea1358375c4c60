"""Laws of low-rank parts: nothing at first, the same merged as beside the weights, and gradients of their own."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from headway.nn.low_rank import DoRALinear, LoRALinear, adapt, adapted, decompose, learned_tensors, merge
from headway.nn.trunk import tensors_of
from tests.laws.subjects import SUBJECTS, Subject, zoo_gpt2

LENGTH = 9


def with_parts(subject: Subject, rank: int = 3) -> nn.Module:
    """The subject in float64 with a part beside each linear layer, every second one of DoRA; B is zero."""
    model = subject.build().double()
    for at, layer in enumerate([part for part in model.modules() if type(part) is nn.Linear]):
        made = adapt(layer, rank, 0.7)
        if at % 2:
            decompose(made)
    return model


def lively(model: nn.Module) -> None:
    for layer in adapted(model).values():
        nn.init.normal_(layer.lora_b, std=0.3)
        if isinstance(layer, DoRALinear):
            nn.init.uniform_(layer.lora_magnitude, 0.5, 1.5)


def answer(subject: Subject, model: nn.Module) -> Tensor:
    ctx = subject.with_memory(2)
    inputs = subject.sample(2, LENGTH)
    ctx = replace(ctx, memory=None if ctx.memory is None else ctx.memory.double())
    with torch.no_grad():
        return model(inputs.double() if inputs.is_floating_point() else inputs, ctx)


ADAPTED = [one for one in SUBJECTS if any(type(part) is nn.Linear for part in one.build().modules())]


@pytest.mark.parametrize("subject", ADAPTED, ids=str)
def test_new_parts_change_no_bit_and_merged_ones_compute_the_same(subject: Subject) -> None:
    model, plain = with_parts(subject), subject.build().double()
    first = answer(subject, plain)
    assert torch.equal(answer(subject, model), first)
    lively(model)
    beside = answer(subject, model)
    assert not torch.allclose(beside, first, rtol=1e-4, atol=1e-4)
    merge(model)
    assert adapted(model) == {}
    assert [type(part) for part in model.modules()] == [type(part) for part in plain.modules()]
    assert tensors_of(model).keys() == tensors_of(plain).keys()
    assert_close(answer(subject, model), beside, rtol=1e-9, atol=1e-9)


def test_the_formula_and_its_gradient() -> None:
    layer = adapt(nn.Linear(5, 4).double(), 2, 1.5)
    nn.init.normal_(layer.lora_b)
    x = torch.randn(3, 5, dtype=torch.float64)
    assert_close(layer(x), x @ (layer.weight + 1.5 * layer.lora_b @ layer.lora_a).T + layer.bias)

    def called(a: Tensor, b: Tensor) -> Tensor:
        return torch.func.functional_call(layer, {"lora_a": a, "lora_b": b}, (x,))

    assert torch.autograd.gradcheck(called, (layer.lora_a, layer.lora_b))
    layer(x).sum().backward()
    assert layer.weight.grad is None
    assert layer.bias.grad is None


def test_dropout_is_of_the_low_rank_part_alone() -> None:
    layer = adapt(nn.Linear(6, 4), 2, 1.0, dropout=0.5)
    x = torch.randn(3, 6)
    assert torch.equal(layer.train()(x), nn.functional.linear(x, layer.weight, layer.bias))
    nn.init.normal_(layer.lora_b)
    assert not torch.equal(layer(x), layer(x))
    assert torch.equal(layer.eval()(x), layer(x))


def test_what_learns_is_all_or_the_parts_and_what_is_not_frozen() -> None:
    model = zoo_gpt2()
    assert learned_tensors(model).keys() == tensors_of(model).keys()
    model.requires_grad_(False)
    adapt(model.stack.blocks[0].attn.body.q, 2, 1.0)  # type: ignore[union-attr]
    model.stack.norm.requires_grad_(True)  # type: ignore[union-attr]
    q = "stack.blocks.0.attn.body.q"
    expected = {f"{q}.lora_a", f"{q}.lora_b", "stack.norm.weight", "stack.norm.bias"}
    assert learned_tensors(model).keys() == expected
    assert isinstance(model.get_submodule(q), LoRALinear)
