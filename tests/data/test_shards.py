"""Laws of stores of tokens: what is written comes back, in bounded memory, whole or not at all."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.data import shards as shards_module
from headway.data.shards import Shards, write_shards
from headway.errors import UserError

ROWS = [([5, 6, 7], [1]), ([], [2]), ([8], [3])]

Rows = list[list[list[int]]]


def rows_of(shards: Shards) -> Rows:
    return [[column.tolist() for column in shards.row(number)] for number in range(len(shards))]


@st.composite
def tables(draw: st.DrawFn) -> tuple[Rows, int, int]:
    columns, vocab = draw(st.integers(1, 3)), draw(st.sampled_from([1, 300, 65_536, 65_537, 200_000]))
    column = st.lists(st.integers(0, vocab - 1), max_size=6)
    return draw(st.lists(st.lists(column, min_size=columns, max_size=columns), max_size=8)), columns, vocab


FORMS: list[Callable[[list[int]], Any]] = [list, np.array, iter, lambda ids: np.array(ids, dtype=np.uint32)]


@pytest.mark.slow
@given(table=tables(), form=st.sampled_from(FORMS), held=st.integers(1, 9), block=st.integers(1, 4))
def test_what_is_written_comes_back(
    table: tuple[Rows, int, int], form: Callable[[list[int]], Any], held: int, block: int
) -> None:
    rows, columns, vocab = table
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)  # which takes most of the time
        patch.setattr(shards_module, "BUFFERED_IDS", held)
        patch.setattr(shards_module, "BLOCK_IDS", block)
        given_rows = ([form(ids) if ids else () for ids in row] for row in rows)
        shards = write_shards(Path(folder) / "s", given_rows, columns, vocab)
        assert rows_of(shards) == rows
        assert (len(shards), shards.columns, shards.vocab) == (len(rows), columns, vocab)
        assert all(ids.dtype == np.int64 for number in range(len(rows)) for ids in shards.row(number))
        for column in range(columns):
            assert shards.lengths(column).tolist() == [len(row[column]) for row in rows]
        shards.verify()


@pytest.mark.slow
@given(rows=st.lists(st.lists(st.integers(0, 9), max_size=5), max_size=8), data=st.data())
def test_a_stream_crosses_rows(rows: list[list[int]], data: st.DataObject) -> None:
    text = [id for row in rows for id in row]
    begin = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(begin, len(text)))
    starts = {start for start, row in zip(accumulate(map(len, rows), initial=0), rows, strict=False) if row}
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        stream = write_shards(Path(folder) / "s", ([row] for row in rows), 1, 10).stream()
        assert len(stream) == len(text)
        assert stream[begin:end].tolist() == text[begin:end]
        assert stream.starts(begin, end).tolist() == sorted(start for start in starts if begin <= start < end)
        pieces = stream.pieces(begin, end).tolist()
    assert sum(pieces) == end - begin
    assert {begin + edge for edge in accumulate(pieces)} - {end} == {s for s in starts if begin < s < end}


def test_the_files_by_hand(tmp_path: Path) -> None:
    shards = write_shards(tmp_path / "s", ROWS, 2, 10)
    assert (tmp_path / "s/0.tokens").read_bytes() == bytes([5, 0, 6, 0, 7, 0, 8, 0])
    assert np.fromfile(tmp_path / "s/0.offsets", "<u8").tolist() == [0, 3, 3, 4]
    assert (tmp_path / "s/1.tokens").read_bytes() == bytes([1, 0, 2, 0, 3, 0])
    assert rows_of(shards) == [[[5, 6, 7], [1]], [[], [2]], [[8], [3]]]
    assert shards.stream().pieces(1, 4).tolist() == [2, 1]
    assert sorted(path.name for path in (tmp_path / "s").iterdir()) == [
        "0.offsets",
        "0.tokens",
        "1.offsets",
        "1.tokens",
        "index.json",
    ]


def test_a_pickled_store_is_a_name(tmp_path: Path) -> None:
    shards = write_shards(tmp_path / "s", [[range(100_000)]], 1, 100_000)
    for told in (shards, shards.stream()):
        assert len(pickle.dumps(told)) < 1000
    again = pickle.loads(pickle.dumps(shards.stream()))
    assert again[99_998:].tolist() == [99_998, 99_999]


def test_a_file_that_is_cut_later_is_told(tmp_path: Path) -> None:
    stream = write_shards(tmp_path / "s", [[range(1000)]], 1, 1000).stream()
    os.truncate(tmp_path / "s/0.tokens", 1000)
    assert stream[:500].tolist() == list(range(500))
    with pytest.raises(UserError, match=r"is not a whole store of tokens: 0.tokens has become shorter; remove it"):
        stream[499:501]


def test_a_relative_name_holds_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told = pickle.dumps(write_shards(Path("s"), ROWS, 2, 10))
    monkeypatch.chdir("/")
    assert len(pickle.loads(told)) == 3


WRITE_MUCH = r"""
import re, sys
from pathlib import Path
import numpy as np
from headway.data.shards import write_shards

