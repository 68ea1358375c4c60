"""Flipped bits, cut, lost and exchanged files: all are noticed, and the checkpoint before is used."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.system import read_json
from headway.training.manifest import MANIFEST, FileDigest, Manifest, problems
from tests.train.disks import same, snapshot, store

Harm = Callable[[Path, Path, random.Random], object]  # to a checkpoint, with the one before it at hand


def rotten(place: Path, cases: int, harm: Harm) -> None:
    """Harms the newest of two checkpoints in many ways: each is noticed, and the older is used."""
    one = store(place / "run")
    for step in (10, 20):
        one.save(snapshot(step))
    kept = place / "kept"
    shutil.copytree(one.folder, kept)
    for case in range(cases):
        harm(one.folder / "step-0000020", one.folder / "step-0000010", random.Random(case))
        assert one.verify(20) != [], f"harm {case} was not noticed"
        latest = one.latest()
        assert latest is not None
        assert same(latest[0], snapshot(10))
        assert "step 20" in latest[1][0]
        assert latest[1][0].endswith("step 10 is used instead")
        shutil.rmtree(one.folder)
        shutil.copytree(kept, one.folder)
    assert one.verify(20) == []


def any_file(folder: Path, draw: random.Random) -> Path:
    return draw.choice(sorted(folder.iterdir()))


def flip(folder: Path, other: Path, draw: random.Random) -> None:
    path = any_file(folder, draw)
    data = bytearray(path.read_bytes())
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    path.write_bytes(data)


def cut(folder: Path, other: Path, draw: random.Random) -> None:
    path = any_file(folder, draw)
    os.truncate(path, draw.randrange(path.stat().st_size))


def lose(folder: Path, other: Path, draw: random.Random) -> None:
    any_file(folder, draw).unlink()


def swap(folder: Path, other: Path, draw: random.Random) -> None:
    """Two files of this checkpoint change places, or one comes from the other checkpoint."""
    path = any_file(folder, draw)
    if draw.random() < 0.5:
        shutil.copy(other / path.name, path)
        return
    second = draw.choice([file for file in sorted(folder.iterdir()) if file != path])
    passing = folder / "passing"
    path.rename(passing), second.rename(path), passing.rename(second)


def swap_all(folder: Path, other: Path, draw: random.Random) -> None:
    shutil.rmtree(folder)
    shutil.copytree(other, folder)


ROT: list[tuple[Harm, int]] = [(flip, 300), (cut, 50), (lose, 10), (swap, 20), (swap_all, 1)]


@pytest.mark.slow
@pytest.mark.parametrize(("harm", "cases"), ROT)
def test_rot_is_noticed(memory: Path, harm: Harm, cases: int) -> None:
    rotten(memory, cases, harm)


def believes_hashes(path: Path, written: FileDigest) -> str | None:
    return None if path.is_file() and path.stat().st_size == written.size else "another size"


def believes_sizes(path: Path, written: FileDigest) -> str | None:
    return None if path.is_file() else "missing"


def believes_names(path: Path, written: FileDigest) -> str | None:
    return None


CARELESS = [
    ("manifest.file_problem", believes_hashes, flip),
    ("manifest.file_problem", believes_hashes, swap),
    ("manifest.file_problem", believes_sizes, cut),
    ("manifest.file_problem", believes_names, lose),
]


@pytest.mark.parametrize(("name", "careless", "harm"), CARELESS)
def test_a_careless_look_is_noticed(
    memory: Path, monkeypatch: pytest.MonkeyPatch, name: str, careless: object, harm: Harm
) -> None:
    monkeypatch.setattr(f"headway.training.{name}", careless)
    with pytest.raises(AssertionError, match="was not noticed"):
        rotten(memory, 50, harm)


def test_a_manifest_without_its_own_hash_would_be_believed(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed hash of nothing else: only the manifest itself can tell."""

    def believed(path: Path) -> Manifest:
        values = read_json(path)
        return Manifest(values["step"], {name: FileDigest(**entry) for name, entry in values["files"].items()})

    for module in ("manifest", "store"):
        monkeypatch.setattr(f"headway.training.{module}.read_manifest", believed)
    with pytest.raises(AssertionError, match="was not noticed"):
        rotten(memory, 1, last_bit_of_the_manifest)


def test_a_step_that_is_not_looked_at_is_noticed(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.training.store.problems", lambda folder, step: problems(folder, told_step(folder)))
    with pytest.raises(AssertionError, match="was not noticed"):
        rotten(memory, 1, swap_all)


def last_bit_of_the_manifest(folder: Path, other: Path, draw: random.Random) -> None:
    path = folder / MANIFEST
    text = path.read_text()
    at = text.rindex('"') - 1
    path.write_text(text[:at] + ("0" if text[at] == "1" else "1") + text[at + 1 :])


def told_step(folder: Path) -> int:
    return read_json(folder / MANIFEST)["step"]
