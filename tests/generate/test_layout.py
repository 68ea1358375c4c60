"""Weights that lie otherwise in memory are the same weights."""

from __future__ import annotations

from pathlib import Path
from threading import Barrier, Thread

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from headway.errors import UserError
from headway.generate.decoding import generate
from headway.generate.session import DecodingSession, encode_sources
from headway.generate.weight_layout import arrange, arrange_waiting
from headway.loading import load
from headway.model import Model
from headway.nn.attention import SelfAttention
from headway.nn.context import Context
from headway.nn.fused_linear import apply_each, fuse, fuse_in_place
from headway.nn.trunk import EncoderDecoder, Trunk
from headway.zoo import gpt2, transformer
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


def laid_out(model: nn.Module) -> bool:
    parts = [part for part in model.modules() if type(part) is SelfAttention and alike(part)]
    return all(fuse_in_place([part.q, part.k, part.v]) is not None for part in parts)  # type: ignore[list-item]


def saved(folder: Path, made: Model) -> nn.Module:
    """A model as `load` gives it, which has not been used yet."""
    made.save(folder)
    return load(folder).model


def small_gpt() -> Model:
    torch.manual_seed(0)
    config = gpt2.Config(vocab=32, context=16, dim=8, layers=2, heads=2)
    return Model(gpt2.build(config).eval(), config, "gpt2")


@torch.no_grad()
def test_weights_stay_in_their_file_until_they_are_used(tmp_path: Path) -> None:
    """A model is arranged by whoever uses it first, once, and what is done before holds."""
    made = small_gpt()
    plain, model = made.model, saved(tmp_path, made)
    assert isinstance(plain, Trunk)
    assert isinstance(model, Trunk)
    assert not laid_out(model)
    plain.head.weight[3] += 1.0
    model.head.weight[3] += 1.0
    weight = model.head.weight
    assert told(generate(model, PROMPTS)) == told(generate(plain, PROMPTS))
    assert laid_out(model)
    assert model.head.weight is weight
    before = weight.data_ptr()
    generate(model, PROMPTS)
    assert weight.data_ptr() == before


def test_a_task_arranges_its_model(tmp_path: Path) -> None:
    small_gpt().save(tmp_path)
    loaded = load(tmp_path)
    assert not laid_out(loaded.model)
    with pytest.raises(UserError, match="no tokenizer"):
        assert loaded.task
    assert laid_out(loaded.model)


@pytest.mark.parametrize("way", ["whole", "sources", "decoder"])
def test_all_of_an_encoder_and_decoder_is_arranged(way: str, tmp_path: Path) -> None:
    config = transformer.Config(vocab=32, dim=8, layers=2, heads=2)
    whole = saved(tmp_path, Model(transformer.build(config).eval(), config, "transformer"))
    assert isinstance(whole, EncoderDecoder)
    assert not laid_out(whole)
    with torch.inference_mode():  # as commands decode
        if way == "whole":
            arrange_waiting(whole)
        elif way == "sources":
            encode_sources(whole, [[3, 4]])
        else:
            DecodingSession(whole.decoder, [[1]], 2, memory=Context(memory=torch.zeros(1, 1, 8)))
    assert laid_out(whole.encoder)
    assert laid_out(whole.decoder)
    whole.decoder.head.weight.square().sum().backward()  # no tensor of inference mode


def test_threads_wait_for_the_arrangement(tmp_path: Path) -> None:
    """Eight that come at once see weights that lie as they will stay."""
    model = saved(tmp_path, small_gpt())
    come, seen = Barrier(8), list[bool]()

    def use() -> None:
        come.wait()
        arrange_waiting(model)
        seen.append(laid_out(model))

    threads = [Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [True] * 8
