"""Laws of the order: pure in (seed, epoch) and in the step; every row once; batches within their budget.

And of random numbers by key.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.data.order import PADDED, Buckets, Numbers, Steps, StreamWindows, keyed, random_for, shuffled, spans
from headway.errors import UserError

SMALL = Buckets(np.random.default_rng(0).integers(1, 30, (200, 2)), tokens=100, seed=3)
TEXT = StreamWindows(total=1000, length=16, rows=5, seed=3)
ORDERS = {"buckets": SMALL, "windows": TEXT}

any_lengths = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=120)


def as_lists(batches: Sequence[Numbers]) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


def padded_size(lengths: Numbers, batch: Numbers) -> int:
    return len(batch) * int(lengths[batch].max(0).sum())


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_an_epoch_is_pure(order: Buckets | StreamWindows) -> None:
    again = pickle.loads(pickle.dumps(order))
    for number in (4, 0, 2):
        assert as_lists(again.epoch(number)) == as_lists(order.epoch(number))


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_epochs_and_seeds_differ(order: Buckets | StreamWindows) -> None:
    orders = [as_lists(replace(order, seed=seed).epoch(number)) for seed in range(3) for number in range(3)]
    assert all(one != other for i, one in enumerate(orders) for other in orders[:i])


@pytest.mark.slow
@given(lengths=any_lengths, tokens=st.integers(1, 300), rows=st.none() | st.integers(1, 9), seed=st.integers(0, 99))
def test_every_row_once_and_no_batch_too_large(
    lengths: list[tuple[int, int]], tokens: int, rows: int | None, seed: int
) -> None:
    sizes = np.array(lengths)
    batches = Buckets(sizes, tokens, seed, rows).epoch(1)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    for batch in batches:
        assert rows is None or len(batch) <= rows
        assert len(batch) == 1 or (sizes[batch].sum() <= tokens and padded_size(sizes, batch) <= PADDED * tokens)


@pytest.mark.slow
@given(lengths=any_lengths, tokens=st.integers(1, 300))
def test_one_column_is_a_table_of_one(lengths: list[tuple[int, int]], tokens: int) -> None:
    column = np.array(lengths)[:, 0]
    assert as_lists(Buckets(column, tokens, 0).epoch(0)) == as_lists(Buckets(column[:, None], tokens, 0).epoch(0))


def test_what_the_caller_changes_later_changes_nothing() -> None:
    lengths = np.arange(1, 101)
    order = Buckets(lengths, 200, 0)
    before = as_lists(order.epoch(0))
    lengths[:] = 1
    assert as_lists(order.epoch(0)) == before


def test_batches_are_full_and_hold_little_padding() -> None:
    """Lengths like those of Multi30k: 15 ± 6 subwords, the other language nearly as many."""
    draw = np.random.default_rng(0)
    source = np.clip(np.exp(draw.normal(2.65, 0.38, 20_000)), 3, 50).round().astype(int)
    lengths = np.stack([source, np.clip(source + draw.normal(0.5, 2.8, 20_000), 3, 60).round().astype(int)], 1)
    for tokens in (1024, 4096):
        batches = Buckets(lengths, tokens, 0).epoch(0)
        padded = sum(padded_size(lengths, batch) for batch in batches)
        assert 1 - lengths.sum() / padded < 0.08
        assert lengths.sum() / (len(batches) * tokens) > 0.95


def test_batches_come_in_no_order_of_length() -> None:
    batches = SMALL.epoch(0)
    means = np.array([SMALL.lengths[batch].mean() for batch in batches])
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.4


def test_rows_meet_others_in_another_epoch() -> None:
    lengths = np.full(400, 10)
    one, two = ({frozenset(batch.tolist()) for batch in Buckets(lengths, 40, 0).epoch(n)} for n in (0, 1))
    assert len(one & two) == 0


def test_a_row_above_the_budget_stands_alone() -> None:
    batches = Buckets(np.array([3, 500, 3, 3]), 10, 0).epoch(0)
    assert [1] in as_lists(batches)
    assert sorted(map(len, batches)) == [1, 3]


@given(total=st.integers(2, 400), length=st.integers(1, 40), rows=st.integers(1, 7), number=st.integers(0, 5))
def test_windows_say_every_token_once(total: int, length: int, rows: int, number: int) -> None:
    if total <= length:
        with pytest.raises(UserError, match="too short"):
            StreamWindows(total, length, rows, 0)
        return
    batches = StreamWindows(total, length, rows, 0).epoch(number)
    assert all(len(batch) == rows for batch in batches[:-1])
    assert 1 <= len(batches[-1]) <= rows
    said = sorted(token for start in np.concatenate(batches) for token in range(start + 1, start + length + 1))
    assert said == list(range(said[0], said[-1] + 1))  # each once, without a gap
    assert said[0] <= length
    assert total - length <= said[-1] < total


def test_windows_shift() -> None:
    shifts = {min(int(batch.min()) for batch in TEXT.epoch(number)) for number in range(200)}
    assert shifts == set(range(16))


def test_spans_by_hand() -> None:
    assert spans(10, 3).tolist() == [0, 3, 6]
    assert spans(11, 3, 1).tolist() == [1, 4, 7]
    assert spans(4, 3).tolist() == [0]


class Counted:
    """An order whose epochs have 3, 5, 2, 3, 5, 2, … batches."""

    def epoch(self, number: int) -> list[Numbers]:
        return [np.array([number, batch]) for batch in range((3, 5, 2)[number % 3])]


def test_steps_by_hand() -> None:
    steps = Steps(Counted(), accumulate=2)
    read = [[(place.epoch, place.batch) for place in steps.at(step)] for step in range(5)]
    assert read == [[(0, 0), (0, 1)], [(0, 2), (1, 0)], [(1, 1), (1, 2)], [(1, 3), (1, 4)], [(2, 0), (2, 1)]]
    assert [steps.steps_for(epochs) for epochs in range(5)] == [0, 2, 4, 5, 7]
    assert steps.epochs_until(0) == 0
    assert steps.epochs_until(2) == pytest.approx(1.2)
    assert steps.epochs_until(4) == 2


@pytest.mark.slow
@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("order", [*ORDERS.values(), Counted()], ids=[*ORDERS, "counted"])
def test_steps_are_pure(order: Buckets | StreamWindows | Counted, accumulate: int) -> None:
    total = Steps(order, accumulate).steps_for(3) + 2
    forward = Steps(order, accumulate)
    read = {step: told(forward, step) for step in range(total)}
    asked = random.Random(0).sample(range(total), total)
    shared = Steps(order, accumulate)
    for step in asked:
        assert told(shared, step) == read[step]
    for step in asked[:5]:
        assert told(Steps(order, accumulate), step) == read[step]  # resumed here
        assert told(pickle.loads(pickle.dumps(shared)), step) == read[step]  # asked by a worker


@pytest.mark.parametrize("accumulate", [1, 4])
def test_no_row_is_repeated_or_skipped(accumulate: int) -> None:
    steps = Steps(SMALL, accumulate)
    seen: dict[int, Counter[int]] = {}
    places = [place for step in range(steps.steps_for(3)) for place in steps.at(step)]
    for place in places:
        seen.setdefault(place.epoch, Counter()).update(place.rows.tolist())
    for epoch in range(3):
        assert seen[epoch] == Counter(range(200))
    assert len({(place.epoch, place.batch) for place in places}) == len(places)


def told(steps: Steps, step: int) -> list[tuple[int, int, list[int]]]:
    return [(place.epoch, place.batch, place.rows.tolist()) for place in steps.at(step)]


@pytest.mark.slow
def test_what_was_read_is_left_behind_in_pickling() -> None:
    steps = Steps(Buckets(np.full(100_000, 20), 2000, 0))
    steps.at(5000)
    assert len(pickle.dumps(steps)) < 150_000


def test_no_more_than_two_epochs_are_kept() -> None:
    steps = Steps(SMALL)
    for step in range(steps.steps_for(6)):
        steps.at(step)
    assert len(steps.recent) == 2


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Buckets(np.empty(0, dtype=int), 10, 0), "no rows"),
        (lambda: Buckets(np.ones(3), 0, 0), "0 tokens in a batch"),
        (lambda: Buckets(np.ones(3), 5, 0, rows=0), "0 rows in a batch"),
        (lambda: StreamWindows(100, 0, 1, 0), "0 tokens in a span"),
        (lambda: StreamWindows(100, 5, 0, 0), "0 rows in a batch"),
        (lambda: StreamWindows(0, 5, 1, 0), "give more text"),
        (lambda: StreamWindows(5, 5, 1, 0), "a context of 4 or less"),
        (lambda: Steps(SMALL, 0), "0 batches in a step"),
    ],
)
def test_impossible_orders_are_refused(make: type, said: str) -> None:
    with pytest.raises(UserError, match=said):
        make()


PARTS = st.lists(st.integers() | st.text(), max_size=4)


@pytest.mark.slow
@given(one=PARTS, other=PARTS)
def test_different_parts_give_different_numbers(one: list[int | str], other: list[int | str]) -> None:
    assert (keyed(*one) == keyed(*other)) == (one == other)
    assert 0 <= keyed(*one) < 2**63


def test_parts_are_not_joined() -> None:
    alike = [("ab",), ("a", "b"), ("b", "a"), ("", "ab"), ("ab", ""), (1, 2), (12,), ("12",), ("1", 2), ("number 1 1",)]
    assert len({keyed(*parts) for parts in alike}) == len(alike)
    assert keyed(np.int64(7), "x") == keyed(7, "x")


def test_numbers_are_the_same_on_every_machine() -> None:
    assert keyed() == 724655455495936113
    assert keyed(1, "a") == 1898269867380166437
    assert keyed("1", "a") == 1212028363627843360
    by_hand = hashlib.sha256(b"number 2 -5text 3 \xe2\x82\xac").digest()
    assert keyed(-5, "€") == int.from_bytes(by_hand[:8], "little") // 2
    assert random_for("noise", 3).bit_generator.random_raw(2).tolist() == [11974126540365509059, 10645586937304303768]
    assert shuffled(8, "rows", 0, 1).tolist() == [3, 6, 2, 4, 7, 0, 5, 1]


@pytest.mark.slow
def test_numbers_are_the_same_in_a_process_with_other_hashes() -> None:
    code = "from headway.data.order import keyed; print(keyed('a', 1))"
    told = [
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        )
        for seed in ("1", "2")
    ]
    assert [int(done.stdout) for done in told] == [keyed("a", 1)] * 2


def test_streams_are_their_own() -> None:
    streams = [random_for(seed, name, step) for seed in (0, 1) for name in ("drop", "mask") for step in range(20)]
    drawn = np.stack([stream.random(200) for stream in streams])
    assert len(np.unique(drawn)) == drawn.size
    assert abs(np.corrcoef(drawn) - np.eye(len(drawn))).max() < 0.35  # five times the spread of unrelated streams
    assert np.array_equal(random_for(0, "drop", 3).random(200), drawn[3])


@given(count=st.integers(0, 300), seed=st.integers())
def test_shuffled_is_a_permutation(count: int, seed: int) -> None:
    assert sorted(shuffled(count, seed).tolist()) == list(range(count))


def test_every_number_comes_first_equally_often() -> None:
    first = np.bincount([shuffled(5, "law", trial)[0] for trial in range(2000)], minlength=5)
    assert abs(first - 400).max() < 5 * 18  # five standard deviations
