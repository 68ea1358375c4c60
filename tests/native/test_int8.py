"""Products of int8 against a plain statement of their definition, bit for bit, on every instruction set."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from headway.generate.step_program import StepProgram
from headway.native import int8_linear as module
from headway.native.int8_linear import CHUNK, Int8Panels, int8_linear, multiply
from headway.native.library import Unusable
from headway.nn.context import Context
from headway.nn.ffn import Activation, activation_style
from headway.nn.state import FixedState
from headway.ops.int8 import has_small_pairs
from tests.native.decoders import ACTS, library, needs_library

SIZES = [(0, 8, 8), (1, 1, 1), (1, 32, 4), (2, 31, 5), (3, 64, 9), (4, 30, 16), (5, 97, 18), (6, 8, 33), (8, 768, 40)]
MANY = [(33, 40, 7), (CHUNK + 5, 20, 35)]


def definition(x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None) -> Tensor:
    """(q(x) Wᵀ) · scale · s + bias, the sums in whole numbers."""
    step = x.abs().amax(-1, keepdim=True) / 127
    codes = torch.where(step > 0, x / step, 0.0).round()
    sums = (codes.long() @ weight.long().T).int()
    y = sums.float() * scale * step
    return y if bias is None else y + bias


def layer(inputs: int, outputs: int, biased: bool = True) -> tuple[Tensor, Tensor, Tensor | None]:
    """Weights of which no two neighbours are more than 128 together, some at that limit."""
    weight = torch.randint(-128, 128, (outputs, inputs), dtype=torch.int16)
    weight[:, 1::2] = torch.minimum(
        torch.maximum(weight[:, 1::2], -128 - weight[:, : inputs // 2 * 2 : 2].clamp(max=0)),
        128 - weight[:, : inputs // 2 * 2 : 2].clamp(min=0),
    ).clamp(-128, 127)
    return weight.to(torch.int8), torch.rand(outputs) / 100, torch.randn(outputs) if biased else None


def panels_of(weight: Tensor) -> Int8Panels:
    found = Int8Panels.of(weight, torch.empty(Int8Panels.bytes(weight), dtype=torch.uint8))
    assert found is not None
    return found


def packed(weight: Tensor, *others: Tensor | None) -> tuple[Int8Panels, Tensor, Tensor | None]:
    scale, bias = others
    assert scale is not None
    return panels_of(weight), scale, bias


@needs_library
@pytest.mark.parametrize(("sizes", "biased"), list(product([*SIZES, *MANY], [True, False])), ids=str)
def test_every_set_gives_the_bits_of_the_definition(sizes: tuple[int, int, int], biased: bool) -> None:
    rows, inputs, outputs = sizes
    x, given = torch.randn(rows, inputs), layer(inputs, outputs, biased)
    x[rows // 2 :] *= 1e-3
    expected = definition(x, *given)
    for instructions in range(len(library().sets)):
        found = multiply(library(), instructions, x, *packed(*given))
        assert_close(found, expected, atol=0, rtol=0, msg=library().sets[instructions])


@needs_library
@pytest.mark.parametrize(("sign", "pair"), [(1, (-128, 0)), (-1, (-128, 0)), (1, (64, 64)), (-1, (1, 127))])
def test_nothing_saturates(sign: int, pair: tuple[int, int]) -> None:
    """The largest codes against the largest pairs of weights, where sums in 16 bits could overflow."""
    x, weight = torch.full((1, 256), 3.0 * sign), torch.tensor(pair, dtype=torch.int8).repeat(8, 128)
    for instructions in range(len(library().sets)):
        found = multiply(library(), instructions, x, panels_of(weight), torch.ones(8), None)
        assert_close(found, definition(x, weight, torch.ones(8), None), atol=0, rtol=0)
        assert float(found[0, 0]) == pytest.approx(sign * sum(pair) * 128 * 3)


@needs_library
@pytest.mark.parametrize("pair", [(64, 65), (-64, -65), (127, 127), (0, 127), (-128, 127), (64, 64), (-128, 0)])
def test_pairs_beyond_16_bits_are_refused(pair: tuple[int, int]) -> None:
    weight = torch.zeros(5, 9, dtype=torch.int8)
    weight[3, 6:8] = torch.tensor(pair)
    found = Int8Panels.of(weight, torch.empty(Int8Panels.bytes(weight), dtype=torch.uint8))
    assert (found is not None) == has_small_pairs(weight) == (abs(sum(pair)) <= 128)


@needs_library
@pytest.mark.parametrize("act", ACTS, ids=lambda act: getattr(act, "__name__", "gelu_tanh"))
def test_an_activation_in_the_same_call(act: Activation) -> None:
    x, given, style = torch.randn(7, 40), layer(40, 35), activation_style(act)
    assert style is not None
    for instructions in range(len(library().sets)):
        found = multiply(library(), instructions, x, *packed(*given), style)
        assert_close(found, act(definition(x, *given)), atol=2e-6, rtol=2e-6)


@needs_library
def test_ties_go_to_even() -> None:
    x = torch.tensor([[127.0, 0.5, 1.5, 2.5, -0.5, -1.5, 126.5, -126.5]])
    found = multiply(library(), library().best, x, panels_of(torch.eye(8, dtype=torch.int8)), torch.ones(8), None)
    assert found.tolist() == [[127.0, 0.0, 2.0, 2.0, 0.0, -2.0, 126.0, -126.0]]


@needs_library
def test_rows_of_zeros_and_of_no_numbers() -> None:
    weight, scale, bias = layer(40, 6)
    x = torch.randn(4, 40)
    x[0], x[1, 3], x[2, 39] = 0.0, float("nan"), float("inf")
    for instructions in range(len(library().sets)):
        found = multiply(library(), instructions, x, panels_of(weight), scale, bias)
        assert_close(found[0], bias)
        assert found[1:3].isnan().all()
        assert found[3].isfinite().all()


@needs_library
def test_threads_give_the_same_bits() -> None:
    x, given, before = torch.randn(3, 300), packed(*layer(300, 203)), torch.get_num_threads()
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
    found = int8_linear(x, *packed(*given))
    assert_close(found, definition(x, *given), atol=0, rtol=0)


@needs_library
def test_what_the_library_cannot_read_is_for_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    panels, scale, bias = packed(*layer(8, 4))
    x = torch.randn(2, 8)
    assert int8_linear(x.double(), panels, scale, bias) is None
    assert int8_linear(x, panels, scale.double(), bias) is None
    assert int8_linear(x.requires_grad_(), panels, scale, bias) is None
    assert int8_linear(nn.Parameter(x, requires_grad=False), panels, scale, bias) is None
    monkeypatch.setattr(module, "native_library", lambda: Unusable("not built"))
    assert int8_linear(x.detach(), panels, scale, bias) is None
    assert Int8Panels.of(torch.zeros(2, 2, dtype=torch.int8), torch.empty(0)) is None


@needs_library
@pytest.mark.parametrize("rows", [1, 4])
def test_a_program_of_int8_layers(rows: int) -> None:
    """Two layers behind an embedding, as a program runs them."""
    table, first, second = nn.Embedding(11, 36), layer(36, 50), layer(50, 13, biased=False)
    program = StepProgram(library(), 4)
    x, hidden = program.register("x", 36), program.register("hidden", 50)
    program.embed(x, table.weight.detach(), None, 1.0)
    program.linear_int8(x, hidden, *packed(*first))
    program.linear_int8(hidden, program.register("logits", 13), *packed(*second))
    tokens = torch.arange(rows) + 2
    found = program.run(tokens, 0, None, Context(state=FixedState(4)))
    expected = definition(definition(table(tokens).detach(), *first), *second)
    assert_close(found, expected, atol=0, rtol=0)
