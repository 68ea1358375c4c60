"""Folders, archives and tables of images: each thing that is given is a record or a problem, and is counted once."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from headway.data.checks import Skipped, check, good_records
from headway.data.kinds import DataKind
from headway.data.media_sources import is_link_elsewhere
from headway.data.recognise import recognise
from headway.data.records import RecognisedData, Record, records
from headway.data.shards import digest
from headway.data.splits import split_by_names, without_test
from headway.data.text_lines import Flaw, Problem
from headway.errors import UserError
from headway.tasks.registry import sentence
from tests.data.files import png, put, tarred, wav

PHOTOS = {f"{name}/{at}.png": png(10 * n + at) for n, name in enumerate(("cat", "dog")) for at in range(4)}
FLAT = {f"{at}.png": png(at) for at in range(8)}
ROWS = [f"{at}.png,{('cat', 'dog')[at % 2]}\n" for at in range(8)]
TABLE = "".join(["file,label\n", *ROWS]).encode()


def found(given: RecognisedData) -> list[Record]:
    return [one for one in records(given) if isinstance(one, Record)]


def problems(given: RecognisedData) -> list[str]:
    return [str(one) for one in records(given) if isinstance(one, Problem)]


def labelled(folder: Path, *rows: str | bytes, files: dict[str, bytes] | None = None) -> RecognisedData:
    """A folder of eight images whose table has these rows."""
    lines = b"".join(row.encode() if isinstance(row, str) else row for row in ("file,label\n", *rows))
    return recognise([put(folder, (FLAT if files is None else files) | {"labels.csv": lines})])


def captioned(folder: Path, *rows: str) -> RecognisedData:
    images = {f"{at}.png": png(at) for at in range(4)}
    return recognise([put(folder, images | {"captions.tsv": "".join(["file\tcaption\n", *rows]).encode()})])


TABLES = {
    "classes": ("labels.csv", TABLE),
    "captions": (
        "captions.jsonl",
        b"".join(
            json.dumps({"image": f"{at}.png", "captions": [f"one of {at}", f"two of {at}"]}).encode() + b"\n"
            for at in range(8)
        ),
    ),
}


@pytest.mark.parametrize("case", TABLES)
def test_a_table_in_an_archive_is_no_file_on_the_disk(tmp_path: Path, case: str) -> None:
    name, table = TABLES[case]
    given = recognise([tarred(tmp_path / "set.tar", FLAT | {name: table})])
    assert given.files == (tmp_path / "set.tar",)
    assert len(digest(given.files)) == 64
    assert len(found(given)) == 8


def test_what_is_no_file_is_a_problem_and_is_not_opened(tmp_path: Path) -> None:
    (put(tmp_path, PHOTOS) / "dog" / "gone.png").symlink_to(tmp_path / "nothing.png")
    os.mkfifo(tmp_path / "cat" / "pipe.png")
    given = recognise([tmp_path])
    assert problems(given) == [
        f"{tmp_path}/cat/pipe.png: is a pipe or a device, not a file",
        f"{tmp_path}/dog/gone.png: is gone",
    ]
    assert sorted(given.files) == sorted(tmp_path / name for name in PHOTOS)
    before = digest(given.files, *given.fingerprint)
    (tmp_path / "dog" / "gone.png").unlink()
    again = recognise([tmp_path])
    assert digest(again.files, *again.fingerprint) != before
    skipped = Skipped()
    assert len(list(good_records(given, skipped))) == 8


def test_a_file_that_may_not_be_read_is_not_hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs tests may be allowed to read all; so the system's answer is written down here."""
    secret = put(tmp_path, PHOTOS) / "cat" / "0.png"

    def access(path: Path, mode: int) -> bool:
        return path != secret

    monkeypatch.setattr(os, "access", access)
    assert secret not in recognise([tmp_path]).files


def test_a_pipe_has_no_hash(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="pipe is a pipe or a device; allowed: a file"):
        digest([tmp_path / "pipe"])
    with pytest.raises(UserError, match="is a folder; allowed: a file"):
        digest([tmp_path])


@pytest.mark.parametrize("name", ["a" * 300 + ".png", "a\0b.png"])
def test_a_name_that_no_file_can_have_is_a_missing_file(tmp_path: Path, name: str) -> None:
    given = labelled(tmp_path, *ROWS, f"{name},cat\n")
    assert problems(given) == [f"{tmp_path}/labels.csv:10: {name!r} is not in {tmp_path}"]
    assert len(found(given)) == 8


SPOILED: dict[str, tuple[list[str | bytes], list[int]]] = {
    "a column too many": ([*ROWS[:5], "5.png,dog,extra\n", *ROWS[6:]], [7]),
    "no UTF-8": ([*ROWS[:5], b"5.png,caf\xe9\n", *ROWS[6:]], [7]),
    "a name that cannot be read": ([*ROWS[:5], b"\xe9\xe8\n", *ROWS[6:]], [7]),
    "a blank line": ([*ROWS[:5], "\n", *ROWS[5:]], [7]),
    "a blank line and a stray": ([*ROWS[:5], "\n", *ROWS[6:]], [7, 0]),
    "a file that is named twice": ([*ROWS, "5.png,dog,extra\n"], [10]),
    "a name that cannot be read, and two strays": ([*ROWS[:5], "\xe9\xe8\n", ROWS[7]], [7, 0]),
}


