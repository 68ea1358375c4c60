"""Laws of keyed random numbers and of names made from contents."""

from __future__ import annotations

import gzip
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.data.digest import digest
from headway.data.keyed import keyed, random_for, shuffled
from headway.errors import UserError

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
    code = "from headway.data.keyed import keyed; print(keyed('a', 1))"
    told = [
        subprocess.run([sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True)
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


def test_a_digest_is_of_contents(tmp_path: Path) -> None:
    one, two, same = tmp_path / "one", tmp_path / "two", tmp_path / "same"
    one.write_bytes(b"one")
    two.write_bytes(b"two")
    same.write_bytes(b"one")
    names = [
        digest([one]),
        digest([two]),
        digest([one, two]),
        digest([two, one]),
        digest([one], "two"),
        digest([], "one"),
        digest([], "one", "two"),
        digest([], "onetwo"),
        digest([]),
    ]
    assert len(set(names)) == len(names)
    assert digest([one], "x") == digest([same], b"x")
    one.write_bytes(b"onf")
    assert digest([one]) != names[0]
    literal = hashlib.sha256(b"file " + hashlib.sha256(b"two").digest()).hexdigest()
    assert digest([two]) == literal


def test_a_digest_notices_an_edit_that_keeps_size_and_date(tmp_path: Path) -> None:
    file = tmp_path / "text.gz"
    file.write_bytes(gzip.compress(b"hello"))
    before, dates = digest([file]), file.stat()
    file.write_bytes(gzip.compress(b"hallo"))
    os.utime(file, ns=(dates.st_atime_ns, dates.st_mtime_ns))
    assert file.stat().st_size == dates.st_size
    assert digest([file]) != before


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"absent\.txt does not exist"):
        digest([tmp_path / "absent.txt"])
    with pytest.raises(UserError, match="is a folder"):
        digest([tmp_path])
