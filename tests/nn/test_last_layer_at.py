"""The last layer at some tokens is that of all tokens, there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from headway.nn.attention import SelfAttention
from headway.nn.block import Block, Residual, Stack
from headway.nn.context import EMPTY, Context, PackedLengths, TokenSelection
from headway.nn.ffn import FFN
from headway.nn.towers import TwoTowers
from headway.nn.trace import record
from headway.nn.trunk import Trunk, can_select_tokens, stack_at
from headway.zoo.build import build
from tests.laws.subjects import SUBJECTS, Subject

close: dict[str, Any] = {"atol": 2e-5, "rtol": 1e-4}
LENGTHS = (3, 7, 1, 4)
VOCAB = 23


# ---- every stack that can be asked


def stack_of(model: nn.Module) -> nn.Module:
    return model.stack if isinstance(model, Trunk) else model


def learning(subject: Subject) -> nn.Module:
    """A model whose stack is in training, while what could drop anything is not."""
    model = subject.build()
    stack_of(model).training = True
    return model


def asks(subject: Subject) -> bool:
    return can_select_tokens(stack_of(learning(subject)), torch.zeros(1, 1, 1), EMPTY)


ASKED = [subject for subject in SUBJECTS if asks(subject)]


def test_these_are_asked() -> None:
    assert {"gpt", "llama", "window", "chunks", "sinks", "sandwich", "bert"} <= {subject.name for subject in ASKED}
    assert not {"mixture", "parallel", "shared", "t5 decoder"} & {subject.name for subject in ASKED}


@pytest.mark.slow
@pytest.mark.parametrize("subject", ASKED, ids=str)
@pytest.mark.parametrize("index", [[0, 3, 10, 11], [1, 2, 3, 9, 10, 12, 13, 14], list(range(15))], ids=str)
@torch.no_grad()
def test_some_tokens_are_those_of_all(subject: Subject, index: list[int]) -> None:
    model, rows = learning(subject), PackedLengths.of(LENGTHS)
    x = subject.sample(4, rows.longest)
    packed = Context(rows=rows)
    inputs = model.embed(rows.pack(x), packed) if isinstance(model, Trunk) else rows.pack(x)
    stack, whole = stack_of(model), TokenSelection.among(torch.tensor(index), rows.owners)
    assert whole is not None
    found = stack_at(stack, whole, inputs, packed)
    assert_close(found, stack(inputs, packed)[:, index], **close)
    if isinstance(model, Trunk):
        assert_close(model.features_at(torch.tensor(index), rows.pack(x), packed), found[0], atol=0, rtol=0)
    # the same rows with padding behind
    inputs, padding = model.embed(x, EMPTY) if isinstance(model, Trunk) else x, Context(keep=rows.keep)
    chosen = replace(whole, index=rows.slots[whole.index])
    assert_close(stack_at(stack, chosen, inputs, padding), found, **close)
    if isinstance(model, Trunk):
        assert_close(model.features_at(chosen.index, x, padding), found[0], **close)


def test_a_row_without_a_token_is_not_asked() -> None:
    rows = PackedLengths.of(LENGTHS)
    assert TokenSelection.among(torch.tensor([0, 3, 4, 10]), rows.owners) is None
    model, x = bert("none"), ids(1, 15)
    few = model.features_at(torch.tensor([0, 3, 4, 10]), x, Context(rows=rows))
    assert_close(few, model.eval().features(x, Context(rows=rows))[0, [0, 3, 4, 10]], **close)


# ---- whole models, with their gradients


def ids(*shape: int) -> Tensor:
    return torch.randint(1, VOCAB, shape, generator=torch.Generator().manual_seed(3))


def images() -> Tensor:
    return torch.randn(3, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


SIZES: dict[str, Any] = {"dim": 16, "heads": 4, "layers": 2, "classes": 5, "dropout": 0.0, "attention_dropout": 0.0}


def vit() -> nn.Module:
    return build("vit-nano", image=8, patch=4, **SIZES)


def bert(top: str) -> Trunk:
    model = build("bert-tiny", vocab=VOCAB, context=16, top=top, **SIZES)
    assert isinstance(model, Trunk)
    return model


def texts_of_clip() -> nn.Module:
    model = build("clip-nano", vocab=VOCAB, end=2)
    assert isinstance(model, TwoTowers)
    return model.text


def padding() -> Context:
    return Context(keep=PackedLengths.of((7, 3, 5)).keep)


CASES: dict[str, tuple[Callable[[], nn.Module], Tensor, Context]] = {
    "vit": (vit, images(), EMPTY),
    "bert": (lambda: bert("rows"), ids(3, 7), EMPTY),
    "bert, padded": (lambda: bert("rows"), ids(3, 7), padding()),
    "bert, packed": (lambda: bert("rows"), ids(1, 15), Context(rows=PackedLengths.of(LENGTHS))),
    "clip": (texts_of_clip, ids(3, 7), EMPTY),
    "clip, packed": (texts_of_clip, ids(1, 15), Context(rows=PackedLengths.of(LENGTHS))),
}


@pytest.mark.parametrize("case", CASES)
def test_a_head_hears_the_same(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, x, ctx = CASES[case]
    torch.manual_seed(0)
    model = make().double()

    def learned() -> tuple[Tensor, ...]:
        y = model(x, ctx)
        return (y.detach(), *torch.autograd.grad(y.square().sum(), list(model.parameters()), materialize_grads=True))

    with FlopCounterMode(display=False) as few:
        found = learned()
    monkeypatch.setattr("headway.nn.trunk.can_select_tokens", lambda *given: False)
    with FlopCounterMode(display=False) as all_of_it:
        wanted = learned()
    assert few.get_total_flops() < all_of_it.get_total_flops()
    for one, other in zip(found, wanted, strict=True):
        assert_close(one, other, atol=1e-10, rtol=1e-10)


# ---- who is asked as a whole


def test_who_waits_for_all_tokens_gets_them() -> None:
    """A recording, a hook anywhere in the last layer, a mask of single queries; and a model that has learned."""
    model, x = bert("none"), torch.zeros(1, 1, 1)
    stack = stack_of(model)
    [*_, up] = [part for name, part in stack.named_modules() if name.endswith("ffn.body.up")]
    assert can_select_tokens(stack, x, EMPTY)
    assert not can_select_tokens(stack, x, Context(keep=torch.ones(1, 4, 4, dtype=torch.bool)))
    with record(model, "*"):
        assert not can_select_tokens(stack, x, EMPTY)
    handle = up.register_forward_hook(lambda *given: None)
    assert not can_select_tokens(stack, x, EMPTY)
    handle.remove()
    assert can_select_tokens(stack, x, EMPTY)
    assert not can_select_tokens(stack.eval(), x, EMPTY)


def test_a_norm_over_tokens_needs_all_of_them() -> None:
    def stack(norm: Callable[[], nn.Module]) -> Stack:
        return Stack([Block(attn=Residual(SelfAttention(8, 2), before=norm()), ffn=Residual(FFN(8, 8)))])

    x = torch.zeros(1, 1, 8)
    assert can_select_tokens(stack(lambda: nn.LayerNorm(8)), x, EMPTY)
    assert not can_select_tokens(stack(lambda: nn.BatchNorm1d(8)), x, EMPTY)
