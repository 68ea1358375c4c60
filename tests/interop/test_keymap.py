"""A checkpoint map read in both directions: names, changes, and what has no rule."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from headway.errors import UserError
from headway.interop.keymap import KeyMap, Row, Rule, Split, Transpose, Unstack

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


def test_each_star_is_a_number_of_its_own() -> None:
    names = KeyMap((Rule("h.*.experts.*.w", "blocks.*.ffn.*.up"),))
    theirs = {f"h.{i}.experts.{j}.w": torch.randn(2) for i in (0, 10) for j in (3, 12)}
    assert_close(names.load(theirs)["blocks.10.ffn.3.up"], theirs["h.10.experts.3.w"])
    assert_close(names.save(names.load(theirs)), theirs, atol=0, rtol=0)


def test_stacked_tensors_are_taken_apart_and_stacked_again() -> None:
    """Two kinds of three matrices, one kind behind the other along the second axis."""
    ours = tuple(f"{kind}.{i}" for kind in ("gate", "up") for i in range(3))
    names = KeyMap((Rule("fused", ours, (Split(2, 1), Unstack(3))),))
    fused = torch.randn(3, 8, 5)
    assert_close(names.load({"fused": fused})["up.2"], fused[2, 4:])
    assert_close(names.save(names.load({"fused": fused})), {"fused": fused}, atol=0, rtol=0)


def test_the_first_of_two_layouts_is_written() -> None:
    names = KeyMap((Rule("new", "x"), Rule("old", "x")))
    assert set(names.save(names.load({"old": torch.ones(1)}))) == {"new"}


def test_a_head_may_stand_outside_the_prefix() -> None:
    names = KeyMap((Rule("x", "x"), Rule("bias", "head.bias", (Row(),), outside=True)), prefixes=("model.", ""))
    theirs = {"model.x": torch.ones(2), "bias": torch.randn(1, 3)}
    assert_close(names.load(theirs)["head.bias"], theirs["bias"][0])
    assert_close(names.save(names.load(theirs)), theirs, atol=0, rtol=0)


def test_what_a_file_leaves_out_is_made_of_the_rest() -> None:
    names = KeyMap((Rule("x", "x"), Rule("bias", "bias")), absent={"bias": ("x", lambda x: x.new_zeros(len(x)))})
    assert_close(names.load({"x": torch.ones(2, 3)})["bias"], torch.zeros(2))
    assert_close(names.load({"x": torch.ones(2, 3), "bias": torch.ones(2)})["bias"], torch.ones(2))
    assert set(names.load({"bias": torch.ones(2)})) == {"bias"}


def test_either_name_of_a_tie_will_do() -> None:
    theirs = {"head.weight": THEIRS["wte.weight"], "h.0.qkv": THEIRS["h.0.qkv"]}
    assert_close(MAP.load(theirs)["embed.weight"], THEIRS["wte.weight"])


def test_ties_are_one_tensor() -> None:
    assert set(MAP.load(THEIRS | {"head.weight": THEIRS["wte.weight"]})) == set(MAP.load(THEIRS))
    with pytest.raises(UserError, match=r"'head\.weight' and 'wte\.weight' should be one tensor and differ"):
        MAP.load(THEIRS | {"head.weight": THEIRS["wte.weight"] + 1})
