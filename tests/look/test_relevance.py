"""Gradient rollout over a picture: as headway inspect rollout has it, as shares of each row."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from headway.inspect.attribution import rollout
from headway.look.head_edits import HeadEdit
from headway.look.page_data import PageData
from headway.look.relevance import RELEVANCE_PREFIX, relevance, weight_gradients
from headway.nn.trace import Off
from headway.tasks.tracing import Choices
from tests.look.readers import READERS, loaded, read


@pytest.mark.parametrize("name", ["vit", "swin"])
def test_relevance_is_that_of_inspect_in_shares(name: str) -> None:
    recording = read(name)
    found = relevance(recording)
    assert found
    streams = rollout(loaded(name), READERS[name].given(), gradient=recording.outcome.text).streams
    for stream in streams:
        for site, layer in zip(stream.sites, stream.layers, strict=True):
            total = layer.sum(-1, keepdim=True)
            expected = torch.where(total > 0, layer / total, 0.0)
            assert_close(found[f"{RELEVANCE_PREFIX}{site}"].map.full()[0, 0], expected, atol=1e-5, rtol=1e-5)


def test_gradients_are_those_of_small_changes() -> None:
    """Of the logit that was said, by one weight of the last layer."""
    recording = read("vit")
    reader = recording.run.reader
    assert isinstance(reader, Choices)
    assert reader.said is not None
    site = list(recording.sites)[-1]
    found = weight_gradients(recording, 0, reader.said[0], [site])[site]
    head, row, column = 0, 0, int(found.gradient[0, 0].abs().argmax())
    from headway.nn.trace import record

    def logit(change: float) -> float:
        def edit(weights: torch.Tensor) -> torch.Tensor:
            weights = weights.clone()
            weights[:, head, row, column] += change
            return weights

        with torch.no_grad(), record(recording.run.model, edit={recording.sources[site].site.weights_name: edit}):
            return float(reader.head(recording.run.call()[:1])[0, reader.said[0]])

    slope = (logit(0.05) - logit(-0.05)) / 0.1
    assert float(found.gradient[head, row, column]) == pytest.approx(slope, rel=0.02, abs=1e-3)


def test_a_page_has_both_rollouts_of_a_picture_also_with_edits() -> None:
    recording = read("vit")
    page = PageData(recording, 0, 64)
    labels = [each["label"] for each in page.sites_json]
    assert "rollout to layer 1 · attn" in labels
    assert "gradient rollout to layer 1 · attn" in labels
    edited = PageData(recording.under(HeadEdit("0.attn", 0, Off())), 1, 64)
    assert [site.name for site in edited.sites] == [site.name for site in page.sites]


@pytest.mark.parametrize("name", ["bert", "captioner, vit", "sets"])
def test_other_outcomes_have_none(name: str) -> None:
    assert relevance(read(name)) == {}
