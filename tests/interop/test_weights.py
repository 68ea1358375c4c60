"""Weight files as they may come: whole, in shards, cut short, forged, or pickled."""

from __future__ import annotations

import json
import os
import struct
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
import torch
from safetensors.torch import save_file
from torch.testing import assert_close

from headway.errors import UserError
from headway.interop.weights import read_weights, write_weights
from headway.system import read_json, write_json, write_text

TENSORS = {"a.weight": torch.randn(3, 4), "b.bias": torch.randn(5)}


def sharded(folder: Path, places: dict[str, str]) -> None:
    for file in {"one.safetensors", "two.safetensors"}:
        save_file({name: x for name, x in TENSORS.items() if places.get(name) == file}, folder / file)
    write_json(folder / "model.safetensors.index.json", {"weight_map": places})


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_weights(tmp_path, TENSORS)
    assert_close(read_weights(tmp_path), TENSORS, atol=0, rtol=0)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model.safetensors"]


def test_tensors_that_share_memory_are_written_each(tmp_path: Path) -> None:
    x = torch.randn(4, 4)
    write_weights(tmp_path, {"whole": x, "turned": x.T, "part": x[:2]})
    assert_close(read_weights(tmp_path)["turned"], x.T)


def test_shards_are_read_as_one(tmp_path: Path) -> None:
    sharded(tmp_path, {"a.weight": "one.safetensors", "b.bias": "two.safetensors"})
    assert_close(read_weights(tmp_path), TENSORS, atol=0, rtol=0)


@pytest.mark.parametrize("file", ["../../etc/passwd", "/etc/passwd", "sub/one.safetensors", "..", "", "..\\one"])
def test_an_index_names_files_of_its_own_folder_only(tmp_path: Path, file: str) -> None:
    sharded(tmp_path, {"a.weight": "one.safetensors"})
    write_json(tmp_path / "model.safetensors.index.json", {"weight_map": {"a.weight": file}})
    with pytest.raises(UserError, match="names"):
        read_weights(tmp_path)


@pytest.mark.parametrize(
    ("index", "told"),
    [
        ({}, "has no weight_map from tensors to files"),
        ({"weight_map": {"a.weight": 3}}, "has no weight_map from tensors to files"),
        ({"weight_map": {"c": "one.safetensors"}}, "names 1 tensors that are not in their files: c"),
        ({"weight_map": {"a.weight": "three.safetensors"}}, "names 'three.safetensors', which is not there"),
    ],
)
def test_an_index_that_lies_is_told(tmp_path: Path, index: dict[str, object], told: str) -> None:
    sharded(tmp_path, {"a.weight": "one.safetensors"})
    write_json(tmp_path / "model.safetensors.index.json", index)
    with pytest.raises(UserError) as caught:
        read_weights(tmp_path)
    assert told in str(caught.value)


def test_a_file_cut_anywhere_is_told(tmp_path: Path) -> None:
    write_weights(tmp_path, TENSORS)
    file = tmp_path / "model.safetensors"
    whole = file.read_bytes()
    for cut in range(0, len(whole), 7):
        file.write_bytes(whole[:cut])
        with pytest.raises(UserError, match="is not a whole safetensors file"):
            read_weights(tmp_path)


@pytest.mark.parametrize("claimed", [2**63, 2**63 - 1, 2**40, 2**31])
def test_a_header_that_claims_too_much_is_told(tmp_path: Path, claimed: int) -> None:
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", claimed) + b"{}" * 20)
    with pytest.raises(UserError, match="is not a whole safetensors file"):
        read_weights(tmp_path)


def test_a_folder_without_weights_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds no weights; allowed: model\.safetensors, or"):
        read_weights(tmp_path)
    (tmp_path / "tiny.en.pt").touch()
    with pytest.raises(UserError, match=r"and no weights; .*Whisper of OpenAI's, name the file itself: .*tiny\.en\.pt"):
        read_weights(tmp_path)
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(UserError, match=r"holds no weights yet; wait for .*headway train --out .* --resume"):
        read_weights(tmp_path)


@pytest.mark.parametrize("zipped", [True, False])  # PyTorch wrote no archives before its version 1.6
def test_pickles_are_read_on_request_and_run_nothing(tmp_path: Path, zipped: bool) -> None:
    torch.save(TENSORS, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    with pytest.raises(UserError, match=r"which is not read unasked; convert it .* unsafe=True"):
        read_weights(tmp_path)
    assert_close(read_weights(tmp_path, unsafe=True), TENSORS, atol=0, rtol=0)


class Forged:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch executed",)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_forged_pickle_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zipped: bool) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"a": Forged()}, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    with pytest.raises(UserError, match="is not a PyTorch file of plain tensors"):
        read_weights(tmp_path, unsafe=True)
    assert not (tmp_path / "executed").exists()


@pytest.mark.slow
def test_an_old_pickle_cut_or_changed_anywhere_is_told(tmp_path: Path) -> None:
    file, random = tmp_path / "pytorch_model.bin", Random(0)
    torch.save(TENSORS, file, _use_new_zipfile_serialization=False)
    whole = file.read_bytes()
    broken = [whole[:cut] for cut in range(0, len(whole), 5)]
    for _ in range(300):
        changed = bytearray(whole)
        for at in random.sample(range(len(whole)), 4):
            changed[at] = random.randrange(256)
        broken.append(bytes(changed))
    for data in broken:
        file.write_bytes(data)
        with suppress(UserError):
            read_weights(tmp_path, unsafe=True)
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="is not a PyTorch file of plain tensors"):
        read_weights(tmp_path, unsafe=True)


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "config.json"
    write_text(file, "old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_text(file, "new")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "is not JSON"),
        ("[]", "holds list; allowed: a JSON object"),
        ("[" * 100_000, "is not JSON"),
        ('{"a": {"b": 1, "b": 1}}', "config.json: 'b' stands there twice; keep one of them"),
    ],
)
def test_json_that_is_none_is_told(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(text)
    with pytest.raises(UserError) as caught:
        read_json(file)
    assert told in str(caught.value)
    with pytest.raises(UserError, match="is a folder; allowed: a file"):
        read_json(tmp_path)
    with pytest.raises(UserError, match=r"absent\.json does not exist"):
        read_json(tmp_path / "absent.json")
    assert json.loads("{}") == {}
