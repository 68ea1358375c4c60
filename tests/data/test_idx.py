"""IDX files: mapped, packed or not, and what is wrong with them."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from headway.data.checks import Skipped, check, good_records
from headway.data.idx import read_idx
from headway.data.images import read_image
from headway.data.kinds import DataKind
from headway.data.recognise import recognise
from headway.data.records import Record, records
from headway.errors import UserError
from headway.tasks.registry import sentence
from tests.data.files import idx, put

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 4, 5), np.uint8)
LABELS = np.array([0, 1, 2, 0, 1, 2], np.uint8)
FILES = {"train-images-idx3-ubyte": idx(IMAGES), "train-labels-idx1-ubyte": idx(LABELS)}
TEST = {"t10k-images-idx3-ubyte": idx(IMAGES[:2]), "t10k-labels-idx1-ubyte": idx(LABELS[:2])}


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path_factory.mktemp("cache")))


def packed(files: dict[str, bytes]) -> dict[str, bytes]:
    return {f"{name}.gz": gzip.compress(data) for name, data in files.items()}


@pytest.mark.parametrize("files", [FILES, packed(FILES)], ids=["plain", "packed"])
def test_images_are_those_in_the_file(tmp_path: Path, files: dict[str, bytes]) -> None:
    given = recognise([put(tmp_path, files)])
    assert given.kind is DataKind.IMAGES
    assert "6 images of 4 × 5 pixels and labels, so image classification (change with data.task)" in sentence(given)
    found = [one for one in records(given) if isinstance(one, Record)]
    assert [one.fields[1] for one in found] == ["0", "1", "2", "0", "1", "2"]
    assert [one.line for one in found] == [1, 2, 3, 4, 5, 6]
    for one, image in zip(found, IMAGES, strict=True):
        assert one.place is not None
        assert np.array_equal(read_image(one.place, 1)[..., 0], image)
        assert np.array_equal(read_image(one.place, 3), image[..., None].repeat(3, -1))
    assert check(given).counts == {}


def test_values_are_mapped_not_read(tmp_path: Path) -> None:
    for name in (*put(tmp_path, FILES | packed(TEST)).glob("*images*"),):
        values = read_idx(name)
        while not isinstance(values, np.memmap):
            assert isinstance(values.base, np.ndarray)
            values = values.base
        assert isinstance(values, np.memmap)


def test_a_folder_with_two_sets_gives_the_one_for_training(tmp_path: Path) -> None:
    given = recognise([put(tmp_path, FILES | TEST)])
    assert len(list(records(given))) == 6
    assert f"({tmp_path}/t10k-images-idx3-ubyte is left for --validation)" in sentence(given)
    assert len(list(records(recognise([tmp_path / "t10k-images-idx3-ubyte"])))) == 2


def test_colour(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 256, (6, 4, 5, 3), np.uint8)
    put(tmp_path, {"a-images-idx4-ubyte": idx(values), "a-labels-idx1-ubyte": idx(LABELS)})
    found = [one for one in records(recognise([tmp_path])) if isinstance(one, Record)]
    assert found[2].place is not None
    assert np.array_equal(read_image(found[2].place), values[2])


def header(*numbers: int) -> bytes:
    return struct.pack(f">{len(numbers)}I", *numbers)


BAD = {
    "cut": ({"train-images-idx3-ubyte": idx(IMAGES)[:-7]}, "holds 113 bytes where its header promises 120"),
    "longer": ({"train-images-idx3-ubyte": idx(IMAGES) + b"x"}, "holds 121 bytes where its header promises 120"),
    "cut and packed": (
        packed({"train-images-idx3-ubyte": idx(IMAGES)[:-7]}),
        "holds 113 bytes where its header promises 120",
    ),
    "a cut archive": (
        {"train-images-idx3-ubyte.gz": gzip.compress(idx(IMAGES), 0)[:-28]},
        "is cut off or damaged after 116 of 136 bytes; get the file again",
    ),
    "an archive without its end": (
        {"train-images-idx3-ubyte.gz": gzip.compress(idx(IMAGES))[:-4]},
        "is cut off or damaged after 136 of 136 bytes; get the file again",
    ),
    "a damaged archive": (
        {"train-images-idx3-ubyte.gz": gzip.compress(idx(IMAGES), 0)[:-20] + bytes(20)},
        "is cut off or damaged after",
    ),
    "a bomb": (
        {"train-images-idx3-ubyte": header(0x803, 2**31, 2**12, 2**12)},
        "promises 2,147,483,648 × 4,096 × 4,096 values",
    ),
    "no header": ({"train-images-idx3-ubyte": b"hello, this is no such file"}, "is no IDX file"),
    "half a header": ({"train-images-idx3-ubyte": idx(IMAGES)[:9]}, "ends within its header"),
    "other numbers": ({"train-images-idx3-ubyte": header(0xD03, 6, 4, 5)}, "holds values of type 0x0D"),
    "a label too few": ({"train-labels-idx1-ubyte": idx(LABELS[:5])}, "has 6 images and"),
    "labels of two axes": (
        {"train-labels-idx1-ubyte": idx(IMAGES[0])},
        "has axes of 4 × 5; allowed: one label for each image",
    ),
    "no images": (
        {"train-images-idx3-ubyte": idx(IMAGES[:0]), "train-labels-idx1-ubyte": idx(LABELS[:0])},
        "has no images",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_named(tmp_path: Path, case: str) -> None:
    changed, said = BAD[case]
    put(tmp_path, FILES if not next(iter(changed)).endswith(".gz") else {"train-labels-idx1-ubyte": idx(LABELS)})
    put(tmp_path, changed)
    with pytest.raises(UserError) as caught:
        list(records(recognise([tmp_path])))
    assert said in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_labels_that_are_missing(tmp_path: Path) -> None:
    (tmp_path / "train-images-idx3-ubyte").write_bytes(FILES["train-images-idx3-ubyte"])
    said = "has no labels beside it; put train-labels-idx1-ubyte into its folder, or learn without classes"
    with pytest.raises(UserError, match=said):
        recognise([tmp_path])


@pytest.mark.parametrize("name", ["images-idx3-ubyte", "images-idx3-ubyte.gz"])
def test_images_without_classes_need_no_labels(tmp_path: Path, name: str) -> None:
    data = idx(IMAGES)
    put(tmp_path, {name: gzip.compress(data) if name.endswith(".gz") else data})
    given = recognise([tmp_path / name], nameless=True)
    assert given.files == (tmp_path / name,)
    assert sentence(given) == (
        f"{tmp_path / name}: 6 images of 4 × 5 pixels, to be learned from without classes (change with data.objective)"
    )
    found = list(good_records(given, None))
    assert [len(one.fields) for one in found] == [1] * 6
    assert [one.extent for one in found] == [(4, 5)] * 6
    assert len(list(good_records(given, Skipped()))) == 6


def test_labels_of_images_without_classes_are_not_read(tmp_path: Path) -> None:
    put(tmp_path, FILES | {"train-labels-idx1-ubyte": b"not labels"})
    assert len(list(records(recognise([tmp_path], nameless=True)))) == 6
    with pytest.raises(UserError, match="is no IDX file"):
        recognise([tmp_path])


@pytest.mark.slow
def test_real_clothes(shared: Path) -> None:
    given = recognise([shared / "data/fashion_mnist/t10k-images-idx3-ubyte.gz"])
    found = list(records(given))
    assert len(found) == 10_000
    assert isinstance(found[0], Record)
    assert found[0].place is not None
    assert read_image(found[0].place, 1).shape == (28, 28, 1)
    assert found[0].fields[1] == "9"