@pytest.mark.parametrize("case", SPOILED)
def test_a_spoiled_line_is_counted_once(tmp_path: Path, case: str) -> None:
    rows, lines = SPOILED[case]
    given = labelled(tmp_path, *rows)
    assert [one.line for one in records(given) if isinstance(one, Problem)] == lines
    seen = check(given)
    assert (seen.count, seen.good) == (len(found(given)) + len(lines), len(found(given)))


def test_a_spoiled_line_of_json_is_counted_once(tmp_path: Path) -> None:
    lines = [json.dumps({"file": f"{at}.png", "label": "cat" if at % 2 else "dog"}) for at in range(8)]
    lines[2:5] = ['{"file": "2.png", "label": null}', '{"file": "3.png"}', '{"file": "4.png", "label": ']
    given = recognise([put(tmp_path, FLAT | {"labels.jsonl": "\n".join(lines).encode()})])
    assert [one.line for one in records(given) if isinstance(one, Problem)] == [3, 4, 5]


def test_names_of_one_file_may_be_written_in_several_ways(tmp_path: Path) -> None:
    (put(tmp_path / "real", FLAT) / "deep").mkdir()
    (tmp_path / "link").symlink_to("real")
    rows = [f"{tmp_path}/real/0.png,a\n", "./1.png,b\n", "deep/../2.png,a\n", f"{tmp_path}/link/3.png,b\n"]
    given = labelled(tmp_path / "link", *rows, *ROWS[4:])
    assert problems(given) == []
    assert len(found(given)) == 8


def test_each_problem_is_on_one_side(tmp_path: Path) -> None:
    images = {f"{part}{at}.png": png(20 * n + at) for n, part in enumerate("iv") for at in range(4)}
    rows = [f"{name},{name[1]}\n" for name in images if name not in ("i3.png", "v3.png")]
    broken = images | {"v2.png": b"no image", "v8.png": png(98), "i8.png": png(99)}
    bad = ["vgone.png,1\n", "igone.png,1\n", "i3.png,1,2\n", "v3.png,1,2\n", b"\xe9\n"]
    given = labelled(tmp_path, *rows, *bad, files=broken)
    train, held = split_by_names(given, "^v", "--held-from")
    assert sorted(problems(train) + problems(held)) == sorted(problems(given))
    assert len(found(train)) + len(found(held)) == len(found(given)) == 5
    assert [one.line for one in records(train) if isinstance(one, Problem)] == [9, 10, 12]
    assert [one.line for one in records(held) if isinstance(one, Problem)] == [7, 8, 11, 0]
    left = without_test(given, "2$", "--test-from")
    assert not any("v2.png" in one for one in problems(left))


def test_only_an_empty_caption_is_left_out(tmp_path: Path) -> None:
    rows = [f"{at // 3}.png\tcaption {at} of it\n" for at in range(12)]
    given = captioned(tmp_path, *rows[:4], "1.png\t\n", *rows[5:])
    assert problems(given) == [f"{tmp_path}/captions.tsv:6: the caption is empty"]
    skipped = Skipped()
    assert [len(one.fields) for one in good_records(given, skipped)] == [4, 3, 4, 4]
    assert skipped.counts == {Flaw.EMPTY: 1}


def test_only_an_empty_caption_of_a_list_is_left_out(tmp_path: Path) -> None:
    rows = [json.dumps({"file": f"{at}.png", "captions": [f"one of {at}", " ", "a\0b"][: 1 + at]}) for at in range(8)]
    given = recognise([put(tmp_path, FLAT | {"captions.jsonl": "\n".join(rows[:3]).encode()})])
    told = [one for one in records(given) if isinstance(one, Problem) and one.line]
    assert [(one.line, one.what) for one in told] == [
        (2, Flaw.EMPTY),
        (3, Flaw.EMPTY),
        (3, Flaw.NUL),
    ]
    assert [one.fields[1:] for one in found(given)] == [(f"one of {at}",) for at in range(3)]


def test_captions_of_one_image_are_joined_wherever_they_stand(tmp_path: Path) -> None:
    given = captioned(tmp_path, *(f"{at % 4}.png\tcaption {at} of it\n" for at in range(12)), "./0.png\tanother one\n")
    assert problems(given) == []
    assert [one.line for one in found(given)] == [2, 3, 4, 5]
    assert found(given)[0].fields[1:] == ("caption 0 of it", "caption 4 of it", "caption 8 of it", "another one")


