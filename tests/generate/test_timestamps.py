"""Times among the tokens: laws of what may be written, against transformers' own masks, and cuts by eye."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import inf
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from headway.generate.transcribe import TimedSpan, TimeRules, WindowSegments, cut_segments
from tests.laws.subjects import cases

END, UNTIMED, FIRST, VOCAB = 6, 9, 10, 18  # six words, the end, two marks, <|notimestamps|>, eight times
RULES = TimeRules(never=(1,), not_first=(2,), end=END, first_time=FIRST, latest=3)
SPEECH = replace(RULES, never=(1, 7, 8))  # marks are no speech


@given(st.integers(0, 10_000), st.integers(1, 15))
@cases(30)
def test_whatever_is_written_has_its_times_in_order(seed: int, length: int) -> None:
    draw, written = torch.Generator().manual_seed(seed), list[int]()
    while len(written) < length and END not in written:
        logits = 4 * torch.randn(1, VOCAB, generator=draw)
        masked = SPEECH.masked(logits, len(written), [length], torch.tensor([[7, 8, *written]]))[0]
        assert masked.gt(-inf).any()
        written.append(int(torch.multinomial(masked.log_softmax(-1).exp(), 1, generator=draw)))
    runs = grouped([token for token in written if token != END])
    times = [run for timed, run in runs if timed]
    assert FIRST <= written[0] <= FIRST + 3
    assert {1, 7, 8, UNTIMED}.isdisjoint(written)
    assert len(times[0]) == 1
    assert all(len(run) == 2 for run in times[1:-1])
    assert all(run[0] <= run[-1] for run in times)
    assert all(before[-1] < after[0] for before, after in pairwise(times))


def test_a_prefix_is_above_the_order_of_times() -> None:
    rules, ids = replace(RULES, prefix=(4, 1)), torch.tensor([[7, 8, 4]])
    assert rules.masked(torch.zeros(1, VOCAB), 0, [9], ids[:, :2])[0].isfinite().nonzero().tolist() == [[4]]
    assert rules.masked(torch.zeros(1, VOCAB), 1, [9], ids)[0].isfinite().nonzero().tolist() == [[1]]


def grouped(written: list[int]) -> list[tuple[bool, list[int]]]:
    """Runs of times and runs of words, in turn."""
    runs: list[tuple[bool, list[int]]] = []
    for token in written:
        timed = token >= FIRST
        if runs and runs[-1][0] == timed:
            runs[-1][1].append(token)
        else:
            runs.append((timed, [token]))
    return runs


@given(st.integers(0, 10_000), st.lists(st.integers(0, VOCAB - 1), max_size=6), st.booleans())
@cases(60)
def test_masks_are_those_of_transformers(seed: int, written: list[int], strict: bool) -> None:
    from transformers.generation.logits_process import WhisperTimeStampLogitsProcessor

    latest = 3 if strict else None
    told = SimpleNamespace(
        no_timestamps_token_id=UNTIMED, eos_token_id=END, bos_token_id=END, max_initial_timestamp_index=latest
    )
    logits = 3 * torch.randn(2, VOCAB, generator=torch.Generator().manual_seed(seed))
    ids = torch.tensor([[7, 8, *written], [8, 7, *written[::-1]]])
    if any(not in_order(row[2:]) for row in ids.tolist()):
        return  # neither writes this
    expected = WhisperTimeStampLogitsProcessor(told, begin_index=2)(ids, logits)  # type: ignore[arg-type]
    rules = TimeRules(end=END, first_time=FIRST, latest=latest)
    assert_close(rules.masked(logits, len(written), [9, 9], ids), expected, atol=0, rtol=0)


def in_order(written: list[int]) -> bool:
    times = [token for token in written if token >= FIRST]
    return times == sorted(times)


T = FIRST


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([], WindowSegments([TimedSpan(0, 7, ())], 7)),
        ([1, 2], WindowSegments([TimedSpan(0, 7, (1, 2))], 7)),
        ([T, 1, 2], WindowSegments([TimedSpan(0, 7, (T, 1, 2))], 7)),  # only its beginning is known
        ([T + 1, 1, T + 4], WindowSegments([TimedSpan(0, 4, (T + 1, 1, T + 4))], 7)),  # nothing follows
        ([T, 1, T + 2, T + 2, 3], WindowSegments([TimedSpan(0, 2, (T, 1, T + 2))], 2)),  # the rest is heard again
        (
            [T, 1, T + 2, T + 3, 3, T + 5],
            WindowSegments([TimedSpan(0, 2, (T, 1, T + 2)), TimedSpan(3, 5, (T + 3, 3, T + 5))], 7),
        ),
        (
            [T, 1, T + 2, T + 3, 3, T + 5, T + 5],
            WindowSegments([TimedSpan(0, 2, (T, 1, T + 2)), TimedSpan(3, 5, (T + 3, 3, T + 5))], 5),
        ),
    ],
)
def test_cuts_by_eye(tokens: list[int], expected: WindowSegments) -> None:
    assert cut_segments(tokens, FIRST, 7) == expected


@pytest.mark.parametrize(
    ("written", "allowed"),
    [
        ([], [T, T + 1, T + 2, T + 3]),
        ([T + 1], [0, 2, 3, 4, 5, 6, 7, 8]),  # words, and no second time
        ([T + 1, 4], [0, 2, 3, 4, 5, 6, 7, 8, *range(T + 2, VOCAB)]),  # a segment ends later than it begins
        ([T + 1, 4, T + 3], [6, 7, 8, *range(T + 3, VOCAB)]),  # the next begins then or later, or all ends
        ([T + 1, 4, T + 3, T + 3], [0, 2, 3, 4, 5, 6, 7, 8]),
    ],
)
def test_what_may_come_by_eye(written: list[int], allowed: list[int]) -> None:
    logits = torch.zeros(1, VOCAB)
    logits[:, FIRST:] = -20.0  # less likely together than any word
    masked = RULES.masked(logits, len(written), [9], torch.tensor([[7, *written]]))
    assert masked[0].gt(-inf).nonzero()[:, 0].tolist() == allowed


def test_a_time_is_written_where_all_together_are_likelier_than_a_word() -> None:
    logits = torch.full((1, VOCAB), -20.0)
    logits[:, 4], logits[:, FIRST:] = 1.0, 0.0  # six times that may come, each less likely than the word
    ids = torch.tensor([[T + 1, 4]])
    assert int(RULES.masked(logits, 2, [9], ids).argmax()) == T + 2
    logits[:, 4] = 2.0
    assert int(RULES.masked(logits, 2, [9], ids).argmax()) == 4
