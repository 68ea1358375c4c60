"""Products of int8 against a plain statement of their definition, bit for bit, on every instruction set."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from headway.generate.step_program import StepProgram
from headway.native import int8_linear as module
from headway.native.int8_linear import int8_linear, multiply
from headway.native.library import Unusable
from headway.nn.context import Context
from headway.nn.state import FixedState
from tests.native.decoders import library, needs_library

SIZES = [(1, 1, 1), (1, 32, 4), (2, 31, 5), (3, 64, 9), (5, 97, 18), (8, 768, 40), (33, 40, 7)]


def definition(x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None) -> Tensor:
    """(q(x) Wᵀ) · scale · s + bias, the sums in whole numbers."""
    step = x.abs().amax(-1, keepdim=True) / 127
    codes = torch.where(step > 0, x / step, 0.0).round()
    sums = (codes.long() @ weight.long().T).int()
    y = sums.float() * scale * step
    return y if bias is None else y + bias


def layer(inputs: int, outputs: int, biased: bool = True) -> tuple[Tensor, Tensor, Tensor | None]:
    weight = torch.randint(-128, 128, (outputs, inputs), dtype=torch.int8)
    return weight, torch.rand(outputs) / 100, torch.randn(outputs) if biased else None


@needs_library
@pytest.mark.parametrize(("sizes", "biased"), list(product(SIZES, [True, False])), ids=str)
def test_every_set_gives_the_bits_of_the_definition(sizes: tuple[int, int, int], biased: bool) -> None:
    rows, inputs, outputs = sizes
    x, given = torch.randn(rows, inputs), layer(inputs, outputs, biased)
    x[rows // 2] *= 1e-3
    expected = definition(x, *given)
    for instructions in range(len(library().sets)):
        found = multiply(library(), instructions, x, *given)
        assert_close(found, expected, atol=0, rtol=0, msg=library().sets[instructions])


@needs_library
@pytest.mark.parametrize("sign", [1, -1])
def test_nothing_saturates(sign: int) -> None:
    """The largest codes against the largest weights, where sums of pairs in 16 bits could overflow."""
    x, weight = torch.full((1, 256), 3.0 * sign), torch.full((8, 256), -128, dtype=torch.int8)
    for instructions in range(len(library().sets)):
        found = multiply(library(), instructions, x, weight, torch.ones(8), None)
        assert_close(found, definition(x, weight, torch.ones(8), None), atol=0, rtol=0)
        assert float(found[0, 0]) == pytest.approx(-sign * 128 * 127 * 256 * 3 / 127)


@needs_library
def test_ties_go_to_even() -> None:
    x = torch.tensor([[127.0, 0.5, 1.5, 2.5, -0.5, -1.5, 126.5, -126.5]])
    found = multiply(library(), library().best, x, torch.eye(8, dtype=torch.int8), torch.ones(8), None)
    assert found.tolist() == [[127.0, 0.0, 2.0, 2.0, 0.0, -2.0, 126.0, -126.0]]


@needs_library
def test_rows_of_zeros_and_of_no_numbers() -> None:
    weight, scale, bias = layer(40, 6)
    x = torch.randn(4, 40)
    x[0], x[1, 3], x[2, 39] = 0.0, float("nan"), float("inf")
    for instructions in range(len(library().sets)):
        found = multiply(library(), instructions, x, weight, scale, bias)
        assert_close(found[0], bias)
        assert found[1:3].isnan().all()
        assert found[3].isfinite().all()


@needs_library
def test_threads_give_the_same_bits() -> None:
    x, given, before = torch.randn(3, 300), layer(300, 203), torch.get_num_threads()
    alone = int8_linear(x, *given)
    try:
        torch.set_num_threads(3)
        together = int8_linear(x, *given)
    finally:
        torch.set_num_threads(before)
    assert_close(together, alone, atol=0, rtol=0)


@needs_library
def test_any_shape_of_rows() -> None:
    x, given = torch.randn(2, 40, 3).transpose(1, 2), layer(40, 6)
    found = int8_linear(x, *given)
    assert_close(found, definition(x, *given), atol=0, rtol=0)


def test_what_the_library_cannot_read_is_for_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, scale, bias = layer(8, 4)
    x = torch.randn(2, 8)
    assert int8_linear(x.double(), weight, scale, bias) is None
    assert int8_linear(x, weight.int(), scale, bias) is None
    assert int8_linear(x, weight.T.contiguous().T, scale, bias) is None
    assert int8_linear(x, weight, scale.double(), bias) is None
    assert int8_linear(x.requires_grad_(), weight, scale, bias) is None
    monkeypatch.setattr(module, "native_library", lambda: Unusable("not built"))
    assert int8_linear(x.detach(), weight, scale, bias) is None


@needs_library
@pytest.mark.parametrize("rows", [1, 4])
def test_a_program_of_int8_layers(rows: int) -> None:
    """Two layers behind an embedding, as a program runs them."""
    table, first, second = nn.Embedding(11, 36), layer(36, 50), layer(50, 13, biased=False)
    program = StepProgram(library(), 4)
    x, hidden = program.register("x", 36), program.register("hidden", 50)
    program.embed(x, table.weight.detach(), None, 1.0)
    program.linear_int8(x, hidden, *first)
    program.linear_int8(hidden, program.register("logits", 13), *second)
    tokens = torch.arange(rows) + 2
    found = program.run(tokens, 0, None, Context(state=FixedState(4)))
    expected = definition(definition(table(tokens).detach(), *first), *second)
    assert_close(found, expected, atol=0, rtol=0)
