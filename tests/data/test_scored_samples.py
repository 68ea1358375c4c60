"""Images, sounds and series with a number each: what is taken for such, which numbers, and what is wrong with one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.data.checks import check
from headway.data.kinds import DataKind, are_alternatives
from headway.data.recognise import recognise
from headway.data.records import RecognisedData, Record, records
from headway.data.text_lines import Flaw, Problem
from headway.errors import UserError
from headway.tasks.registry import data_kind, sentence
from tests.data.files import png, put, wav

COUNT = 30
PHOTOS = {f"photos/{at:02}.png": png(at) for at in range(COUNT)}
TONES = {f"tones/{at:02}.wav": wav(at) for at in range(COUNT)}
NUMBERS = [at / 4 for at in range(COUNT)]  # many, with fractions
STARS = [at % 5 for at in range(COUNT)]
AGES = [at // 2 for at in range(COUNT)]  # whole numbers that come again, more than classes are
REGRESSION: dict[str, Any] = {"kind": data_kind("regression")}


def table(head: str, *columns: list[Any], suffix: str = ".png") -> bytes:
    rows = [f"{at:02}{suffix},{','.join(map(str, cells))}" for at, cells in enumerate(zip(*columns, strict=True))]
    return "\n".join([head, *rows, ""]).encode()


def lines(**columns: list[Any]) -> bytes:
    rows = [{"file_name": f"{at:02}.png"} | {name: cells[at] for name, cells in columns.items()} for at in range(COUNT)]
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


SENTENCES = [f"what is seen in picture {at}" for at in range(COUNT)]
CASES: dict[str, tuple[dict[str, bytes], list[str], dict[str, Any], DataKind, list[Any], str]] = {
    "a table beside images": (
        PHOTOS | {"photos.csv": table("file,age", NUMBERS)},
        ["photos.csv"],
        {},
        DataKind.SCORED_IMAGES,
        NUMBERS,
        "photos.csv and photos: 30 lines of images and values, so regression of images (change with data.task)",
    ),
    "a table among images": (
        PHOTOS | {"photos/metadata.csv": table("file_name,age", NUMBERS)},
        ["photos"],
        {},
        DataKind.SCORED_IMAGES,
        NUMBERS,
        "photos/metadata.csv and photos: 30 lines of images and values",
    ),
    "many whole numbers": (
        PHOTOS | {"photos.csv": table("file,label", list(range(COUNT)))},
        ["photos.csv"],
        {},
        DataKind.SCORED_IMAGES,
        list(range(COUNT)),
        "so regression of images",
    ),
    "whole numbers that come again": (
        PHOTOS | {"photos.csv": table("file,age", AGES)},
        ["photos.csv"],
        {},
        DataKind.SCORED_IMAGES,
        AGES,
        "so regression of images",
    ),
    "whole numbers without a name": (
        TONES | {"tones.csv": table("", AGES, suffix=".wav").lstrip()},
        ["tones.csv"],
        {"header": "no"},
        DataKind.SCORED_SOUNDS,
        AGES,
        "so regression of sounds",
    ),
    "few whole numbers": (
        PHOTOS | {"photos.csv": table("file,stars", STARS)},
        ["photos.csv"],
        {},
        DataKind.IMAGES,
        STARS,
        "so image classification",
    ),
    "few whole numbers that are asked for": (
        PHOTOS | {"photos.csv": table("file,stars", STARS)},
        ["photos.csv"],
        REGRESSION,
        DataKind.SCORED_IMAGES,
        STARS,
        "so regression of images",
    ),
    "many numbers, and classes are asked for": (
        PHOTOS | {"photos.csv": table("file,age", NUMBERS)},
        ["photos.csv"],
        {"kind": DataKind.IMAGES},
        DataKind.IMAGES,
        NUMBERS,
        "so image classification",
    ),
    "a score among other columns": (
        PHOTOS | {"photos.csv": table("file,place,score", SENTENCES, NUMBERS)},
        ["photos.csv"],
        {},
        DataKind.SCORED_IMAGES,
        NUMBERS,
        "so regression of images",
    ),
    "the only column of numbers, where they are asked for": (
        PHOTOS | {"photos.csv": table("file,place,by,age", SENTENCES, SENTENCES, STARS)},
        ["photos.csv"],
        REGRESSION,
        DataKind.SCORED_IMAGES,
        STARS,
        "so regression of images",
    ),
    "a caption beside a score": (
        PHOTOS | {"photos.csv": table("file,caption,score", SENTENCES, NUMBERS)},
        ["photos.csv"],
        {},
        DataKind.CAPTIONS,
        SENTENCES,
        "so captioning",
    ),
    "fractions of JSON": (
        PHOTOS | {"photos/metadata.jsonl": lines(grey=[at % 3 / 2 for at in range(COUNT)])},
        ["photos"],
        {},
        DataKind.SCORED_IMAGES,
        [at % 3 / 2 for at in range(COUNT)],
        "so regression of images",
    ),
    "a text of JSON beside fractions": (
        PHOTOS | {"photos/metadata.jsonl": lines(says=SENTENCES, grey=NUMBERS)},
        ["photos"],
        {},
        DataKind.CAPTIONS,
        SENTENCES,
        "so captioning",
    ),
    "sounds": (
        TONES | {"tones.csv": table("file,pitch", NUMBERS, suffix=".wav")},
        ["tones.csv"],
        {},
        DataKind.SCORED_SOUNDS,
        NUMBERS,
        "tones.csv and tones: 30 lines of sounds of 8,000 Hz and values, so regression of sounds",
    ),
    "numbers in names": (
        {f"faces/{at}_of_{at * 3}.png": png(at) for at in range(4)},
        ["faces"],
        {"label_from": r".*_(\d+)", **REGRESSION},
        DataKind.SCORED_IMAGES,
        [0, 3, 6, 9],
        "faces: 4 images with 4 values in their names (0, 3, 6, 9), so regression of images",
    ),
    "folders that are numbers": (
        {f"ages/{age}/{age}.png": png(age) for age in (20, 30, 40)},
        ["ages"],
        REGRESSION,
        DataKind.SCORED_IMAGES,
        [20, 30, 40],
        "ages: 3 images in 3 class folders (20, 30, 40), so regression of images",
    ),
    "numbers in files beside images": (
        {f"set/{at}.png": png(at) for at in range(3)} | {f"set/{at}.txt": b"%d.5\n" % at for at in range(3)},
        ["set"],
        REGRESSION,
        DataKind.SCORED_IMAGES,
        [0.5, 1.5, 2.5],
        "set: 3 images with a value each, in a .txt file of the same name, so regression of images",
    ),
}


def values(given: RecognisedData) -> list[Any]:
    """What is said of each sample, as numbers where they are such."""
    found = list(records(given))
    assert all(isinstance(one, Record) for one in found)
    said = [one.fields[1] for one in found if isinstance(one, Record)]
    return said if given.kind is DataKind.CAPTIONS else list(map(float, said))


@pytest.mark.parametrize("case", CASES)
def test_what_is_said_of_media_is_a_number_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    files, paths, options, kind, wanted, why = CASES[case]
    monkeypatch.chdir(put(tmp_path, files))
    given = recognise([Path(path) for path in paths], **options)
    assert (given.kind, values(given)) == (kind, wanted)
    assert why in sentence(given)
    assert check(given).counts == {}


DRAWN = np.random.default_rng(0).normal(size=(COUNT, 3)).round(3)


def series(head: str, *more: list[Any]) -> str:
    cells = [[*row, *extra] for row, *extra in zip(DRAWN.tolist(), *more, strict=True)]
    return "\n".join([head, *(",".join(map(str, row)) for row in cells), ""])


SERIES: dict[str, tuple[str, dict[str, Any], DataKind, list[float], str]] = {
    "a target of many numbers": (
        series("a,b,c,target", NUMBERS),
        {},
        DataKind.SCORED_SERIES,
        NUMBERS,
        "the one to predict (a, b, c, target; the first line is a header), so regression of series",
    ),
    "a target of few whole numbers": (
        series("a,b,c,target", STARS),
        {},
        DataKind.SERIES,
        STARS,
        "so classification of series",
    ),
    "the last column, where numbers are asked for": (
        series("a,b,c,much", STARS),
        REGRESSION,
        DataKind.SCORED_SERIES,
        STARS,
        "3 numbers and the one to predict (a, b, c, much",
    ),
    "a column that is named like a score": (
        series("a,price,c,much", STARS),
        REGRESSION,
        DataKind.SCORED_SERIES,
        DRAWN[:, 1].tolist(),
        "3 numbers and the one to predict (a, c, much, price",
    ),
    "the last of the columns that are chosen": (
        series("a,price,c,much", STARS),
        {**REGRESSION, "columns": ["price", "c"]},
        DataKind.SCORED_SERIES,
        DRAWN[:, 2].tolist(),
        "1 number and the one to predict (price, c",
    ),
}


@pytest.mark.parametrize("case", SERIES)
def test_which_number_of_a_row_is_predicted(tmp_path: Path, case: str) -> None:
    text, options, kind, wanted, why = SERIES[case]
    (tmp_path / "a.csv").write_text(text)
    given = recognise([tmp_path / "a.csv"], **options)
    assert (given.kind, values(given)) == (kind, wanted)
    assert why in sentence(given)


def test_texts_with_numbers_stay_texts(tmp_path: Path) -> None:
    """Also where a column names images that are not there."""
    texts = "".join(f"{text},{at:02}.png,{at % 3}\n" for at, text in enumerate(SENTENCES))
    for name, text in (("a.csv", f"text,image,score\n{texts}"), ("b.csv", "text,score\none text,1\nanother,2\n")):
        (tmp_path / name).write_text(text)
        assert recognise([tmp_path / name], **REGRESSION).kind is DataKind.SCORES


BAD = {
    "a word": ("abc", Flaw.NUMBER, "the value is 'abc', not a number"),
    "no number": ("nan", Flaw.NUMBER, "the value is 'nan', not a number"),
    "without end": ("-inf", Flaw.NUMBER, "the value is '-inf', not a number"),
    "too large": ("1e39", Flaw.NUMBER, "the value is '1e39', not a number"),
    "an empty cell": ("", Flaw.EMPTY, "the value is empty"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_cell_that_is_no_number_is_named(tmp_path: Path, case: str) -> None:
    cell, flaw, said = BAD[case]
    cells = [*map(str, NUMBERS[:4]), cell, *map(str, NUMBERS[5:])]
    put(tmp_path, PHOTOS | {"photos.csv": table("file,age", cells), "a.csv": series("a,b,c,y", cells).encode()})
    for name, where in (("photos.csv", "the value"), ("a.csv", "column 4 (y)")):
        [problem] = [one for one in records(recognise([tmp_path / name])) if isinstance(one, Problem)]
        assert (problem.line, problem.what) == (6, flaw)
        assert problem.said.endswith(said.replace("the value", where))


def test_values_of_json_that_are_no_numbers(tmp_path: Path) -> None:
    odd = [float("nan"), [1.5], True, "1.5"]
    put(tmp_path, PHOTOS | {"photos/metadata.jsonl": lines(grey=[*odd, *NUMBERS[4:]])})
    found = [one for one in records(recognise([tmp_path / "photos"], **REGRESSION)) if isinstance(one, Problem)]
    assert [(one.line, one.said) for one in found] == [
        (1, "the value is 'NaN', not a number"),
        (2, "the value is '[1.5]', not a number"),
        (3, "the value is 'true', not a number"),
    ]


def test_images_and_sounds_in_one_folder_are_not_guessed_at(tmp_path: Path) -> None:
    put(tmp_path, {"a/1.png": png(), "a/1.wav": wav()})
    with pytest.raises(UserError, match="holds 1 image and 1 sound; give a folder of one of them"):
        recognise([tmp_path / "a"], **REGRESSION)


def test_what_the_same_table_may_be_taken_for() -> None:
    assert are_alternatives(DataKind.IMAGES, DataKind.SCORED_IMAGES)
    assert are_alternatives(DataKind.SCORED_SERIES, DataKind.ROWS)
    assert not are_alternatives(DataKind.IMAGES, DataKind.CAPTIONS)
    assert not are_alternatives(DataKind.SCORED_IMAGES, DataKind.SOUNDS)