def test_members_that_lead_outside_an_archive_are_counted(tmp_path: Path) -> None:
    file = tarred(tmp_path / "set.tar", PHOTOS | {"../evil/0.png": png(90), "/abs/1.png": png(91)})
    given = recognise([file])
    assert "10 images in 2 class folders (cat, dog), so" in sentence(given)
    assert sorted(problems(given)) == [
        f"{file}: '../evil/0.png' is a name that leads outside the archive",
        f"{file}: '/abs/1.png' is a name that leads outside the archive",
    ]
    assert len(found(given)) == 8


def test_a_line_that_names_a_member_outside_is_one_problem(tmp_path: Path) -> None:
    table = TABLE + b"../8.png,cat\n"
    given = recognise([tarred(tmp_path / "set.tar", FLAT | {"../8.png": png(8), "labels.csv": table})])
    assert problems(given) == [f"{tmp_path}/set.tar/labels.csv:10: '../8.png' is not in {tmp_path}/set.tar"]


TOPS = {
    "class folders": (PHOTOS, DataKind.IMAGES),
    "a table": (FLAT | {"labels.csv": TABLE}, DataKind.IMAGES),
    "captions": (FLAT | {"captions.jsonl": TABLES["captions"][1]}, DataKind.CAPTIONS),
    "a table and a folder": ({f"images/{n}": d for n, d in FLAT.items()} | {"labels.csv": TABLE}, DataKind.IMAGES),
}


@pytest.mark.parametrize("case", TOPS)
def test_one_folder_around_all_is_looked_through(tmp_path: Path, case: str) -> None:
    files, kind = TOPS[case]
    below = {f"data/set/{name}": data for name, data in files.items()} | {"data/.DS_Store": b""}
    packed = recognise([tarred(tmp_path / "all.tar", below | {"._data": b""})])
    plain = recognise([put(tmp_path / "plain", files)])
    for given in (packed, recognise([put(tmp_path / "folder", below)])):
        assert given.kind is kind
        assert problems(given) == []
        assert [one.fields for one in found(given)] == [one.fields for one in found(plain)]
    assert packed.files == (tmp_path / "all.tar",)


def test_a_table_beside_an_archive_with_one_folder(tmp_path: Path) -> None:
    tarred(tmp_path / "set.tar", {f"set/{name}": data for name, data in PHOTOS.items()})
    rows = "".join(f"{name},{name[4]}\n" for name in PHOTOS)
    (tmp_path / "t.csv").write_text(f"file,label\n{rows}")
    assert len(found(recognise([tmp_path / "set.tar", tmp_path / "t.csv"]))) == 8


def test_one_class_stays_a_class(tmp_path: Path) -> None:
    given = recognise([put(tmp_path, {"cat/1.png": png(1), "cat/2.png": png(2)})])
    assert [one.fields[1] for one in found(given)] == ["cat", "cat"]


def test_folders_that_links_lead_to_again_are_read_once(tmp_path: Path) -> None:
    """Where they stand themselves: what is in a link called `again` is no cat."""
    photos = put(tmp_path / "photos", PHOTOS)
    (photos / "cat" / "again").symlink_to("../dog")
    (photos / "dog" / "again").symlink_to("../cat")
    given = recognise([photos])
    assert problems(given) == []
    assert [one.fields[1] for one in found(given)] == ["cat"] * 4 + ["dog"] * 4


def test_a_link_to_the_whole_disk_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "all").symlink_to("/")
    assert not is_link_elsewhere(str(tmp_path), "all")


def test_an_empty_class_folder_is_told(tmp_path: Path) -> None:
    (put(tmp_path, PHOTOS | {"notes/a.md": b"hello"}) / "bird").mkdir()
    told = "8 images in 2 class folders (cat, dog) and 2 without images (bird, notes) (1 other file not read: .md), so"
    assert told in sentence(recognise([tmp_path]))


def test_a_transcript_that_nobody_could_say_is_a_problem(tmp_path: Path) -> None:
    for at in range(12):
        (tmp_path / f"{at}.wav").write_bytes(wav(at, 4000))
    lines = [f"{at}.wav\t{'ab ' * (200 if at == 3 else 2)}end" for at in range(12)]
    (tmp_path / "transcripts.tsv").write_text("\n".join(lines) + "\n")
    skipped = Skipped()
    given = recognise([tmp_path], kind=DataKind.SPEECH)
    assert len(list(good_records(given, skipped))) == 11
    assert skipped.counts == {Flaw.LONG: 1}
    with pytest.raises(UserError, match=r"transcripts\.tsv:4: has a transcript of 603 characters for 0\.50 seconds"):
        list(good_records(given, None))


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
    assert given.kind is DataKind.IMAGES
    assert sentence(given) == f"{folder}: 4 images, to be learned from without classes (change with data.objective)"
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
        recognise([folder], kind=DataKind.CAPTIONS, nameless=True)
    lines = "".join(f"{name}\ta photo of number {at}\n" for at, name in enumerate(NAMES))
    (folder / "captions.tsv").write_text(f"file\tcaption\n{lines}", encoding="utf-8")
    assert recognise([folder], nameless=True).kind is DataKind.CAPTIONS
