"""`headway inspect rollout` of models with an encoder and a decoder: what of the source reaches what is written."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from headway.errors import UserError
from headway.inspect.attribution import RolloutResult, RolloutStream
from headway.inspect.attribution import rollout as inspect_rollout
from headway.nn.trace import record
from headway.ops.attention_rollout import (
    CrossLayer,
    SelfLayer,
    gradient_rollout,
    gradient_rollout_across,
    rollout,
    rollout_across,
)
from headway.tasks.tracing import Choices, FrameAxis, GridAxis
from tests.look.readers import READERS, loaded, read

CROSSING = {  # and what the source is called
    "transformer": "source",
    "bart": "source",
    "marian": "source",
    "t5": "source",
    "captioner, vit": "cells-5x7",
    "captioner, class token": "cells-5x7+1",
    "conformer, decoder": "frames",
    "whisper": "frames",
}


def followed(name: str, wanted: str | None = None, row: int | None = None) -> RolloutResult:
    return inspect_rollout(loaded(name), READERS[name].given(), gradient=wanted, row=row)


def sides(found: RolloutResult) -> tuple[RolloutStream, RolloutStream, RolloutStream]:
    """What a decoder has from its source and from itself, and what its encoder has."""
    source, target, encoder = found.streams
    return source, target, encoder


@pytest.mark.slow
@pytest.mark.parametrize("name", CROSSING)
def test_all_of_a_word_comes_from_source_and_target(name: str) -> None:
    source, target, encoder = sides(followed(name))
    assert (source.rows.name, source.axis.name) == ("prefix", CROSSING[name])
    assert (target.rows, target.axis, encoder.axis) == (source.rows, source.rows, source.axis)
    assert source.sites == target.sites == tuple(site for site in read(name).sites if site.startswith("decoder."))
    for seen, own in zip(source.layers, target.layers, strict=True):
        assert_close(seen.sum(-1) + own.sum(-1), torch.ones(len(source.rows)))
    assert source.layers[0].abs().max() == 0  # before it looks across
    assert source.row == target.row == read(name).outcome.steps[-1].at
    assert encoder.row is None


@pytest.mark.parametrize("name", ["transformer", "whisper"])
def test_across_is_what_the_library_computes(name: str) -> None:
    sites = read(name).sites
    memory = rollout([sites[site].map.full()[0] for site in sites if site.startswith("encoder.")])[-1]
    layers = [
        (CrossLayer if site.endswith("cross") else SelfLayer)(sites[site].map.full()[0])
        for site in sites
        if site.startswith("decoder.")
    ]
    source, target, _ = sides(followed(name))
    for reach, seen, own in zip(rollout_across(layers, memory), source.layers, target.layers, strict=True):
        assert_close(seen, reach.source)
        assert_close(own, reach.target)


def gradients(name: str, step: int, choice: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Weights, and the derivative of a logit by each, also through what later layers make of a change."""
    shown, kept = read(name), dict[str, Tensor]()

    def keep(site: str) -> Callable[[Tensor], Tensor]:
        def edit(weights: Tensor) -> Tensor:
            weights.retain_grad()
            kept[site] = weights
            return weights

        return edit

    edits = {f"{site}.weights": keep(site) for site in shown.sites}
    told = shown.run.reader
    assert isinstance(told, Choices)
    with torch.enable_grad(), record(shown.run.model, *edits, edit=edits):
        told.head(shown.run.call())[step, choice].backward()
    slopes = {site: torch.zeros_like(one) if one.grad is None else one.grad for site, one in kept.items()}
    return {site: kept[site].detach()[0] for site in shown.sites}, {site: slopes[site][0] for site in shown.sites}


@pytest.mark.parametrize("name", ["transformer", "t5", "conformer, decoder"])
def test_gradients_are_followed_across(name: str) -> None:
    said = read(name).outcome.steps[0].said
    found = followed(name, said)
    assert found.target is not None
    maps, slopes = gradients(name, found.target.step, found.target.choice)
    inside = [site for site in maps if site.startswith("encoder.")]
    memory = gradient_rollout([maps[site] for site in inside], [slopes[site] for site in inside])[-1]
    names = [site for site in maps if site.startswith("decoder.")]
    layers = [(CrossLayer if site.endswith("cross") else SelfLayer)(maps[site]) for site in names]
    expected = gradient_rollout_across(layers, [slopes[site] for site in names], memory)
    source, target, encoder = sides(found)
    assert source.row == found.target.at
    assert source.layers[-1][source.row].max() > 0
    assert_close(encoder.layers[-1], memory - torch.eye(len(memory)))
    for reach, seen, own in zip(expected, source.layers, target.layers, strict=True):
        assert_close(seen, reach.source, rtol=1e-3, atol=1e-6)
        assert_close(own, reach.target - torch.eye(len(own)), rtol=1e-3, atol=1e-6)


def test_what_is_not_yet_written_speaks_for_nothing() -> None:
    """A word's score depends on what was read until then: what later rows look at has no part in it."""
    found = followed("t5", read("t5").outcome.steps[0].said)
    assert found.target is not None
    source, target, _ = sides(found)
    at = found.target.at
    assert at is not None
    assert source.layers[-1][at + 1 :].abs().max() == 0
    assert target.layers[-1][at + 1 :].abs().max() == 0


@pytest.mark.slow
def test_the_class_token_reaches_a_caption_through_the_cells() -> None:
    """A decoder is not shown it, but the cells have looked at it."""
    source, _, _ = sides(followed("captioner, class token"))
    assert isinstance(source.axis, GridAxis)
    assert source.axis.first == 1
    sites = read("captioner, class token").sites
    memory = rollout([site.map.full()[0] for name, site in sites.items() if name.startswith("encoder.")])[-1]
    looked = sites["decoder.0.cross"].map.full()[0].mean(0)  # at the cells alone
    assert_close(source.layers[1], looked @ memory[1:] / 2)
    assert source.layers[1][:, 0].min() > 0
    assert "cells-5x7+1, at " in source.panel().title


@pytest.mark.slow
def test_a_row_is_one_of_what_is_written() -> None:
    source, target, encoder = sides(followed("transformer", row=0))
    assert (source.row, target.row, encoder.row) == (0, 0, None)
    last = len(source.rows) - 1
    with pytest.raises(UserError, match=f"row={last + 1}; allowed: 0 to {last}"):
        followed("transformer", row=last + 1)
    heard, _, inside = sides(followed("conformer, decoder"))
    assert isinstance(inside.axis, FrameAxis)
    assert (heard.row is None, inside.row) == (False, None)  # no word is read at a frame


def test_it_is_told_in_words() -> None:
    told = followed("transformer").to_text()
    assert "source, after decoder.0.cross, at " in told
    assert " of the prefix (" in told


@pytest.mark.parametrize("name", ["rnn", "captioner, soft"])
def test_what_does_not_look_at_itself_is_not_rolled_out(name: str) -> None:
    with pytest.raises(UserError, match="no self-attention to roll out"):
        followed(name)
