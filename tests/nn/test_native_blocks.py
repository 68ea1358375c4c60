"""Blocks of an encoder in one call: what they compute is what the modules do, and what else happens is for those."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

import headway
from headway.nn import native_blocks
from headway.nn.attention import SelfAttention
from headway.nn.block import Block, LayerScale, Residual, Stack
from headway.nn.context import EMPTY, Context, PackedLengths
from headway.nn.ffn import FFN, GatedFFN, quick_gelu
from headway.nn.low_precision import pack, quantise
from headway.nn.native_blocks import NativeBlocks, lower_stacks
from headway.ops.pattern import Causal, Window
from headway.ops.rotary import Rotary
from tests.native.decoders import needs_library

pytestmark = needs_library
WIDTH = 48


def pre_norm(body: nn.Module) -> Residual:
    return Residual(body, before=nn.LayerNorm(WIDTH, eps=1e-6))


def post_norm(body: nn.Module) -> Residual:
    return Residual(body, after=nn.LayerNorm(WIDTH), drop=0.1)


def rms_norm(body: nn.Module) -> Residual:
    return Residual(body, before=nn.RMSNorm(WIDTH))


def stack(residual: Callable[[nn.Module], Residual], norm: nn.Module | None = None, **attention: object) -> Stack:
    def block(act: Callable[[Tensor], Tensor]) -> Block:
        attn = SelfAttention(WIDTH, 4, **attention)  # pyright: ignore[reportArgumentType]
        return Block(attn=residual(attn), ffn=residual(FFN(WIDTH, 100, act=act)))

    model = Stack([block(F.gelu), block(quick_gelu)], norm)
    for part in model.modules():
        if isinstance(part, nn.LayerNorm):
            nn.init.normal_(part.weight, 1.0, 0.3)
            nn.init.normal_(part.bias)
    return model


def lowered(model: Stack) -> Stack:
    quantise(model.eval())
    pack(model)
    lower_stacks(model)
    return model


def by_modules(model: Stack, x: Tensor, ctx: Context = EMPTY) -> Tensor:
    plain = deepcopy(model)
    plain.native = None
    return plain(x, ctx)


def distance(a: Tensor, b: Tensor) -> float:
    return float((a - b).norm() / b.norm())


KINDS = {
    "pre-norm": partial(stack, pre_norm),
    "pre-norm and last": partial(stack, pre_norm, nn.LayerNorm(WIDTH)),
    "post-norm": partial(stack, post_norm),
    "RMS norm, shared keys": partial(stack, rms_norm, kv_heads=2),
    "causal": partial(stack, pre_norm, pattern=Causal()),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lengths", [None, [40, 3, 57]], ids=["batch", "packed"])
@torch.inference_mode()
def test_one_call_gives_what_the_modules_give(kind: str, lengths: list[int] | None) -> None:
    """Norms round otherwise, so that a few codes of int8 differ by one: much less than int8 differs from float32."""
    exact = KINDS[kind]().eval()
    model = lowered(deepcopy(exact))
    rows = None if lengths is None else PackedLengths.of(lengths)
    x, ctx = torch.randn(2, 50, WIDTH) if lengths is None else torch.randn(1, sum(lengths), WIDTH), Context(rows=rows)
    assert model.native is not None
    assert model.native(x, ctx) is not None
    found, parts, wanted = model(x, ctx), by_modules(model, x, ctx), exact(x, ctx)
    loss = distance(parts, wanted)
    assert 0 < loss < 0.05
    assert distance(found, parts) < loss / 2
    assert distance(found, wanted) < 1.1 * loss


@torch.inference_mode()
def test_a_sequence_by_itself() -> None:
    model, lengths = lowered(stack(pre_norm)), (2, 45, 1, 130)
    x = torch.randn(1, sum(lengths), WIDTH)
    together = model(x, Context(rows=PackedLengths.of(lengths)))
    alone = torch.cat([model(one) for one in x.split(lengths, 1)], 1)
    assert_close(together, alone, atol=0, rtol=0)


@torch.inference_mode()
def test_without_norms_it_is_bit_for_bit() -> None:
    model, x = lowered(stack(Residual)), torch.randn(3, 40, WIDTH) / 8
    assert model.native is not None
    assert model.native(x, EMPTY) is not None
    assert_close(model(x), by_modules(model, x), atol=0, rtol=0)


@torch.inference_mode()
def test_whoever_looks_sees_the_modules() -> None:
    model, x = lowered(stack(pre_norm)), torch.randn(1, 40, WIDTH)
    native, seen = model.native, list[Tensor]()
    assert native is not None
    with headway.record(model, "*") as trace:
        assert_close(model(x), by_modules(model, x), atol=0, rtol=0)
    assert trace.values

    def watch(part: nn.Module, given: tuple[Tensor, ...], found: Tensor) -> None:
        seen.append(found)

    handle = model.blocks[1].get_submodule("ffn.body.up").register_forward_hook(watch)
    assert_close(model(x), by_modules(model, x), atol=0, rtol=0)
    assert seen
    handle.remove()
    assert native(x, EMPTY) is not None


@torch.inference_mode()
def test_other_calls_are_for_the_modules() -> None:
    model, x = lowered(stack(pre_norm)), torch.randn(1, 40, WIDTH)
    native = model.native
    assert native is not None
    assert native(x, EMPTY) is not None
    assert native(x, Context(keep=torch.ones(1, 1, 40, dtype=torch.bool))) is None
    assert native(x, Context(positions=torch.arange(40)[None])) is None
    assert native(x.double(), EMPTY) is None
    assert native(x[..., :20], EMPTY) is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native_blocks, "MAX_KEYS", 39)
        assert native(x, EMPTY) is None
        assert native(x[:, 1:], EMPTY) is not None
    with torch.inference_mode(False):
        assert native(x.clone(), EMPTY) is None  # gradients are recorded
    model.train()
    assert native(x, EMPTY) is None


@torch.inference_mode()
def test_tensors_that_are_changed_or_replaced() -> None:
    model, x = lowered(stack(pre_norm)), torch.randn(1, 40, WIDTH)
    first, norm = model(x), model.blocks[0].get_submodule("attn.before")
    assert isinstance(norm, nn.LayerNorm)
    norm.weight.mul_(1.5)
    second = model(x)
    norm.weight = nn.Parameter(-norm.weight, requires_grad=False)
    third = model(x)
    assert distance(second, first) > 0.05
    assert distance(third, second) > 0.05
    assert distance(third, by_modules(model, x)) < 0.02


@torch.inference_mode()
def test_a_copy_stands_by_itself() -> None:
    model, x = lowered(stack(pre_norm)), torch.randn(1, 40, WIDTH)
    expected, copy = model(x), deepcopy(model)
    for part in model.modules():
        if isinstance(part, nn.LayerNorm):
            part.weight.zero_()
    assert copy.native is not None
    assert copy.native(x, EMPTY) is not None
    assert_close(copy(x), expected, atol=0, rtol=0)


OTHERS = {
    "rotary": partial(stack, pre_norm, rotary=Rotary(12)),
    "window": partial(stack, pre_norm, pattern=Window(3)),
    "norm of queries": partial(stack, pre_norm, qk_norm=nn.LayerNorm),
    "layer scale": lambda: stack(lambda body: Residual(body, scale=LayerScale(WIDTH))),
    "gated": lambda: Stack([Block(ffn=pre_norm(GatedFFN(WIDTH, 80)))]),
    "three layers": lambda: Stack([Block(ffn=pre_norm(FFN(WIDTH, layers=3)))]),
    "another activation": lambda: Stack([Block(ffn=pre_norm(FFN(WIDTH, act=torch.tanh)))]),
    "not residual": lambda: Stack([Block(ffn=FFN(WIDTH))]),
    "none": lambda: Stack([]),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_what_the_library_cannot_do(kind: str) -> None:
    model = OTHERS[kind]().eval()
    model.add_module("other", nn.Linear(4, 4))  # so that there is something to quantise
    assert lowered(model).native is None


def test_layers_of_float32_are_for_the_modules() -> None:
    assert NativeBlocks.of(stack(pre_norm).eval()) is None
