"""Heads are changed one after the other, each alone, and nothing stays behind."""

from __future__ import annotations

import weakref

import torch
from torch import Tensor

from headway.inspect.ablation import edited, heads_of, one_by_one
from headway.nn.context import Context
from headway.nn.trace import Off, Only, Trace, record
from headway.zoo import gpt2, transformer
from headway.zoo.build import build

CONFIG = gpt2.Config(vocab=11, context=8, dim=8, layers=2, heads=2, hidden=16)
IDS = torch.tensor([[1, 5, 3, 7]])


def test_heads_are_counted_by_site() -> None:
    assert heads_of(build(CONFIG)) == {"0.attn": 2, "1.attn": 2}
    both = build(transformer.Config(vocab=11, dim=8, layers=1, heads=2, hidden=16))
    assert heads_of(both) == {"encoder.0.attn": 2, "decoder.0.attn": 2, "decoder.0.cross": 2}


@torch.no_grad()
def test_each_head_is_changed_alone() -> None:
    model = build(CONFIG).eval()
    found = {(site, head): value for site, head, value in one_by_one(model, Off(), lambda: model(IDS))}
    assert list(found) == [(site, head) for site in ("0.attn", "1.attn") for head in range(2)]
    for (site, head), measured in found.items():
        with record(model, edit={f"{site}.weights": Off()(head)}):
            assert torch.equal(measured, model(IDS))
        assert not torch.equal(measured, model(IDS))
    assert len({tuple(value.flatten().tolist()) for value in found.values()}) == 4


@torch.no_grad()
def test_without_all_heads_a_site_says_the_same_of_everything() -> None:
    model = build(CONFIG).eval()
    weights = [Off()(0), Only()(0)]
    trace = Trace(model, "0.attn.heads")
    with edited(model, {"0.attn.weights": lambda w: weights[1](weights[0](w))}):
        model(IDS, Context(trace=trace))
    heads = trace["0.attn.heads"]
    assert isinstance(heads, Tensor)
    assert heads.abs().max() == 0


@torch.no_grad()
def test_nothing_is_kept_however_much_is_read() -> None:
    model = build(CONFIG).eval()
    seen = list[weakref.ref[Tensor]]()

    def change(weights: Tensor) -> Tensor:
        made = weights * 0.5
        seen.append(weakref.ref(made))
        return made

    with edited(model, {"0.attn.weights": change}):
        for _ in range(5):
            model(IDS)
        assert sum(ref() is not None for ref in seen) <= 1
    assert not any(ref() is not None for ref in seen)
