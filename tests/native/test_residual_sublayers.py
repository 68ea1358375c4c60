"""Residual sublayers in one call against the calls of their layers, bit for bit, on every instruction set."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from headway.native.int8_linear import CHUNK, Int8Panels, multiply
from headway.native.residual_sublayers import Int8Layer, ResidualSublayer, RowNorm, SublayerProgram
from headway.native.sequence_attention import AttentionSizes, call, packed_starts
from headway.nn.ffn import STYLES
from tests.native.decoders import library, needs_library

pytestmark = needs_library
WIDTH, HIDDEN, SIZES = 36, 50, AttentionSizes(4, 2, 10)
LENGTHS = [40, 1, 33, CHUNK]


def drawn(inputs: int, outputs: int, style: int | None = None, biased: bool = True) -> Int8Layer:
    weight = torch.randint(-64, 65, (outputs, inputs), dtype=torch.int8)
    panels = Int8Panels.of(weight, torch.empty(Int8Panels.bytes(weight), dtype=torch.uint8))
    assert panels is not None
    found = Int8Layer(inputs, panels, torch.rand(outputs) / 1000, torch.randn(outputs) if biased else None)
    return found if style is None else found._replace(style=style)


def attention(before: RowNorm | None = None, after: RowNorm | None = None, *, causal: bool = False) -> ResidualSublayer:
    heads, kv_heads, width = SIZES
    first = (drawn(WIDTH, heads * width), drawn(WIDTH, kv_heads * width, biased=False), drawn(WIDTH, kv_heads * width))
    return ResidualSublayer(before, first, drawn(heads * width, WIDTH), after, width**-0.5, causal)


def feed_forward(before: RowNorm | None = None, after: RowNorm | None = None) -> ResidualSublayer:
    return ResidualSublayer(before, (drawn(WIDTH, HIDDEN, STYLES[F.gelu]),), drawn(HIDDEN, WIDTH), after)


def by_calls(instructions: int, one: ResidualSublayer, x: Tensor, normed: Tensor) -> Tensor:
    """x + last(between(first(normed))), a call for each layer."""

    def linear(layer: Int8Layer, given: Tensor) -> Tensor:
        return multiply(library(), instructions, given, *layer[1:])

    seen, *others = (linear(layer, normed) for layer in one.first)
    if others:
        q, k, v = (y[0].unflatten(-1, (-1, SIZES.width)) for y in (seen, *others))
        starts, out = packed_starts(LENGTHS, [y.stride(0) for y in (q, k, v)]), torch.empty(q.shape)
        call(library(), instructions, (q, k, v), out, starts, None, one.causal, one.scale)
        seen = out.flatten(1)[None]
    return x + linear(one.last, seen)


def tokens() -> Tensor:
    return torch.randn(1, sum(LENGTHS), WIDTH)


def test_sublayers_in_turn_give_the_bits_of_their_layers() -> None:
    sublayers = [attention(), feed_forward(), attention(causal=True)]
    for count in (1, 2, 3):
        program, x = SublayerProgram(sublayers[:count], WIDTH, SIZES), tokens()
        for instructions in range(len(library().sets)):
            expected = x
            for one in sublayers[:count]:
                expected = by_calls(instructions, one, expected, expected)
            found, before = program.run(library(), instructions, x, LENGTHS), x.clone()
            assert_close(found, expected, atol=0, rtol=0, msg=library().sets[instructions])
            assert_close(x, before, atol=0, rtol=0)  # the input is not written over


@pytest.mark.parametrize("centred", [True, False], ids=["layer norm", "RMS norm"])
def test_norms_before(centred: bool) -> None:
    """Of rows whose norm is exact: signs, as many of each, times a power of two."""
    weight, bias = 2.0 ** torch.randint(-3, 4, (WIDTH,)), torch.randint(-4, 5, (WIDTH,)) / 4 if centred else None
    signs = torch.cat([torch.ones(WIDTH // 2), -torch.ones(WIDTH // 2)])
    x = torch.stack([signs[torch.randperm(WIDTH)] for _ in range(sum(LENGTHS))])[None]
    normed = x * weight if bias is None else x * weight + bias
    for one in (attention(RowNorm(weight, bias, 0.0, centred)), feed_forward(RowNorm(weight, bias, 0.0, centred))):
        program = SublayerProgram([one], WIDTH, SIZES)
        for instructions in range(len(library().sets)):
            found = program.run(library(), instructions, x * 4, LENGTHS)
            assert_close(found, by_calls(instructions, one, x * 4, normed), atol=0, rtol=0)


@pytest.mark.parametrize("centred", [True, False], ids=["layer norm", "RMS norm"])
def test_norms_after(centred: bool) -> None:
    x, weight, bias = tokens(), torch.randn(WIDTH), torch.randn(WIDTH) if centred else None
    one = feed_forward(after=RowNorm(weight, bias, 1e-5, centred))
    program = SublayerProgram([one], WIDTH, None)
    for instructions in range(len(library().sets)):
        y = by_calls(instructions, one, x, x)
        norm = F.layer_norm(y, (WIDTH,), weight, bias) if centred else F.rms_norm(y, (WIDTH,), weight, 1e-5)
        assert_close(program.run(library(), instructions, x, LENGTHS), norm, atol=1e-5, rtol=1e-5)


def test_threads_give_the_same_bits() -> None:
    program, x, before = SublayerProgram([attention(), feed_forward()], WIDTH, SIZES), tokens(), torch.get_num_threads()
    alone = program.run(library(), library().best, x, LENGTHS)
    try:
        torch.set_num_threads(3)
        together = program.run(library(), library().best, x, LENGTHS)
    finally:
        torch.set_num_threads(before)
    assert_close(together, alone, atol=0, rtol=0)
