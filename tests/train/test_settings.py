"""YAML 1.2: what plain words mean, what is refused, and that what is written is read back."""

from __future__ import annotations

import math
import re
import shlex
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import UserError
from headway.training.settings import read_yaml, write_yaml, yaml_scalar

letters = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]))
WORDS = shlex.split("no Yes on OFF y null ~ 3e-4 0o17 010 1_000 1:30 2020-01-01 .inf = << 0x1F 1e5 +1 - ? | > ... été")
SIGNS = shlex.split(r"""'' '- a' 'a: b' '#c' 'a #b' ' a' "'" '"' '\' {a} [ '&a' *a !a %a @ ` 'C:\data'""")
RARE = ["a\n", "\t", "\x7f", "\x85", "\u2028", "\ufeff", "\U0001f600"]
tricky = st.sampled_from([*WORDS, *SIGNS, *RARE])
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), letters, tricky)
keys = st.one_of(letters, tricky)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(keys, inner, max_size=4)),
    max_leaves=12,
)


def same(one: Any, other: Any) -> bool:
    """Equal, with the same types, floats to the last bit."""
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and repr(one) == repr(other)


@pytest.mark.slow
@given(st.dictionaries(keys, values, min_size=1, max_size=5))
def test_what_is_written_is_read_back(value: dict[str, Any]) -> None:
    assert same(read_yaml(write_yaml(value), "r.yaml").value, value)


@pytest.mark.slow
@given(st.dictionaries(keys, values, min_size=1, max_size=5))
def test_readers_of_version_1_1_see_the_same(value: dict[str, Any]) -> None:
    assert same(yaml.safe_load(write_yaml(value)), value)


@given(st.floats())
def test_floats_keep_every_bit(number: float) -> None:
    found = read_yaml(write_yaml({"x": number}), "r.yaml").value["x"]
    assert found.hex() == number.hex()
    assert isinstance(yaml.safe_load(write_yaml({"x": number}))["x"], float)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    said = refusal(text)
    assert said is None or (said.startswith("r.yaml") and "\n" not in said)


def refusal(text: str) -> str | None:
    try:
        read_yaml(text, "r.yaml")
    except UserError as error:
        return str(error)
    return None


MEANINGS = {
    "3e-4": 3e-4,
    "1E5": 1e5,
    ".5": 0.5,
    "1.": 1.0,
    "-.inf": -math.inf,
    "010": 10,
    "+12": 12,
    "0o17": 15,
    "0x1F": 31,
    "true": True,
    "FALSE": False,
    "~": None,
    "": None,
    "no": "no",
    "Yes": "Yes",
    "on": "on",
    "off": "off",
    "1_000": "1_000",
    "1:30": "1:30",
    "2020-01-01": "2020-01-01",
    "0b11": "0b11",
    "nan": "nan",
    "tRue": "tRue",
    "9" * 5000: "9" * 5000,
}


@pytest.mark.parametrize("text", MEANINGS, ids=lambda text: text[:12])
def test_plain_words_mean_what_version_1_2_says(text: str) -> None:
    assert same(yaml_scalar(text), MEANINGS[text])
    assert same(read_yaml(f"a: {text}", "r.yaml").value["a"], MEANINGS[text])


def test_quotes_make_text() -> None:
    assert read_yaml("a: '5'\nb: \"no\"\nc: !!str 5\nd: |\n  5\n", "r").value == {
        "a": "5",
        "b": "no",
        "c": "5",
        "d": "5\n",
    }


def test_every_key_has_its_line() -> None:
    found = read_yaml("# a recipe\nseed: 1\ntrain:\n\n  steps: 5\n  betas: [0.9,\n    0.98]\n", "r.yaml")
    assert found.lines == {
        ("seed",): 2,
        ("train",): 3,
        ("train", "steps"): 5,
        ("train", "betas"): 6,
        ("train", "betas", 0): 6,
        ("train", "betas", 1): 7,
    }


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)
REFUSED = {
    "a: 1\nb: 2\na: 3": "r.yaml line 3: 'a' is there twice, first on line 1; keep one",
    "a:\n  b: 1\n  b: 1": "r.yaml line 3: 'b' is there twice, first on line 2; keep one",
    "a: !!python/object/apply:os.system [ls]": "r.yaml line 1: the tag !!python/object/apply:os.system is not read",
    "x: 1\na: !!python/name:os.system": "r.yaml line 2: the tag !!python/name:os.system is not read",
    "!!python/tuple a: 1": "r.yaml line 1: a key is not a plain word",
    "a: !mine 3": "r.yaml line 1: the tag !mine is not read",
    "a: !!binary aGk=": "r.yaml line 1: the tag !!binary is not read",
    "? [1, 2]\n: 3": "r.yaml line 1: a key is not a plain word",
    "a: b: c": "r.yaml line 1: this is not YAML",
    "a: [1": "r.yaml line 1: this is not YAML",
    "a: *b": "r.yaml line 1: this is not YAML: found undefined alias",
    "a: 1\n---\na: 2": "r.yaml line 2: this is not YAML",
    "a: \x00": "r.yaml line 1: this is not YAML",
    "a: &a [*a]": "r.yaml line 1: the values are too many or too deep",
    "[" * 5000: "r.yaml is nested too deeply",
    BOMB: "r.yaml line 1: the values are too many or too deep",
}


@pytest.mark.slow
@pytest.mark.parametrize("text", REFUSED, ids=lambda text: re.sub(r"\W+", " ", text)[:20])
def test_what_is_refused_is_told_with_its_line(text: str) -> None:
    said = refusal(text)
    assert said is not None
    assert said.startswith(REFUSED[text])
    assert "\n" not in said


def test_a_file_without_values_holds_nothing() -> None:
    assert read_yaml("# only a comment\n", "r.yaml").value is None


def test_writing_is_plain_to_see() -> None:
    value = {"seed": 0, "train": {"rate": 3e-5, "note": "no", "betas": [0.9, 0.98], "none": {}}, "name": "a/b.tsv"}
    comments = {("train",): "\nHow", ("train", "rate"): "the rate"}
    assert write_yaml(value, comments) == (
        "seed: 0\n\n# How\ntrain:\n  # the rate\n  rate: 3.0e-05\n"
        '  note: "no"\n  betas: [0.9, 0.98]\n  none: {}\nname: a/b.tsv\n'
    )
