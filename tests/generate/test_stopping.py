"""Stop strings are heard where the whole text holds them, at a cost that does not grow with the text."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.data.tokenizer import Tokenizer
from headway.data.tokenizer_readers import load_tokenizer
from headway.generate.request import Reason, Request, Stop, StopMatcher
from headway.generate.sampling import Greedy

TOKENIZERS = ("gpt2_tokenizer", "llama_stories260k")
STRINGS = ("\n\n", " the", "e", "ab", "é", "日本", ". A", "   ")
LETTERS = "ab e.\nthéA日本"


@cache
def read(folder: Path) -> Tokenizer:
    return load_tokenizer(folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", TOKENIZERS)
@given(data=st.data())
def test_a_string_is_heard_with_the_token_that_completes_it(name: str, data: st.DataObject, shared: Path) -> None:
    """Against the definition: the first token with which the whole text, decoded anew, holds it."""
    words = read(shared / "weights" / name)
    spelled = data.draw(st.text(LETTERS, max_size=20).map(words.plain))
    ids = data.draw(st.lists(st.sampled_from([*spelled, *range(3, words.vocab)]), max_size=12) | st.just(spelled))
    strings = tuple(data.draw(st.lists(st.sampled_from(STRINGS), min_size=1, max_size=3)))
    slow, quick = (
        Stop(strings=strings, decode=words.decode),
        Stop(strings=strings, decode=words.decode, stream=words.stream),
    )
    assert heard(StopMatcher(quick), ids) == heard(StopMatcher(slow), ids)


def heard(watch: StopMatcher, ids: Sequence[int]) -> list[bool]:
    return [watch.push(token) for token in ids]


@pytest.mark.slow
@pytest.mark.parametrize("name", TOKENIZERS)
@given(text=st.text(LETTERS, max_size=16), others=st.text(LETTERS, max_size=8), at=st.integers(0, 12))
def test_a_copy_goes_on_by_itself(name: str, text: str, others: str, at: int, shared: Path) -> None:
    words = read(shared / "weights" / name)
    ids, strings = words.plain(text), ("ab", "é")
    watch = StopMatcher(Stop(strings=strings, decode=words.decode, stream=words.stream))
    begun, stream = heard(watch, ids[:at]), words.stream()
    said = "".join(stream.push(token) for token in ids[:at])
    fork, copied = watch.fork(), copy(stream)
    heard(fork, words.plain(others))
    for token in words.plain(others):
        copied.push(token)
    alone = StopMatcher(watch.stop)
    assert begun + heard(watch, ids[at:]) == heard(alone, ids)
    assert said + "".join(stream.push(token) for token in ids[at:]) + stream.end() == words.decode(ids)


def test_a_token_costs_the_same_however_many_came_before() -> None:
    """No token is read twice, and no more text is looked through than a stop string is long."""
    read, looked = list[int](), list[int]()

    class Letters:
        def push(self, id: int, /) -> str:
            read.append(id)
            return "abc"[id % 3]

    class Looking(Stop):
        def found(self, text: str) -> int | None:
            looked.append(len(text))
            return super().found(text)

    stop = Looking(500, strings=("cb", "never"), decode=lambda tokens: "", stream=Letters)
    request = Request(0, [0], Greedy(), stop, 500)
    for token in range(400):
        assert request.take(token, 0.0).reason is None
    assert read == list(range(400))
    assert max(looked) == len("never")


def test_what_may_begin_a_string_is_not_certain() -> None:
    stop = Stop(strings=("abc", "cd"), decode=str)
    assert [stop.certain(text) for text in ("", "x", "xa", "xab", "xac", "xabc", "ab ab", "cdab")] == [
        *(0, 1, 1, 1, 2, 1, 3, 0),
    ]


def test_strings_count_from_the_least_length_on() -> None:
    stop = Stop(9, min_new_tokens=3, strings=("b",), decode=lambda tokens: "".join("abc"[token] for token in tokens))
    request = Request(0, [0], Greedy(), stop, 9)
    assert [request.take(token, 0.0).reason for token in (1, 0, 2)] == [None, None, Reason.STRING]
    assert stop.text([1, 0, 2]) == ""
    assert stop.text([1, 0]) == "ba"
