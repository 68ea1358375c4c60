"""A bare model is the model: the same numbers, recordings and states, and hooks are heeded."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from headway.generate.bare import bare
from headway.generate.loop import generate
from headway.generate.stopping import Stop
from headway.nn.context import Context
from headway.nn.state import State
from headway.nn.trace import record
from tests.generate.models import MODELS, built, memory_of, subject
from tests.laws.subjects import Subject

X = torch.tensor([[1, 2, 3, 4, 5]])


@pytest.mark.parametrize("subject", MODELS, ids=str)
@torch.no_grad()
def test_it_computes_the_same(subject: Subject) -> None:
    model, memory = built(subject), memory_of(subject, [0])
    light = bare(model)
    assert light is not model
    assert_close(light(X, memory), model(X, memory), atol=0, rtol=0)


@torch.no_grad()
def test_it_shares_states_and_recordings_with_its_original() -> None:
    model = built(subject("llama"))
    light, state = bare(model), State()
    with record(model, "*") as trace:
        found = torch.cat([light(X[:, :2], Context(state=state)), model(X[:, 2:], Context(state=state))], 1)
    assert_close(found, model(X))
    assert {len(values) for values in trace.values.values()} == {2}


@torch.no_grad()
def test_what_is_written_into_the_weights_is_seen() -> None:
    model = subject("gpt").build()
    light = bare(model)  # type: ignore[arg-type]
    model.stack.norm.bias.add_(1.0)  # type: ignore[union-attr]
    assert_close(light(X), model(X), atol=0, rtol=0)


@pytest.mark.parametrize("everywhere", [False, True])
def test_hooks_are_heeded(everywhere: bool) -> None:
    model, calls = subject("gpt").build(), list[tuple[int, ...]]()
    linear = next(part for part in model.modules() if isinstance(part, nn.Linear))

    def note(part: nn.Module, given: tuple[Tensor, ...], found: Tensor) -> None:
        if part is linear:
            calls.append(tuple(found.shape))

    register = nn.modules.module.register_module_forward_hook if everywhere else linear.register_forward_hook
    handle = register(note)
    try:
        generate(model, [[1, 2, 3]], stop=Stop(most=3))  # type: ignore[arg-type]
    finally:
        handle.remove()
    assert len(calls) == 3
