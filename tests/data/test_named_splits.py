"""Folders of train, validation and test files or folders, as `datasets` and the Hub have them."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from headway.data.named_splits import named_splits
from headway.errors import UserError
from headway.evaluation import EvalQuery
from headway.training.plan import plan
from headway.training.recipe_data import load_splits
from headway.training.recipe_sources import read_layers, resolve

FOLDERS = {
    "files": (("train.csv", "validation.csv", "test.csv"), "train.csv|validation.csv|test.csv"),
    "shards": (
        ("data/train-00000-of-00002.csv", "data/train-00001-of-00002.csv", "data/test-00000-of-00001.csv", "README.md"),
        "train-00000-of-00002.csv train-00001-of-00002.csv||test-00000-of-00001.csv",
    ),
    "folders": (("train/a.csv", "dev/a.csv", ".cache/b.csv"), "a.csv|a.csv|"),
    "prefixes": (("snli_1.0_train.csv", "snli_1.0_dev.csv"), "snli_1.0_train.csv|snli_1.0_dev.csv|"),
    "one part": (("train.csv", "train-2.csv"), None),
    "no training": (("test.csv", "dev.csv"), None),
    "other names": (("train.csv", "test.csv", "more.csv"), None),
    "two parts in a name": (("train-dev.csv", "test.csv"), None),
    "images": (("train/a.png", "test/a.png", "train.csv", "test.csv"), None),
}


def write(folder: Path, names: tuple[str, ...]) -> None:
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        rows = (f"a text {number} of {at},{'ham' if at % 2 else 'spam'}\n" for at in range(20))
        (folder / name).write_text("text,label\n" + "".join(rows))


MEDIA = {
    "images": (("train/cat/a.png", "validation/cat/b.png", "test/cat/c.png"), "train|validation|test"),
    "short names": (("Train/cat/a.jpg", "val/cat/b.png", "dev/cat/b.png", "README.md"), "Train|dev val|"),
    "sounds": (("train/a.wav", "train/transcripts.tsv", "test/b.wav", "test/transcripts.tsv"), "train||test"),
    "one folder around": (("data/train/cat/a.png", "data/test/cat/b.png"), "train||test"),
    "a class beside": (("train/a.png", "test/a.png", "bus/a.png"), None),
    "images beside": (("train/a.png", "test/a.png", "a.png"), None),
    "a table beside": (("train/a.png", "test/a.png", "labels.csv"), None),
    "no training": (("test/cat/a.png", "val/cat/b.png"), None),
    "one part": (("train/cat/a.png",), None),
}


@pytest.mark.parametrize("case", MEDIA)
def test_folders_of_images_and_sounds_are_parts(tmp_path: Path, case: str) -> None:
    names, wanted = MEDIA[case]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = named_splits([tmp_path])
    assert (found and "|".join(" ".join(file.name for file in part) for part in found)) == wanted


def paint(file: Path, light: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4, 4), (light, 0, light)).save(file)


@pytest.mark.slow
def test_images_by_part_and_class(tmp_path: Path) -> None:
    for at in range(40):
        paint(tmp_path / ("train", "val", "test")[min(at % 5, 2)] / ("cat", "dog")[at % 2] / f"{at}.png", at)
    recipe = resolve(read_layers({"data.path": (str(tmp_path),)}, environ={}))
    splits = load_splits(recipe)
    assert splits.test is not None
    assert splits.description.startswith(f"{tmp_path / 'train'}: 8 images in 2 class folders (cat, dog); ")
    assert "; val for validation; test kept for a test, so image classification" in splits.description
    for part, read, count in (("train", splits.train, 8), ("val", splits.validation, 8), ("test", splits.test, 24)):
        records = list(read())
        assert len(records) == count
        assert {record.file.parts[-3] for record in records} == {part}
        assert {record.fields[1] for record in records} == {"cat", "dog"}
    assert {record.file.parts[-3] for record in EvalQuery.of(tmp_path).read(None)} == {"test"}
    before = splits.digest
    (tmp_path / "val" / "dog").rename(tmp_path / "val" / "fox")
    assert load_splits(recipe).digest != before
    with pytest.raises(UserError, match=r"fox"):  # training has no such class
        plan(read_layers({"data.path": (str(tmp_path),)}, environ={}), tmp_path)


@pytest.mark.parametrize("case", FOLDERS)
def test_parts_are_known_by_their_names(tmp_path: Path, case: str) -> None:
    names, wanted = FOLDERS[case]
    write(tmp_path, names)
    found = named_splits([tmp_path])
    assert (found and "|".join(" ".join(file.name for file in part) for part in found)) == wanted


def test_a_file_has_no_parts(tmp_path: Path) -> None:
    write(tmp_path, ("train.csv", "test.csv"))
    assert named_splits([tmp_path / "train.csv"]) is None
    assert named_splits([tmp_path / "gone"]) is None
    assert named_splits([tmp_path, tmp_path]) is None


def test_each_part_is_used_for_what_it_is(tmp_path: Path) -> None:
    write(tmp_path, FOLDERS["files"][0])
    splits = load_splits(resolve(read_layers({"data.path": (str(tmp_path),)}, environ={})))
    assert {record.file.name for record in splits.train()} == {"train.csv"}
    assert {record.file.name for record in splits.validation()} == {"validation.csv"}
    assert "; validation.csv for validation; test.csv kept for a test" in splits.description
    assert splits.test is not None
    assert {record.file.name for record in splits.test()} == {"test.csv"}
    assert {record.file.name for record in EvalQuery.of(tmp_path).read(None)} == {"test.csv"}
    (tmp_path / "validation.csv").unlink()
    splits = load_splits(resolve(read_layers({"data.path": (str(tmp_path),)}, environ={})))
    assert {record.file.name for record in splits.validation()} == {"train.csv"}  # a share that is held out


def test_validation_that_is_named_wins(tmp_path: Path) -> None:
    write(tmp_path / "set", FOLDERS["files"][0])
    write(tmp_path, ("mine.csv", "other.csv"))
    options = {"data.path": (str(tmp_path / "set"),), "data.validation": (str(tmp_path / "other.csv"),)}
    splits = load_splits(resolve(read_layers(options, environ={})))
    assert {record.file.name for record in splits.validation()} == {"other.csv"}
    with pytest.raises(UserError, match="does not exist"):
        load_splits(resolve(read_layers(options | {"data.validation": (str(tmp_path / "gone.csv"),)}, environ={})))
