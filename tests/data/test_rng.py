"""Laws of random numbers by key."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headway.data.rng import keyed, random_for, shuffled

PARTS = st.lists(st.integers() | st.text(), max_size=4)


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


def test_numbers_are_the_same_in_a_process_with_other_hashes() -> None:
    code = "from headway.data.rng import keyed; print(keyed('a', 1))"
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
