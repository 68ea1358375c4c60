"""A checkpoint map read in both directions: names, changes, and what has no rule."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from headway.errors import UserError
from headway.interop.keymap import KeyMap, Rule, Split, Transpose

MAP = KeyMap(
    rules=(
        Rule("wte.weight", "embed.weight"),
        Rule("h.*.qkv", ("blocks.*.q", "blocks.*.k", "blocks.*.v"), (Transpose(), Split(3))),
    ),
    prefixes=("model.", ""),
    ignored=("h.*.mask",),
    ties={"head.weight": "wte.weight"},
)
THEIRS = {"wte.weight": torch.randn(5, 4), "h.0.qkv": torch.randn(4, 12), "h.11.qkv": torch.randn(4, 12)}


def test_a_map_reads_both_ways() -> None:
    ours = MAP.load(THEIRS)
    assert set(ours) == {"embed.weight", *(f"blocks.{i}.{part}" for i in (0, 11) for part in "qkv")}
    assert_close(ours["blocks.11.k"], THEIRS["h.11.qkv"].T[4:8])
    assert_close(MAP.save(ours), {f"model.{name}": x for name, x in THEIRS.items()}, atol=0, rtol=0)


def test_a_prefix_may_stand_before_all_names() -> None:
    assert set(MAP.load({f"model.{name}": x for name, x in THEIRS.items()})) == set(MAP.load(THEIRS))


def test_what_holds_nothing_is_ignored() -> None:
    assert set(MAP.load(THEIRS | {"h.0.mask": torch.ones(1)})) == set(MAP.load(THEIRS))


def test_what_has_no_rule_is_listed() -> None:
    with pytest.raises(UserError, match=r"2 tensors have no place in this model: h\.0\.extra, odd"):
        MAP.load(THEIRS | {"odd": torch.ones(1), "h.0.extra": torch.ones(1)})
    with pytest.raises(UserError, match=r"1 parameters have no name there: odd"):
        MAP.save(MAP.load(THEIRS) | {"odd": torch.ones(1)})


def test_ties_are_one_tensor() -> None:
    assert set(MAP.load(THEIRS | {"head.weight": THEIRS["wte.weight"]})) == set(MAP.load(THEIRS))
    with pytest.raises(UserError, match=r"'head\.weight' and 'wte\.weight' should be one tensor and differ"):
        MAP.load(THEIRS | {"head.weight": THEIRS["wte.weight"] + 1})
