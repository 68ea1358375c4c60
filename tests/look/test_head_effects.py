"""What becomes of the outcome when a head is edited, as a page is told it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from headway import UserError
from headway.look.bundle import pack_bundle
from headway.look.head_edits import CALL_FLOPS, MAX_FLOPS, HeadEdit, affordable_edits, head_effects, parse_edit
from headway.look.run_data import effects_to_json, outcome_to_json
from headway.nn.trace import HEAD_EDITS, Off
from headway.tasks.tracing import Outcome, OutcomeStep
from tests.look.readers import loaded
from tests.look.recordings import drawn, numbered, site


def test_effects_are_every_edit_of_every_head() -> None:
    recording = drawn(site("0.attn", ("a", "b"), heads=3), site("1.attn", ("a", "b")))
    told = pack_bundle([recording], effects={0: list(head_effects(recording))}).data["runs"][0]
    assert [(each["site"], each["head"], each["how"]) for each in told["effects"]] == [
        (name, head, how)
        for name, heads in (("0.attn", 3), ("1.attn", 2))
        for head in range(heads)
        for how in HEAD_EDITS
    ]
    assert told["sites"][0]["stats"]["effect"] == [-1.0, -2.0, -3.0]
    assert len(told["effects"][0]["outcome"]["steps"][0]["top"]) == 4


@pytest.mark.slow
def test_effects_are_what_python_gives() -> None:
    recording = loaded("gpt2").attend("the cat")
    assert affordable_edits(recording) == tuple(HEAD_EDITS)
    told = pack_bundle([recording], effects={0: list(head_effects(recording))}).data["runs"][0]
    [off] = [each for each in told["effects"] if (each["head"], each["how"]) == (1, "off")]
    again = recording.edited(HeadEdit("0.attn", 1, Off()))
    assert off["outcome"]["total"] == pytest.approx(again.total, rel=1e-5)
    assert off["outcome"]["text"] == again.text
    assert told["sites"][0]["stats"]["effect"][1] == pytest.approx(again.total - recording.outcome.total, abs=1e-4)


def test_unknown_effects_are_none() -> None:
    told = pack_bundle([drawn(site("0.attn", ("a",)))]).data["runs"][0]
    assert told["effects"] is None
    assert told["sites"][0]["stats"]["effect"] is None


def test_effects_fit_a_budget_that_is_counted() -> None:
    """All kinds of edits, or switching off alone, or none: by parameters, tokens and heads, and not by a clock."""
    small = drawn(site("0.attn", numbered(10)))
    assert affordable_edits(small) == tuple(HEAD_EDITS)
    one = 2 * 11  # FLOPs of a parameter: 10 keys and a step
    every, off = ((MAX_FLOPS // (2 * kinds) - CALL_FLOPS) // one for kinds in (3, 1))  # of two heads
    assert affordable_edits(replace(small, parameters=every)) == tuple(HEAD_EDITS)
    assert affordable_edits(replace(small, parameters=every + 1)) == ("off",)
    assert affordable_edits(replace(small, parameters=off)) == ("off",)
    assert affordable_edits(replace(small, parameters=off + 1)) == ()
    assert affordable_edits(replace(small, parameters=every), 0.5) == ("off",)
    assert {each.how for each in head_effects(small, ("off",))} == {"off"}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("0.atn", 0, "off"), "no site '0.atn' to edit; allowed: 0.attn; did you mean '0.attn'?"),
        ((None, 0, "off"), "no site None to edit; allowed: 0.attn"),
        (("0.attn", 2, "off"), "0.attn has no head 2; allowed: 0 to 1"),
        (("0.attn", -1, "off"), "0.attn has no head -1; allowed: 0 to 1"),
        (("0.attn", "0", "off"), "0.attn has no head '0'; allowed: 0 to 1"),
        (("0.attn", True, "off"), "0.attn has no head True; allowed: 0 to 1"),
        (("0.attn", 1, "gone"), "unknown edit 'gone'; allowed: off, uniform, only, cut, token, patch"),
        (("0.attn", 1, ["off"]), "unknown edit ['off']; allowed: off, uniform, only, cut, token, patch"),
    ],
)
def test_an_edit_that_cannot_be_is_told(asked: tuple[Any, Any, Any], said: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_edit(drawn(site("0.attn", ("a",))), dict(zip(("site", "head", "how"), asked, strict=True)))
    assert str(caught.value) == said


@pytest.mark.parametrize("head", [2, -1, True, "0"])
def test_a_head_is_checked_in_one_way(head: Any) -> None:
    recording = loaded("gpt2").attend("the cat")
    with pytest.raises(UserError) as asked:
        parse_edit(recording, {"site": "0.attn", "head": head, "how": "off"})
    with pytest.raises(UserError) as edited:
        recording.edited(HeadEdit("0.attn", head, Off()))
    assert str(asked.value) == str(edited.value) == f"0.attn has no head {head!r}; allowed: 0 to 1"


def test_a_head_may_be_numbered_by_an_array() -> None:
    recording = loaded("gpt2").attend("the cat")
    [head] = np.array([1])
    assert recording.edited(HeadEdit("0.attn", head, Off())) == recording.edited(HeadEdit("0.attn", 1, Off()))


@pytest.mark.slow
def test_steps_of_many_effects_give_way() -> None:
    recording = drawn(site("0.attn", ("a", "b")))
    one = next(head_effects(recording))
    for count, top in ((10, 4), (3_000, 3), (5_000, 1), (50_000, None)):
        told = effects_to_json([replace(one, outcome=replace(one.outcome, steps=one.outcome.steps * count))])
        assert len(json.dumps(told)) < 600_000
        steps = told[0]["outcome"]["steps"]
        assert [len(step["top"]) for step in steps[:1]] == ([] if top is None else [top])


@pytest.mark.slow
def test_all_steps_of_an_outcome_are_told_with_fewer_rivals() -> None:
    step = OutcomeStep(0, "b", -0.5, tuple(("word", 0.1) for _ in range(10)))
    told = outcome_to_json(Outcome("next", "a", (step,) * 4096, -1.0))
    assert len(told["steps"]) == 4096
    assert len(told["steps"][0]["top"]) == 5
