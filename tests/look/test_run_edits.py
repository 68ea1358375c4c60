"""Cut edges, cut tokens and patched heads: what the model does with them is what masks and other inputs say."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from headway.errors import UserError
from headway.look.head_edits import EdgeCut, HeadEdit, HeadPatch, TokenCut, parse_edit
from headway.nn.trace import Off
from tests.look.readers import READERS, loaded, other, read

MODELS = ["gpt2", "bert", "transformer", "rnn", "vit", "captioner, soft", "whisper", "albert", "t5"]


@pytest.mark.parametrize("name", MODELS)
def test_without_an_edit_a_run_is_what_it_was(name: str) -> None:
    recording = read(name)
    again = recording.under()
    assert again.outcome == recording.outcome
    for site in recording.sites:
        torch.testing.assert_close(again[site].full(), recording[site].full(), rtol=0, atol=0)


@pytest.mark.parametrize("name", MODELS)
def test_a_cut_edge_is_masked(name: str) -> None:
    """The key has no weight, the rest of the row is scaled to one, and nothing else of this map has changed."""
    recording = read(name)
    site = next(iter(recording.sites))
    before = recording[site].full()[0]
    head, row = before.shape[0] - 1, before.shape[1] - 1
    column = int(before[head, row].argmax())
    expected = before.clone()
    expected[head, row, column] = 0
    expected[head, row] /= expected[head, row].sum()
    cut = EdgeCut(site, head, row, column)
    torch.testing.assert_close(recording.under(cut)[site].full()[0], expected.nan_to_num(0), rtol=1e-5, atol=1e-6)
    assert recording.edited(cut).total == pytest.approx(recording.under(cut).outcome.total)
    assert recording.edited(cut).total != recording.outcome.total


@pytest.mark.parametrize("name", ["gpt2", "bert", "transformer", "whisper"])
def test_nobody_else_sees_a_cut_token(name: str) -> None:
    recording = read(name)
    axis = next(iter(recording.sites.values())).columns
    edited = recording.under(TokenCut(axis.name, 1))
    for site in edited.sites.values():
        weights = site.map.full()[0]
        if site.columns != axis:
            continue
        others = [row for row in range(len(site.rows)) if site.rows != axis or row != 1]
        assert weights[:, others, 1].abs().max() == 0
        sums = weights.sum(-1)
        torch.testing.assert_close(sums, torch.ones_like(sums))


def test_a_text_that_is_written_stays_where_a_place_of_it_is_cut() -> None:
    recording = read("transformer")
    cut = EdgeCut("decoder.0.cross", 0, 1, 0)
    assert recording.edited(cut).text == recording.outcome.text
    assert recording.edited(cut, HeadEdit("decoder.0.cross", 1, Off())).text == recording.outcome.text


@pytest.mark.parametrize("name", ["gpt2", "bert", "transformer", "albert"])
def test_patching_all_heads_brings_the_other_input(name: str) -> None:
    """From itself nothing changes; in one layer, the patched heads give just what they gave there."""
    recording = read(name)
    given = READERS[name].given().replace("cat", "dog")
    there = loaded(name).attend(given, said=recording)
    site = next(iter(recording.sites))
    itself = recording.edited(HeadPatch(site, 0, recording))
    assert itself.total == pytest.approx(recording.outcome.total, abs=1e-6)
    assert recording.edited(HeadPatch(site, 0, there)).total != recording.outcome.total


def test_a_patch_needs_the_same_model_and_length() -> None:
    recording = read("bert")
    with pytest.raises(UserError, match="rows here and"):
        recording.edited(HeadPatch("0.attn", 0, loaded("bert").attend("the cat [MASK]")))
    stranger = other("bert").attend(READERS["bert"].given())
    with pytest.raises(UserError, match="another input of the same model"):
        recording.edited(HeadPatch("0.attn", 0, stranger))


def test_cells_of_windows_are_not_cut() -> None:
    with pytest.raises(UserError, match="within windows"):
        read("swin").edited(EdgeCut("0.1.attn.attention", 0, 0, 0))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"how": "cut", "row": 99, "column": 0}, "there is no row 99"),
        ({"how": "cut", "row": 0, "column": True}, "there is no column True"),
        ({"how": "token"}, "there is no column None"),
        ({"how": "patch"}, "there is no other input"),
        ({"how": "gone"}, "unknown edit 'gone'"),
    ],
)
def test_a_place_that_is_not_there_is_told(change: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        parse_edit(read("bert"), {"site": "0.attn", "head": 0, **change})
