"""Weights that lie otherwise in memory are the same weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from headway.generate.decoding import generate
from headway.generate.session import arrange
from headway.nn.attention import SelfAttention, apply_each, fuse, fuse_in_place
from tests.generate.models import MODELS, PROMPTS, built, memory_of, told
from tests.laws.subjects import Subject

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("subject", MODELS, ids=str)
def test_arranged_is_the_same(subject: Subject) -> None:
    plain, model = built(subject), subject.build()
    arrange(model)
    moved = [name for name, weight in model.named_parameters() if not weight.is_contiguous()]
    assert moved
    attentions = [part for part in model.modules() if type(part) is SelfAttention and alike(part)]
    with torch.no_grad():
        assert all(fuse_in_place([part.q, part.k, part.v]) for part in attentions)
    for (name, ours), theirs in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert ours.shape == theirs.shape
        assert_close(ours, theirs, atol=0, rtol=0, msg=name)
    x, memory = torch.tensor([[1, 2, 3, 4]]), memory_of(subject, [0])
    with torch.no_grad():
        assert_close(model(x, memory), plain(x, memory), atol=1e-5, rtol=1e-5)
    memory = memory_of(subject, [0, 1, 2, 3])
    assert told(generate(model, PROMPTS, memory=memory)) == told(generate(plain, PROMPTS, memory=memory))  # type: ignore[arg-type]


def alike(part: SelfAttention) -> bool:
    """Whisper's keys have no bias, and cannot be joined with queries and values, which have."""
    return len({layer.bias is None for layer in (part.q, part.k, part.v) if isinstance(layer, nn.Linear)}) == 1


def test_what_is_shared_stays_shared() -> None:
    gpt = next(subject for subject in MODELS if subject.name == "gpt").build()
    arrange(gpt)
    assert gpt.embed.token.weight is gpt.head.weight  # type: ignore[union-attr]


def attention(**options: int) -> SelfAttention:
    torch.manual_seed(0)
    return SelfAttention(8, 4, **options)


@pytest.mark.parametrize("options", [{}, {"kv_heads": 2}, {"head_dim": 5}], ids=str)
@torch.no_grad()
def test_layers_side_by_side_are_each_by_itself(options: dict[str, int]) -> None:
    part, x = attention(**options), torch.randn(2, 1, 8)
    alone = apply_each(x, part.q, part.k, part.v)
    assert fuse_in_place([part.q, part.k, part.v]) is None
    arrange(part)
    assert fuse_in_place([part.q, part.k, part.v]) is not None
    assert fuse_in_place([part.q, part.v, part.k]) is None
    for one, other in zip(apply_each(x, part.q, part.k, part.v), alone, strict=True):
        assert_close(one, other)


@torch.no_grad()
def test_who_needs_a_layer_by_itself_gets_it() -> None:
    """A hook, another tensor in its place; and a gradient."""
    part = attention()
    arrange(part)
    layers, seen = (part.q, part.k, part.v), list[int]()
    with torch.enable_grad():
        assert fuse(layers, 1) is None
    handle = part.k.register_forward_hook(lambda *given: seen.append(1))
    part(torch.randn(1, 1, 8))
    handle.remove()
    assert seen == [1]
    assert fuse(layers, 1) is not None
    part.v.weight = nn.Parameter(part.v.weight.clone())
    assert fuse(layers, 1) is None
    part = attention()
    arrange(part)
    part.k.bias = nn.Parameter(part.k.bias.clone())
    assert fuse((part.q, part.k, part.v), 1) is None


@pytest.mark.parametrize("fused", [True, False])
def test_what_lies_joined_can_learn(fused: bool) -> None:
    """torch's fused optimisers take for granted that a parameter lies alone, and would write over its neighbours."""
    x, plain, laid = torch.randn(2, 5, 8), attention(), attention()
    arrange(laid)
    for part in (plain, laid):
        optimiser = torch.optim.AdamW(part.parameters(), lr=0.1, eps=1e-3, fused=fused)
        for _ in range(3):
            optimiser.zero_grad()
            part(x).square().sum().backward()
            optimiser.step()
    for one, other in zip(laid.parameters(), plain.parameters(), strict=True):
        assert_close(one, other, atol=1e-4, rtol=1e-3)
