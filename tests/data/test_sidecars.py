"""Images and sounds with a small file beside each, in folders and in archives (WebDataset), and files by pattern."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headway.cli.main import main
from headway.data.kinds import DataKind
from headway.data.recognise import recognise
from headway.data.records import RecognisedData, Record, records
from headway.data.text_lines import Flaw, Problem
from headway.errors import UserError
from headway.training.recipe_sources import checked
from headway.training.setting_origins import COMMAND_LINE
from tests.data.files import jpg, png, put, tarred, wav

CAPTIONS = {f"{at}.txt": f"a picture of number {at}\n".encode() for at in range(8)}
IMAGES = {f"{at}.png": png(at) for at in range(8)}
CLASSES = {f"{at}.cls": b"%d" % (at % 2) for at in range(8)}
TOLD = {
    f"{at}.json": json.dumps({"text": "no", "at": {"caption": f"number {at}"}}).encode() for at in range(8)
}  # text is a caption's word too, and first
LABELLED = {f"{at}.json": json.dumps({"id": at, "label": at % 3}).encode() for at in range(8)}
SOUNDS = {f"{at}.wav": wav(at, 4000) for at in range(8)}


def texts(given: RecognisedData) -> list[str]:
    return [one.fields[1] if isinstance(one, Record) else str(one.what) for one in records(given)]


CASES: dict[str, tuple[dict[str, bytes], dict[str, Any], DataKind, list[str], str]] = {
    "captions": (IMAGES | CAPTIONS, {}, DataKind.CAPTIONS, ["a picture of number 0"], "a caption each, in a .txt file"),
    "classes": (IMAGES | CLASSES, {}, DataKind.IMAGES, ["0", "1"], "a class each, in a .cls file"),
    "both": (IMAGES | CLASSES | CAPTIONS, {}, DataKind.IMAGES, ["0", "1"], "(8 other files not read: .txt)"),
    "both, captions wanted": (
        IMAGES | CLASSES | CAPTIONS,
        {"kind": DataKind.CAPTIONS},
        DataKind.CAPTIONS,
        ["a picture of number 0"],
        "a caption each",
    ),
    "classes as texts": (
        IMAGES | {f"{at}.txt": (b"cat", b"dog")[at % 2] for at in range(8)},
        {},
        DataKind.IMAGES,
        ["cat", "dog"],
        "a class each, in a .txt file",
    ),
    "labels in JSON": (IMAGES | LABELLED, {}, DataKind.IMAGES, ["0", "1", "2"], "a class each, in a .json file"),
    "captions in JSON": (IMAGES | TOLD, {}, DataKind.CAPTIONS, ["no"], "a caption each, in a .json file"),
    "transcripts": (SOUNDS | CAPTIONS, {}, DataKind.SPEECH, ["a picture of number 0"], "a transcript each"),
}


@pytest.mark.parametrize("archive", [False, True], ids=["folder", "tar"])
@pytest.mark.parametrize("case", CASES)
def test_what_stands_beside_a_file(tmp_path: Path, case: str, archive: bool) -> None:
    files, options, kind, first, said = CASES[case]
    path = tarred(tmp_path / "a.tar", files) if archive else put(tmp_path / "a", files)
    given = recognise([path], **options)
    assert given.kind is kind
    assert said in given.description
    assert texts(given)[: len(first)] == first
    assert len(texts(given)) == 8


def test_shards_are_read_one_after_the_other(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    shards = [
        tarred(tmp_path / "set" / f"{n}.tar", {f"{n}{at}.{end}": data for at in range(4) for end, data in sample(at)})
        for n in range(3)
    ]
    given = recognise([tmp_path / "set"])
    assert "4 images with a class each, in a .cls file of the same name" in given.description
    assert given.description.endswith("and 2 more archives like it")
    assert [one.file.name for one in records(given)] == [f"{n}{at}.jpg" for n in range(3) for at in range(4)]
    assert given.files == tuple(shards)
    assert texts(recognise([tmp_path / "set" / "*.tar"])) == texts(given)
    assert texts(recognise(shards[:2])) == texts(given)[:8]


def sample(at: int) -> list[tuple[str, bytes]]:
    return [("jpg", jpg(at)), ("cls", b"%d" % (at % 2)), ("json", b"{}")]


def test_folders_in_an_archive_and_dots_in_names(tmp_path: Path) -> None:
    files = {f"shard/{at}.{end}": data for at in range(4) for end, data in (("left.png", png(at)), ("cls", b"x"))}
    given = recognise([tarred(tmp_path / "a.tar", files)])
    assert (given.kind, texts(given)) == (DataKind.IMAGES, ["x"] * 4)


def test_what_is_wrong_with_one_is_a_problem(tmp_path: Path) -> None:
    files = {f"{at:02}.{end}": data for at in range(20) for end, data in (("png", png(at)), ("txt", b"words %d" % at))}
    del files["03.txt"]
    given = recognise([put(tmp_path / "a", files | {"04.txt": b"\xff\xfe", "05.txt": b" \n"})])
    assert given.kind is DataKind.CAPTIONS
    found = [one for one in records(given) if isinstance(one, Problem)]
    assert [(one.file.name, one.what) for one in found] == [
        ("03.png", Flaw.UNNAMED),
        ("04.png", Flaw.UNNAMED),
        ("05.png", Flaw.EMPTY),
    ]
    assert str(found[0]).endswith("03.png: has no 03.txt beside it")
    assert str(found[1]).endswith("has 04.txt beside it, which is no text in UTF-8")


def test_the_files_beside_belong_to_the_data(tmp_path: Path) -> None:
    folder = put(tmp_path / "a", IMAGES | CAPTIONS)
    assert folder / "3.txt" in recognise([folder]).files


def test_a_pattern_that_finds_nothing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"\*\.tsv finds no file; check the names"):
        recognise([tmp_path / "*.tsv"])
    (tmp_path / "[a].tsv").write_text("a\tb\n" * 3)  # a name that is there is no pattern
    assert recognise([tmp_path / "[a].tsv"]).kind is DataKind.PAIRS


def test_a_pattern_of_tables(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / f"{name}.tsv").write_text(f"from {name}\tto {name}\n" * 2)
    given = recognise([tmp_path / "?.tsv"])
    assert [one.fields[0] for one in records(given) if isinstance(one, Record)] == ["from a"] * 2 + ["from b"] * 2


def test_commands_and_recipes_take_patterns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("b", "a"):
        Path(f"{name}.tsv").write_text("".join(f"{name} from {n}\t{name} to {n}\n" for n in range(9)))
    found = checked("data.path", ["*.tsv", "./b.tsv"], COMMAND_LINE)
    assert found == ("a.tsv", "b.tsv", "./b.tsv")
    assert main(["check", "*.tsv"]) == 0
    assert "18 records, 18 good" in capsys.readouterr().out
    assert main(["check", "*.csv"]) == 2
    assert "*.csv finds no file" in capsys.readouterr().err
