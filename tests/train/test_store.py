"""Checkpoints are read as they were written, the right ones are kept, and files that lie are refused."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import multiprocessing
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load
from torch import Tensor

from headway.errors import UserError
from headway.interop.weights import DTYPES, safetensors_chunks
from headway.system import read_json
from headway.training.manifest import MANIFEST, MAX_MANIFEST_BYTES
from headway.training.store import Snapshot, Store
from tests.train.disks import HURRIED, Hurried, leftovers, same, same_bits, same_tensors, snapshot, store

# What is read is what was written.


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    """Any bits, of any type that is stored, in any shape, in any order in memory."""
    dtype, shape = draw(st.sampled_from(list(DTYPES))), draw(st.lists(st.integers(0, 4), max_size=3))
    size = torch.Size(shape).numel() * torch.empty(0, dtype=dtype).element_size()
    data = bytearray(draw(st.binary(min_size=size, max_size=size)))
    if dtype is torch.bool:
        data = bytearray(byte % 2 for byte in data)
    made = torch.frombuffer(data, dtype=dtype).reshape(shape) if size else torch.empty(shape, dtype=dtype)
    return made.transpose(0, -1) if draw(st.booleans()) and made.ndim > 1 else made


@pytest.mark.slow
@given(st.dictionaries(st.text(max_size=5), tensors(), max_size=5))
def test_tensors_come_back_bit_for_bit(named: dict[str, Tensor]) -> None:
    assert same_tensors(load(b"".join(safetensors_chunks(named))), named)


def test_a_snapshot_comes_back_bit_for_bit(tmp_path: Path) -> None:
    tied = torch.randn(3, requires_grad=True)
    given = Snapshot(
        7,
        {"model": {"a": tied, "b": tied}, "optimiser": {"none": torch.empty(0, 4), "count": torch.tensor(5)}, "x": {}},
        {"best": 0.1, "nested": {"ü": [1, None, True, 1e-300, 2**62]}},
    )
    one = Store(tmp_path / "run" / "checkpoints")
    assert one.latest() is None
    assert one.steps() == []
    assert one.save(given) == tmp_path / "run" / "checkpoints" / "step-0000007"
    assert one.verify(7) == []
    assert same(one.load(7), given)
    assert sorted(os.listdir(one.folder_of(7))) == [
        "manifest.json", "model.safetensors", "optimiser.safetensors", "state.json", "x.safetensors"
    ]  # fmt: skip


def test_what_is_read_may_be_changed_and_the_file_be_deleted(tmp_path: Path) -> None:
    one = Store(tmp_path, keep=1)
    one.save(snapshot(1))
    found = one.load(1)
    found.tensors["model"]["bias"].add_(1)
    one.save(snapshot(2))
    assert same_bits(found.tensors["model"]["weight"], snapshot(1).tensors["model"]["weight"])
    assert same_bits(found.tensors["model"]["bias"], snapshot(1).tensors["model"]["bias"] + 1)


def test_the_manifest_tells_sizes_and_hashes(tmp_path: Path) -> None:
    place = store(tmp_path).save(snapshot(5))
    told = read_json(place / MANIFEST)
    assert (told["layout"], told["step"]) == (1, 5)
    data = {path.name: path.read_bytes() for path in place.iterdir() if path.name != MANIFEST}
    assert told["files"] == {
        name: {"size": len(x), "sha256": hashlib.sha256(x).hexdigest()} for name, x in data.items()
    }


# What is kept.


def test_the_newest_are_kept_and_those_that_are_protected(tmp_path: Path) -> None:
    one = Store(tmp_path, keep=2, disk=HURRIED)
    for step in range(1, 7):
        one.save(snapshot(step), protect={2, 99})
    assert one.steps() == [2, 5, 6]
    one.save(snapshot(7))
    assert one.steps() == [6, 7]


def test_what_was_just_saved_is_kept_whatever_is_newer(tmp_path: Path) -> None:
    """After going back from broken checkpoints, the broken ones must not crowd out the good ones."""
    one = store(tmp_path)
    for step in (10, 20, 30):
        one.save(snapshot(step), protect={10})
    for step in (20, 30):
        (one.folder_of(step) / MANIFEST).unlink()
    latest = one.latest()
    assert latest is not None
    assert same(latest[0], snapshot(10))
    assert [said.partition(" in ")[0] for said in latest[1]] == [
        "the checkpoint of step 30", "the checkpoint of step 20"
    ]  # fmt: skip
    for step in (11, 12, 13):
        one.save(snapshot(step))
    assert one.steps() == [12, 13, 20, 30]
    one.save(snapshot(20))
    assert one.verify(20) == []
    one.save(snapshot(30))
    assert one.steps() == [20, 30]


def test_a_step_saved_again_is_the_new_one(tmp_path: Path) -> None:
    one = store(tmp_path)
    for version in range(3):
        assert one.save(snapshot(5, version)).name == "step-0000005"
        assert same(one.load(5), snapshot(5, version))
    assert one.names() == [".lock", "step-0000005"]


def test_a_step_that_stands_twice_is_the_newer_if_that_is_whole(tmp_path: Path) -> None:
    one = store(tmp_path)
    new = one.save(snapshot(5, 1)).rename(tmp_path / "step-0000005.again")
    assert same(one.load(5), snapshot(5, 1))
    store(tmp_path / "other").save(snapshot(5, 0)).rename(one.folder_of(5))
    assert same(one.load(5), snapshot(5, 1))
    (new / "state.json").write_text("{}")
    assert same(one.load(5), snapshot(5, 0))
    one.save(snapshot(6))
    assert same(one.load(5), snapshot(5, 0))
    assert leftovers(one) == []


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    for name in ("notes.txt", "step-12", "step-00000012", "step-٠٠٠٠٠٠١", "step-0000001.old"):
        (tmp_path / name).mkdir()
    one = store(tmp_path)
    one.save(snapshot(3))
    assert one.steps() == [3]
    assert len(one.names()) == 7


def test_keep_must_leave_one() -> None:
    with pytest.raises(UserError, match="keep=0 would leave no checkpoint; allowed: 1 or more"):
        Store(Path("x"), keep=0)


# What is refused.


def hostile(one: Store, **changes: object) -> None:
    """Changes the manifest of step 20 and mends its own hash, as somebody who means harm would."""
    path = one.folder_of(20) / MANIFEST
    body = {**read_json(path), **changes}
    del body["sha256"]
    text = json.dumps(body, indent=2) + "\n"
    body["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(json.dumps(body, indent=2) + "\n")


def entry(one: Store, name: str, **changes: object) -> dict[str, Any]:
    files = read_json(one.folder_of(20) / MANIFEST)["files"]
    return {"files": {**files, name: {**files["state.json"], **changes}}}


def raw(one: Store, text: str) -> None:
    (one.folder_of(20) / MANIFEST).write_text(text)


def put(one: Store, name: str, data: bytes) -> None:
    """Another file, with its right size and hash."""
    (one.folder_of(20) / name).write_bytes(data)
    hostile(one, **entry(one, name, size=len(data), sha256=hashlib.sha256(data).hexdigest()))


def linked(one: Store) -> None:
    path = one.folder_of(20) / "state.json"
    path.rename(one.folder / "elsewhere.json")
    path.symlink_to(one.folder / "elsewhere.json")


def piped(one: Store, name: str) -> None:
    (one.folder_of(20) / name).unlink()
    os.mkfifo(one.folder_of(20) / name)


def header(text: str) -> bytes:
    return len(text).to_bytes(8, "little") + text.encode()


HOSTILE: dict[str, tuple[Callable[[Store], object], str]] = {
    "above": (lambda one: hostile(one, **entry(one, "../../secret.safetensors")), "manifest.json names '../.."),
    "absolute": (lambda one: hostile(one, **entry(one, "/etc/passwd")), "manifest.json names '/etc/passwd'"),
    "itself": (lambda one: hostile(one, **entry(one, "manifest.json")), "manifest.json names 'manifest.json'"),
    "empty name": (lambda one: hostile(one, **entry(one, ".safetensors")), "names '.safetensors'"),
    "long name": (lambda one: hostile(one, **entry(one, "a" * 999 + ".safetensors")), "manifest.json names 'aaa"),
    "huge size": (lambda one: hostile(one, **entry(one, "state.json", size=10**30)), "bytes, not 1000000000"),
    "negative size": (lambda one: hostile(one, **entry(one, "state.json", size=-1)), "does not tell the size"),
    "size true": (lambda one: hostile(one, **entry(one, "state.json", size=True)), "does not tell the size"),
    "size NaN": (lambda one: hostile(one, **entry(one, "state.json", size=float("nan"))), "manifest.json"),
    "hash missing": (lambda one: hostile(one, **entry(one, "state.json", sha256=None)), "does not tell the size"),
    "more keys": (lambda one: hostile(one, **entry(one, "state.json", also=1)), "does not tell the size"),
    "files a list": (lambda one: hostile(one, files=["state.json"]), "does not list the files"),
    "no files": (lambda one: hostile(one, files={}), "does not list the files"),
    "no state": (lambda one: hostile(one, files={"model.safetensors": {}}), "does not list the files"),
    "step text": (lambda one: hostile(one, step="20"), "is of step '20'; allowed: a whole number"),
    "step true": (lambda one: hostile(one, step=True), "is of step True"),
    "step NaN": (lambda one: hostile(one, step=float("nan")), "manifest.json"),
    "step negative": (lambda one: hostile(one, step=-20), "is of step -20"),
    "another step": (lambda one: hostile(one, step=21), "manifest.json is of step 21"),
    "newer": (lambda one: hostile(one, layout=3), "manifest.json is of layout 3; allowed: 1 and 2; use the headway"),
    "layout true": (lambda one: hostile(one, layout=True), "manifest.json is of layout True"),
    "layout huge": (lambda one: hostile(one, layout=[0] * 9999), "manifest.json is of layout [0, 0"),
    "unknown key": (lambda one: hostile(one, run="rm -rf"), "manifest.json is not as it was written"),
    "no JSON": (lambda one: raw(one, "{"), "manifest.json is not JSON"),
    "deep": (lambda one: raw(one, "[" * 100_000), "manifest.json"),
    "digits": (lambda one: raw(one, '{"layout": ' + "1" * 9999 + "}"), "manifest.json"),
    "large": (lambda one: raw(one, " " * (MAX_MANIFEST_BYTES + 1)), "manifest.json is no plain file of at most"),
    "list": (lambda one: raw(one, "[]"), "manifest.json holds list"),
    "twice": (lambda one: raw(one, '{"layout": 1,' + (one.folder_of(20) / MANIFEST).read_text()[1:]), "manifest.json"),
    "link": (linked, "state.json is no plain file"),
    "pipe": (lambda one: piped(one, "model.safetensors"), "model.safetensors is no plain file"),
    "piped manifest": (lambda one: piped(one, MANIFEST), "manifest.json is no plain file"),
    "pickle": (lambda one: put(one, "model.safetensors", pickle.dumps(print)), "is not a whole safetensors file"),
    "huge header": (lambda one: put(one, "model.safetensors", b"\xff" * 8), "is not a whole safetensors file"),
    "huge tensor": (
        lambda one: put(
            one, "model.safetensors", header('{"a":{"dtype":"F32","shape":[1073741824],"data_offsets":[0,4294967296]}}')
        ),
        "is not a whole safetensors file",
    ),
    "state a list": (lambda one: put(one, "state.json", b"[]"), "state.json holds list"),
    "state deep": (lambda one: put(one, "state.json", b"[" * 100_000), "state.json"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_files_that_lie_are_refused(tmp_path: Path, what: str) -> None:
    one = store(tmp_path)
    for step in (10, 20):
        one.save(snapshot(step))
    spoil, said = HOSTILE[what]
    spoil(one)
    with pytest.raises(UserError) as caught:
        one.load(20)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 1000
    latest = one.latest()
    assert latest is not None
    assert same(latest[0], snapshot(10))


def test_without_a_whole_checkpoint_it_is_told_and_not_begun_anew(tmp_path: Path) -> None:
    one = store(tmp_path)
    (one.save(snapshot(1)) / "state.json").unlink()
    with pytest.raises(UserError, match=r"no checkpoint is whole: .*step 1 .* state.json is missing; start the run"):
        one.latest()
    with pytest.raises(UserError, match=r"the checkpoint of step 2 in .* is not whole: it is not there"):
        one.load(2)
    assert one.verify(2) == ["it is not there"]


def test_what_cannot_be_stored_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    one = store(tmp_path / "run")
    with pytest.raises(UserError, match="the state of step 1 holds a number that is not finite"):
        one.save(Snapshot(1, {}, {"best": float("nan")}))
    assert not one.folder.exists()
    with pytest.raises(UserError, match=r"a tensor 'a' of torch.complex64 cannot be stored"):
        one.save(Snapshot(1, {"model": {"a": torch.zeros(1, dtype=torch.complex64)}}, {}))
    assert one.names() == [".lock"]


def test_a_file_in_the_place_of_the_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(OSError, match="run"):
        store(tmp_path / "run" / "checkpoints").save(snapshot(1))


def test_a_refusal_names_the_file(tmp_path: Path) -> None:
    class Full(Hurried):
        def write(self, handle: int, data: memoryview) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match=r"No space left on device: .*model.safetensors"):
        store(tmp_path, Full()).save(snapshot(1))


# Others at the same time.


def test_while_another_process_saves_nothing_of_it_is_swept_away(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    written, tried = fork.Event(), fork.Event()

    class Slow(Hurried):
        def flush_folder(self, folder: Path) -> None:
            if folder.name.startswith(".part-"):
                written.set()
                tried.wait(60)

    def save() -> None:
        Store(tmp_path, disk=Slow()).save(snapshot(1))

    process = fork.Process(target=save)
    process.start()
    assert written.wait(60)
    with pytest.raises(UserError, match="another process is saving a checkpoint in"):
        Store(tmp_path).save(snapshot(2))
    tried.set()
    process.join()
    assert process.exitcode == 0
    assert Store(tmp_path).steps() == [1]


def test_without_locks_nothing_is_swept_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    (tmp_path / ".part-1-abcd").mkdir()
    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", none)
        store(tmp_path).save(snapshot(1))
    assert (tmp_path / ".part-1-abcd").exists()
    store(tmp_path).save(snapshot(2))
    assert leftovers(store(tmp_path)) == []


def test_sweeping_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("")
    run = tmp_path / "run"
    run.mkdir()
    (run / ".old-x").symlink_to(tmp_path / "precious")
    store(run).save(snapshot(1))
    assert store(run).names() == [".lock", "step-0000001"]
    assert (tmp_path / "precious" / "file").exists()
