"""Images and sounds told apart by their names: held out, or kept for a test."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from headway.data.checks import check
from headway.data.given import Given
from headway.data.lines import Problem
from headway.data.named import only_named, split_by_names, without_test
from headway.data.recognise import recognise
from headway.data.records import Record, records
from headway.errors import UserError
from tests.data.files import put, wav

OPTION = "--test-from"


@pytest.fixture
def digits(tmp_path: Path) -> Given:
    put(tmp_path, {f"{digit}_ann_{at}.wav": wav(10 * digit + at) for digit in range(3) for at in range(10)})
    return recognise([tmp_path], label_from=r"(\d)_")


def names(given: Given) -> set[str]:
    return {one.file.stem for one in records(given) if isinstance(one, Record)}


def test_names_decide_what_is_held_out(digits: Given) -> None:
    train, held = split_by_names(digits, "_[0-4]$", OPTION)
    assert Counter(name[0] for name in names(held)) == {"0": 5, "1": 5, "2": 5}
    assert {name[-1] for name in names(train)} == set("56789")
    assert check(train, validation=held).counts == {}
    assert train.told != held.told


def test_patterns_add_up(digits: Given) -> None:
    """What is kept for a test is in neither part of what is left."""
    left = without_test(digits, "_[0-4]$", OPTION)
    assert left.why == f"{digits.why}; 15 files kept for a test, by '_[0-4]$' in their names"
    train, held = split_by_names(left, "_[56]$", "--data.held-from")
    assert {name[-1] for name in names(train)} == set("789")
    assert {name[-1] for name in names(held)} == set("56")
    assert len({left.told, train.told, held.told, digits.told}) == 4


def test_what_is_kept_for_a_test_is_not_opened(digits: Given, tmp_path: Path) -> None:
    (tmp_path / "0_ann_0.wav").write_bytes(b"no sound at all")
    left = without_test(digits, "_0$", OPTION)
    assert not [one for one in records(left) if isinstance(one, Problem)]
    assert [one.file.name for one in records(digits) if isinstance(one, Problem)] == ["0_ann_0.wav"]


def test_a_folder_of_test_files_alone_can_be_measured_on(digits: Given) -> None:
    assert names(only_named(digits, "ann", OPTION)) == names(digits)


REFUSED = {
    "none": ("bob", r"--test-from 'bob' finds none of the names, such as '0_ann_0'; give one that finds some"),
    "all": ("ann", r"--test-from 'ann' finds all names, and none are left"),
    "no pattern": ("(", r"'\(' is no pattern"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_patterns_that_cannot_be_meant_are_told(digits: Given, case: str) -> None:
    pattern, said = REFUSED[case]
    with pytest.raises(UserError, match=said):
        split_by_names(digits, pattern, OPTION)


def test_other_data_has_no_names(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("eins\tone\nzwei\ttwo\n", encoding="utf-8")
    with pytest.raises(UserError, match="only files of images or sounds can be told apart by their names"):
        without_test(recognise([tmp_path / "a.tsv"]), "e", OPTION)


def test_real_recordings(shared: Path) -> None:
    """The patterns of recipes/spoken-digits.yaml and recipes/yesno.yaml."""
    given = recognise([shared / "data/fsdd/recordings"], label_from=r"(\d)_")
    left = without_test(given, "_[0-4]$", OPTION)
    assert left.why.endswith("; 300 files kept for a test, by '_[0-4]$' in their names")
    words = recognise([shared / "data/yesno"], label_from="(.*)")
    assert without_test(words, "^0.*1$", OPTION).why.endswith("; 12 files kept for a test, by '^0.*1$' in their names")
