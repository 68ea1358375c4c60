"""How a model writes, told by name: the same for `predict`, `stream` and the command."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from headway.cli.model_commands import Writing
from headway.errors import UserError
from headway.generate.beam import Beam
from headway.generate.sampling import Greedy, RandomSampler
from headway.generate.speculative import PromptLookup
from headway.tasks.generation import generation_options
from tests.cli.folders import FOLDERS

GIVEN: dict[str, tuple[dict[str, Any], object]] = {
    "nothing": ({}, Greedy()),
    "a penalty": ({"repetition_penalty": 1.5}, Greedy(1.5)),
    "a temperature": ({"temperature": 0.5, "seed": 3}, RandomSampler(0.5, None, None, None, 1.0, 3)),
    "nucleus": ({"top_p": 0.9, "top_k": 5}, RandomSampler(1.0, 5, 0.9, None, 1.0, 0)),
    "beams": ({"beam": 3, "length_penalty": 1.0, "best": 2, "patient": True}, Beam(3, 1.0, 2, early=False)),
}


@pytest.mark.parametrize("name", GIVEN)
def test_options_choose_the_decoding(name: str) -> None:
    given, decoding = GIVEN[name]
    found = generation_options(max_new_tokens=7, stop="end", **given)
    assert (found.decoding, found.max_new_tokens, found.stop, found.draft) == (decoding, 7, ("end",), None)


def test_the_command_has_the_same_options() -> None:
    writing = Writing(max_new_tokens=7, stop=("a", "b"), temperature=0.5, repetition_penalty=1.2)
    found = generation_options(**writing.arguments())
    assert found.decoding == RandomSampler(0.5, None, None, None, 1.2, 0)
    assert (found.max_new_tokens, found.stop) == (7, ("a", "b"))


REFUSED: dict[str, dict[str, Any]] = {
    "max_new_tokens= is 0": {"max_new_tokens": 0},
    "beam= searches and does not draw": {"beam": 2, "temperature": 1.0},
    "beam= has no repetition_penalty=": {"beam": 2, "repetition_penalty": 2.0},
    "beam= follows many answers": {"beam": 2, "lookup": True},
    "best= is for beams; give beam= too": {"best": 2},
    "draft= and lookup= both guess": {"draft": nn.Identity(), "lookup": True},
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_cannot_be_asked_together_is_refused(said: str) -> None:
    with pytest.raises(UserError, match=said):
        generation_options(**REFUSED[said])


def test_a_model_writes_as_it_is_told() -> None:
    model = FOLDERS["causal"]()
    short = model.predict("the cat", max_new_tokens=3)
    assert len(short.tokens) <= 3
    one, two = (model.predict("the cat", max_new_tokens=8, temperature=1.0, seed=seed) for seed in (1, 1))
    assert one == two
    assert model.predict("the cat", max_new_tokens=8, temperature=1.0, seed=2) != one
    assert "".join(model.stream("the cat", max_new_tokens=8, temperature=1.0, seed=1)) == one.text
    assert isinstance(model.generation_options(lookup=True).draft, PromptLookup)
    assert model.generation_options(draft=model).draft is model.model
    assert len(model.predict("the cat", beam=2, best=2, max_new_tokens=3).hypotheses) == 2
    with pytest.raises(UserError, match="the draft model has other tokens"):
        model.generation_options(draft=FOLDERS["pairs"]())
