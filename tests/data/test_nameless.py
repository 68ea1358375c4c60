"""Images that are learned from without classes: all that are there, and nothing said about them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from headway.data.checks import Skipped, good_records
from headway.data.kinds import Kind
from headway.data.recognise import recognise
from headway.errors import UserError

NAMES = ["a.png", "cats/b.png", "cats/old/c.png", "dogs/d.png"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for at, name in enumerate(NAMES):
        file = tmp_path / "photos" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 5, 3), 10 * at, np.uint8)).save(file)
    return tmp_path / "photos"


def test_all_images_are_taken_whatever_folders_they_are_in(folder: Path) -> None:
    given = recognise([folder], nameless=True)
    assert given.kind is Kind.IMAGES
    assert given.why == f"{folder}: 4 images, to be learned from without classes (change with --objective)"
    found = list(good_records(given, None))
    assert sorted(str(Path(record.name).relative_to(folder)) for record in found) == NAMES
    assert all(len(record.fields) == 1 and record.extent == (4, 5) for record in found)


def test_classes_stay_strict(folder: Path) -> None:
    with pytest.raises(UserError, match=r"a\.png.* is in no class folder"):
        list(good_records(recognise([folder]), None))


def test_what_is_no_image_is_still_found(folder: Path) -> None:
    (folder / "dogs" / "bad.png").write_bytes(b"nothing")
    given = recognise([folder], nameless=True)
    with pytest.raises(UserError, match=r"bad\.png"):
        list(good_records(given, None))
    skipped = Skipped()
    assert len(list(good_records(given, skipped))) == 4
    assert skipped.total == 1


def test_sounds_and_captions_are_not_images_without_classes(folder: Path) -> None:
    with pytest.raises(UserError, match="nothing says the captions"):
        recognise([folder], kind=Kind.CAPTIONS, nameless=True)
    lines = "".join(f"{name}\ta photo of number {at}\n" for at, name in enumerate(NAMES))
    (folder / "captions.tsv").write_text(f"file\tcaption\n{lines}", encoding="utf-8")
    assert recognise([folder], nameless=True).kind is Kind.CAPTIONS
