"""Laws of the cache of tokens: made once, whole or not there, by one process or by many, wherever it may be kept."""

from __future__ import annotations

import gzip
import hashlib
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headway.data import shard_cache
from headway.data.shard_cache import cache_folder, cached_shards
from headway.data.shards import Shards, digest, write_shards
from headway.errors import UserError
from tests.data.test_shards import NAMES, ROWS, rows_of

EXPECTED = [[list(ids) for ids in row] for row in ROWS]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("HEADWAY_CACHE", str(folder))
    return folder


def make(folder: Path) -> None:
    write_shards(folder, ROWS, 2, 10)


def never(folder: Path) -> None:
    raise AssertionError("made again")


def test_a_store_is_made_once(own_cache: Path) -> None:
    first = cached_shards("key", make)
    assert rows_of(cached_shards("key", never)) == rows_of(first)
    assert first.folder == own_cache.resolve() / "shards" / "key"
    assert len(cached_shards("other", lambda folder: write_shards(folder, [[[1]]], 1, 10))) == 1
    assert sorted(os.listdir(own_cache / "shards")) == ["key", "other"]


@pytest.mark.parametrize("name", [*NAMES, "index.json"])
def test_a_damaged_store_is_made_anew(own_cache: Path, name: str) -> None:
    whole = rows_of(cached_shards("key", make))
    for damage in (lambda file: file.unlink(), lambda file: file.write_bytes(file.read_bytes()[:-2])):
        damage(own_cache / "shards/key" / name)
        with pytest.warns(UserWarning, match="is damaged and is made anew"):
            assert rows_of(cached_shards("key", make)) == whole
    assert rows_of(cached_shards("key", never)) == whole
    assert os.listdir(own_cache / "shards") == ["key"]


def test_a_maker_that_fails_leaves_nothing(own_cache: Path) -> None:
    def fail(folder: Path) -> None:
        make(folder)
        raise UserError("line 7 is wrong")

    with pytest.raises(UserError, match="line 7"):
        cached_shards("key", fail)
    with pytest.raises(UserError):
        cached_shards("key", lambda folder: folder.mkdir(parents=True))  # made nothing
    assert os.listdir(own_cache / "shards") == []


def failing_rows() -> Iterator[tuple[list[int], list[int]]]:
    yield from ROWS
    raise OSError(5, "Input/output error", "data.txt")


def test_data_that_cannot_be_read_leaves_nothing(own_cache: Path) -> None:
    with pytest.raises(OSError, match=r"data\.txt"):
        cached_shards("key", lambda folder: write_shards(folder, failing_rows(), 2, 10))
    assert os.listdir(own_cache / "shards") == []


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: .*0\.tokens"):
        write_shards(tmp_path / "s", ROWS, 2, 10)
    assert list(tmp_path.iterdir()) == []


CALLS = ["fsync", "rename", "replace"]


def build_until(call: int) -> None:
    """In a process of its own: makes the store, and dies at the given call that touches the disk."""
    left = [call]

    def dying(real: Callable[..., object]) -> Callable[..., object]:
        def wrapped(*given: object) -> object:
            left[0] -= 1
            if left[0] == 0:
                os._exit(9)
            return real(*given)

        return wrapped

    for name in CALLS:
        setattr(os, name, dying(getattr(os, name)))
    cached_shards("key", make)
    os._exit(0)


@pytest.mark.slow
def test_a_crash_anywhere_leaves_no_half_store(own_cache: Path) -> None:
    fork = multiprocessing.get_context("fork")
    call, code = 0, 9
    while code == 9:
        call += 1
        shutil.rmtree(own_cache, ignore_errors=True)
        process = fork.Process(target=build_until, args=(call,))
        process.start()
        process.join()
        code = process.exitcode
        if (own_cache / "shards/key").exists():
            Shards(own_cache / "shards/key").verify()
        assert rows_of(cached_shards("key", make)) == EXPECTED
    assert code == 0
    assert call >= 11  # four files, the index and its folder, two renamings of a folder, …


def test_leftovers_of_a_crash_are_removed_after_a_day(own_cache: Path) -> None:
    old, young = own_cache / "shards/a.part", own_cache / "shards/b.part"
    for folder in (old, young):
        folder.mkdir(parents=True)
        (folder / "0.tokens").write_bytes(b"half")
    long_ago = time.time() - 25 * 3600
    for path in (old / "0.tokens", old):
        os.utime(path, (long_ago, long_ago))
    os.utime(young, (long_ago, long_ago))  # its file is still being written
    cached_shards("key", make)
    assert sorted(os.listdir(own_cache / "shards")) == ["b.part", "key"]


def build_together(barrier: multiprocessing.synchronize.Barrier) -> None:  # type: ignore[name-defined]
    def make_at_once(folder: Path) -> None:
        make(folder)
        barrier.wait(20)

    barrier.wait(20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the damaged one, which all of them may see
        shards = cached_shards("key", make_at_once)
    shards.verify()
    os._exit(0 if rows_of(shards) == EXPECTED else 1)


@pytest.mark.slow
@pytest.mark.parametrize("before", ["nothing", "a damaged one"])
def test_processes_that_make_the_same_both_end_well(own_cache: Path, before: str) -> None:
    fork = multiprocessing.get_context("fork")
    for _ in range(5):
        shutil.rmtree(own_cache, ignore_errors=True)
        if before != "nothing":
            (cached_shards("key", make).folder / "0.tokens").write_bytes(b"")
        barrier = fork.Barrier(3)
        processes = [fork.Process(target=build_together, args=(barrier,)) for _ in range(3)]
        for process in processes:
            process.start()
        for process in processes:
            process.join(30)
        assert [process.exitcode for process in processes] == [0, 0, 0]
        assert os.listdir(own_cache / "shards") == ["key"]


def test_a_cache_that_cannot_be_written_is_replaced_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.warns(UserWarning, match=r"cannot be written \(Not a directory\).*set HEADWAY_CACHE"):
        shards = cached_shards("key", make)
    assert tmp_path not in shards.folder.parents
    with pytest.warns(UserWarning, match="cannot be written"):
        assert rows_of(cached_shards("key", never)) == rows_of(shards)
    shard_cache.temporary_folder().cleanup()
    shard_cache.temporary_folder.cache_clear()


def test_a_read_only_cache_is_still_read(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached_shards("key", make)

    def refuse(**given: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(cached_shards("key", never)) == 3
    with pytest.warns(UserWarning, match="Permission denied"):
        assert cache_folder() != own_cache


def test_without_a_home_nothing_is_written_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the user is not in the system's list either, the folder's name begins with a literal ~."""
    monkeypatch.delenv("HEADWAY_CACHE")
    monkeypatch.setattr(shard_cache, "user_cache_dir", lambda name: f"~/.cache/{name}")
    monkeypatch.chdir(tmp_path)
    with pytest.warns(UserWarning, match="no home folder is known"):
        assert len(cached_shards("key", make)) == 3
    assert list(tmp_path.iterdir()) == []


def test_the_usual_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HEADWAY_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if sys.platform == "linux":
        assert cache_folder() == tmp_path / "headway"
    monkeypatch.setenv("HEADWAY_CACHE", "near")
    monkeypatch.chdir(tmp_path)
    assert cache_folder() == tmp_path / "near"


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