def peak():
    # not getrusage: its peak counts the process that started this one
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) // 1024

write_shards(Path(sys.argv[1]) / "warm", [[np.arange(300_000)]], 1, 300_000)
before = peak()
block = np.arange(65_000) % 50_000
many = write_shards(Path(sys.argv[1]) / "many", ([block[: 500 + i % 500]] for i in range(40_000)), 1, 50_000)
one = write_shards(Path(sys.argv[1]) / "one", [[(i & 4095 for i in range(2_000_000))]], 1, 50_000)
read = sum(len(many.stream()[at : at + 1000]) for at in range(0, len(many.stream()), 1000))
print(read * 2 // 10**6, len(one.stream()), peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from /proc")
def test_memory_is_bounded(tmp_path: Path) -> None:
    told = subprocess.run([sys.executable, "-c", WRITE_MUCH, tmp_path], capture_output=True, text=True, check=True)
    read, ids, more = map(int, told.stdout.split())
    assert read == 59
    assert ids == 2_000_000
    assert more < 16  # MB, for a column of 59 MB, written and read, and a row of 2 million numbers that would take 60


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([[[10]]], "token 10 is not in the vocabulary; allowed: 0 to 9"),
        ([[[3], [4]]], "argument 2 is longer"),
        ([[[-1]]], "token -1"),
    ],
)
def test_wrong_rows_leave_nothing(tmp_path: Path, rows: Rows, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        write_shards(tmp_path / "s", rows, 1, 10)
    assert list(tmp_path.iterdir()) == []


def test_fractions_are_no_ids(tmp_path: Path) -> None:
    for ids in ([1.5], np.array([1.5])):
        with pytest.raises(TypeError):
            write_shards(tmp_path / "s", [[ids]], 1, 10)  # type: ignore[list-item]


def test_what_is_there_is_not_written_over(tmp_path: Path) -> None:
    write_shards(tmp_path / "s", ROWS, 2, 10)
    with pytest.raises(UserError, match="is there already"):
        write_shards(tmp_path / "s", [[[1], [2]]], 2, 10)
    assert len(Shards(tmp_path / "s")) == 3


def test_rows_beyond_the_end_are_refused(tmp_path: Path) -> None:
    shards = write_shards(tmp_path / "s", ROWS, 2, 10)
    for number in (-1, 3):
        with pytest.raises(IndexError):
            shards.row(number)


NAMES = ["0.tokens", "0.offsets", "1.tokens", "1.offsets"]


@pytest.mark.parametrize("name", NAMES)
def test_every_changed_byte_is_found(tmp_path: Path, name: str) -> None:
    shards = write_shards(tmp_path / "s", ROWS, 2, 10)
    file = tmp_path / "s" / name
    whole = file.read_bytes()
    for place in range(len(whole)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(UserError, match=rf"{name} is not what was written"):
            shards.verify()


@pytest.mark.parametrize("name", [*NAMES, "index.json"])
def test_a_cut_or_missing_file_is_found_at_opening(tmp_path: Path, name: str) -> None:
    write_shards(tmp_path / "s", ROWS, 2, 10)
    file = tmp_path / "s" / name
    whole = file.read_bytes()
    for left in (whole[:-2], whole[: len(whole) // 2], b"", whole + b"x"):
        file.write_bytes(left)
        with pytest.raises(UserError):
            Shards(tmp_path / "s")
    file.unlink()
    with pytest.raises(UserError):
        Shards(tmp_path / "s")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("format", "headway shards 0"),
        ("columns", 1),
        ("rows", 2),
        ("vocab", 70_000),
        ("files", {}),
        ("files", None),
        ("columns", "two"),
    ],
)
def test_an_index_that_tells_otherwise_is_found(tmp_path: Path, field: str, value: object) -> None:
    write_shards(tmp_path / "s", ROWS, 2, 10)
    index = tmp_path / "s/index.json"
    index.write_text(json.dumps({**json.loads(index.read_text()), field: value}))
    with pytest.raises(UserError, match="is not a whole store of tokens"):
        Shards(tmp_path / "s")
