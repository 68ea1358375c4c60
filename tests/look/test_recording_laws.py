"""Laws of looking, tried on every kind of model."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from headway import record
from headway.look.head_edits import HeadEdit
from headway.native.sequence_attention import native_attend
from headway.nn.trace import Off, Only
from tests.look.readers import READERS, read

every_reader = pytest.mark.parametrize("name", READERS)


@every_reader
def test_every_map_is_in_the_coordinates_of_its_axes(name: str) -> None:
    recording = read(name)
    assert recording.outcome.kind == READERS[name].kind
    assert set(READERS[name].sites) <= set(recording.sites)
    for site in recording.sites.values():
        assert site.map.shape == (1, site.heads, len(site.rows), len(site.columns))
        assert not site.rows.name.startswith("items-"), "an axis that nobody knew"
        full = site.map.full()
        assert not full.requires_grad
        assert_close(full.sum(-1), torch.ones(site.map.shape[:3]))


@every_reader
def test_reading_leaves_the_output_and_the_kernel_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run, fused, calls = read(name).run, F.scaled_dot_product_attention, list[int]()

    def counted(*given: Tensor, **more: object) -> Tensor:
        calls.append(1)
        return fused(*given, **more)  # type: ignore[arg-type]

    def native(*given: Tensor, **more: object) -> Tensor | None:
        found = native_attend(*given, **more)  # type: ignore[arg-type]
        calls.extend([1] if found is not None else [])
        return found

    monkeypatch.setattr(F, "scaled_dot_product_attention", counted)
    monkeypatch.setattr("headway.ops.attend.native_attend", native)
    with torch.no_grad():
        plain = run.call()
        before = len(calls)
        with record(run.model, "*.weights", "*.values", "*.input"):
            seen = run.call()
    assert torch.equal(plain, seen)
    assert len(calls) == 2 * before
    assert before > 0 or name in ("rnn", "captioner, soft", "captioner, hard")  # an additive score has no such kernel


@every_reader
def test_an_outcome_is_what_its_steps_say(name: str) -> None:
    outcome = read(name).outcome
    if outcome.kind == "vector":
        assert (outcome.steps, outcome.total) == ((), 0.0)
        return
    assert outcome.total == pytest.approx(sum(step.logprob for step in outcome.steps))
    for step in outcome.steps:
        chances = [chance for _, chance in step.top]
        assert chances == sorted(chances, reverse=True)
        assert len(chances) <= 10
        assert sum(chances) <= 1 + 1e-5
        assert math.exp(step.logprob) <= chances[0] + 1e-6
        if step.said == step.top[0][0]:
            assert math.exp(step.logprob) == pytest.approx(chances[0], abs=1e-5)


@pytest.mark.slow
@every_reader
def test_no_edit_changes_nothing_and_each_edit_is_felt(name: str) -> None:
    recording = read(name)
    assert recording.edited() == recording.outcome
    site = recording.sites[READERS[name].sites[-1]]
    head = site.heads - 1
    off = recording.edited(HeadEdit(site.name, head, Off()))
    assert off.total != recording.outcome.total
    assert [(step.at, step.said) for step in off.steps] == [(s.at, s.said) for s in recording.outcome.steps]
    assert recording.effect(HeadEdit(site.name, head, Off())) == off.total - recording.outcome.total
    if site.heads > 1:
        others = [HeadEdit(site.name, one, Off()) for one in range(head)]
        assert recording.edited(*others) == recording.edited(HeadEdit(site.name, head, Only()))


@every_reader
def test_the_detail_of_a_site_gives_its_weights(name: str) -> None:
    recording = read(name)
    for site in recording.sites.values():
        found, weights = recording.detail(site.name), site.map.full()[0]
        heads, queries, keys = weights.shape
        assert found.q.shape[:2] == (heads, queries)
        assert found.k.shape[:2] == found.v.shape[:2] == (heads, keys)
        assert found.q.shape[2] == found.k.shape[2]
        assert found.out.shape[1] == heads * found.v.shape[2]
        assert found.x is None or len(found.x) == queries
        logits = torch.stack([found.terms(0, row, keys - 1).sum() for row in range(queries)])
        assert_close(logits, scores(found.q, found.k, found.scale, found.additive)[0, :, -1], atol=1e-4, rtol=1e-4)
        biased = scores(found.q, found.k, found.scale, found.additive) + (0 if found.bias is None else found.bias)
        soft = biased.softmax(-1)
        used = F.one_hot(soft.argmax(-1), keys).float() if recording.is_hard(site.name) else soft
        assert_close(used, weights, atol=1e-5, rtol=1e-4)


@every_reader
def test_a_row_leads_to_what_the_model_used(name: str) -> None:
    """Σ w v is what each head gave on: a map of weights that the model did not use would give something else."""
    recording = read(name)
    with torch.no_grad(), record(recording.run.model, "*.heads") as trace:
        recording.run.call()
    for site in recording.sites.values():
        source = recording.sources[site.name]
        if source.tiling is not None:
            continue  # the same in tiles
        heads = trace.all(f"{source.site.name}.heads".lstrip("."))[source.call]
        assert isinstance(heads, Tensor)
        assert_close(site.map.full()[0] @ recording.detail(site.name).v, heads[0], atol=1e-4, rtol=1e-4)


@pytest.mark.slow
@every_reader
def test_what_a_query_does_not_see_has_no_weight(name: str) -> None:
    for site in read(name).sites.values():
        band = site.map.band(0, len(site.rows))
        seen = site.map.seen(band)
        assert seen is None or not band.weights[~seen[:, None].expand_as(band.weights)].any()
        assert seen is None or seen.any(-1).all()


def scores(q: Tensor, k: Tensor, scale: float, additive: Tensor | None) -> Tensor:
    return scale * q @ k.mT if additive is None else (q[:, :, None] + k[:, None]).tanh() @ additive
