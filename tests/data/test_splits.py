"""The validation split, decided by each text alone and bounded; subsamples; files selected by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.data.checks import check
from headway.data.kinds import DataKind
from headway.data.recognise import recognise
from headway.data.records import RecognisedData, Record, records
from headway.data.splits import (
    DataSplits,
    default_share,
    held_out,
    only_named,
    share_for,
    split,
    split_by_names,
    stratified,
    subsample,
    without_test,
)
from headway.data.text_lines import Problem
from headway.errors import UserError
from tests.data.files import put, wav

TEXTS = [f"sentence number {number}" for number in range(5000)]


@given(text=st.text(), seed=st.integers(), share=st.floats(0, 1), more=st.floats(0, 1))
def test_a_larger_share_holds_out_no_less(text: str, seed: int, share: float, more: float) -> None:
    low, high = sorted((share, more))
    assert held_out(text, low, seed) <= held_out(text, high, seed)
    assert not held_out(text, 0.0, seed)
    assert held_out(text, 1.0, seed)


@given(text=st.text(), seed=st.integers(0, 9))
def test_white_space_moves_no_text_to_the_other_side(text: str, seed: int) -> None:
    assert held_out(f"  {text}\t", 0.5, seed) == held_out(text, 0.5, seed)


def test_the_share_is_kept() -> None:
    for seed in range(3):
        count = sum(held_out(text, 0.1, seed) for text in TEXTS)
        assert abs(count - 500) < 5 * 22  # five standard deviations


def test_seeds_hold_out_different_texts() -> None:
    one, two = ({text for text in TEXTS if held_out(text, 0.1, seed)} for seed in (0, 1))
    assert abs(len(one & two) - 50) < 40


def test_the_choice_is_the_same_everywhere() -> None:
    assert [number for number in range(40) if held_out(f"text {number}", 0.1, 0)] == [3, 21]


@pytest.mark.slow
@given(
    texts=st.lists(st.text(max_size=1), max_size=30),
    share=st.floats(0, 1),
    least=st.integers(0, 5),
    most=st.integers(0, 20),
)
def test_never_more_than_most(texts: Sequence[str], share: float, least: int, most: int) -> None:
    chosen = share_for(iter(texts), share, 0, least=least, most=most)
    assert sum(held_out(text, chosen, 0) for text in texts) <= most


@pytest.mark.slow
@given(texts=st.sets(st.integers(), min_size=6, max_size=60), share=st.floats(0, 1))
def test_distinct_texts_are_held_out_as_wished_within_the_bounds(texts: set[int], share: float) -> None:
    chosen = share_for(map(str, texts), share, 0, least=2, most=5)
    wished = sum(held_out(str(text), share, 0) for text in texts)
    assert sum(held_out(str(text), chosen, 0) for text in texts) == min(max(wished, 2), 5)


def test_the_cap_is_met_exactly() -> None:
    share = share_for(TEXTS, 0.1, 0, most=100)
    assert sum(held_out(text, share, 0) for text in TEXTS) == 100
    assert share_for(TEXTS, 0.01, 0, most=1000) == 0.01


RECORDS = [Record((f"text {at}", "abcd"[at // 250]), Path("a.tsv"), at + 1) for at in range(1000)]  # class by class


def whole(pairs: Sequence[tuple[str, ...]], kind: DataKind) -> DataSplits:
    goes_on = kind is DataKind.ROWS
    records = [Record(tuple(fields), Path("a"), at, goes_on and at > 1) for at, fields in enumerate(pairs, 1)]
    return DataSplits("a.tsv", kind, "", lambda: iter(records), lambda: iter(()), "")


labelled = st.lists(st.tuples(st.integers(0, 30).map(str), st.sampled_from("abcd")), min_size=2, max_size=120)


@pytest.mark.slow
@given(pairs=labelled, seed=st.integers(0, 3))
def test_no_text_is_on_both_sides_and_every_class_is_learned(pairs: list[tuple[str, str]], seed: int) -> None:
    """Also where a text occurs often, or with several labels."""
    found = split(whole(pairs, DataKind.LABELS), None, True, seed)
    train, held = list(found.train()), list(found.validation())
    assert len(train) + len(held) == len(pairs)
    assert not {one.fields[0] for one in train} & {one.fields[0] for one in held}
    again = split(whole(pairs, DataKind.LABELS), found.share, True, seed)  # as a resolved recipe says it
    assert list(again.validation()) == held


@pytest.mark.slow
@pytest.mark.parametrize(("count", "classes"), [(12, 2), (20, 4), (60, 4), (199, 3), (400, 2), (1000, 7), (60_000, 2)])
def test_every_class_has_its_share_held_out(count: int, classes: int) -> None:
    pairs = [(f"text {at}", str(at % classes)) for at in range(count)]
    found = split(whole(pairs, DataKind.LABELS), None, True, 0)
    held = Counter(one.fields[1] for one in found.validation())
    assert set(held) == {str(at) for at in range(classes)}
    for number in held.values():
        assert number == pytest.approx(min(default_share(count) * count, 2000) / classes, abs=1)


def test_few_records_have_more_held_out() -> None:
    assert [default_share(count) for count in (1, 60, 200, 400, 800, 10**6)] == [0.2, 0.2, 0.2, 0.1, 0.05, 0.05]
    for count in (10, 60, 150, 199):
        pairs = [(f"text {at}", "its target") for at in range(count)]
        assert len(list(split(whole(pairs, DataKind.PAIRS), None, True, 0).validation())) == round(count / 5)
    rows = split(whole([(f"{at} 1",) for at in range(50)], DataKind.ROWS), None, True, 0)
    assert rows.tail == rows.share == 0.2


def test_a_rare_class_is_learned_and_not_held_out() -> None:
    pairs = [(f"text {at}", "often") for at in range(50)] + [("once", "rare"), ("and", "twice"), ("again", "twice")]
    held = Counter(one.fields[1] for one in split(whole(pairs, DataKind.LABELS), None, True, 0).validation())
    assert held == {"often": 10}


@pytest.mark.slow
def test_many_records_without_classes_are_split_as_before() -> None:
    pairs = [(text, text) for text in TEXTS]
    share = share_for(TEXTS, 0.05, 3)
    before = [text for text in TEXTS if held_out(text, share, 3)]
    for stratify in (True, False):
        found = split(whole(pairs, DataKind.PAIRS), None, stratify, 3)
        assert [one.fields[0] for one in found.validation()] == before


@pytest.mark.slow
@given(pairs=labelled)
def test_without_strata_the_split_is_that_of_earlier_versions(pairs: list[tuple[str, str]]) -> None:
    """Which a recipe of theirs asks for: it names the share and no strata."""
    chosen = share_for([text for text, _ in pairs], 0.05, 1)
    found = split(whole(pairs, DataKind.LABELS), 0.05, False, 1)
    assert [one.fields for one in found.validation()] == [one for one in pairs if held_out(one[0], chosen, 1)]


def test_a_text_that_fills_a_class_is_not_all_that_is_held_out() -> None:
    pairs = [("x", "a")] * 15 + [("y", "a"), ("z", "a"), *((f"w{at}", "b") for at in range(10))]
    share, places = stratified(pairs, None, 0)
    assert (share, len(places)) == (0.2, 4)  # y and z, and two of the others


def test_all_classes_are_among_a_few() -> None:
    counts = Counter(record.fields[1] for record in subsample(RECORDS, 100))
    assert counts.total() == 100
    assert min(counts[label] for label in "abcd") >= 15


def test_they_keep_their_order_and_all_come_where_there_are_fewer() -> None:
    lines = [record.line for record in subsample(RECORDS, 100)]
    assert lines == sorted(lines)
    assert subsample(RECORDS[:7], 100) == RECORDS[:7]
    assert subsample([], 3) == []


def test_a_few_of_some_are_a_few_of_all() -> None:
    assert subsample(subsample(RECORDS, 300), 50) == subsample(RECORDS, 50)


def test_what_a_record_holds_decides_and_not_its_place() -> None:
    moved = [replace(record, line=at) for at, record in enumerate(reversed(RECORDS), start=1)]
    assert {one.fields for one in subsample(moved, 60)} == {one.fields for one in subsample(RECORDS, 60)}


OPTION = "--test-from"


@pytest.fixture
def digits(tmp_path: Path) -> RecognisedData:
    put(tmp_path, {f"{digit}_ann_{at}.wav": wav(10 * digit + at) for digit in range(3) for at in range(10)})
    return recognise([tmp_path], label_from=r"(\d)_")


def names(given: RecognisedData) -> set[str]:
    return {one.file.stem for one in records(given) if isinstance(one, Record)}


def test_names_decide_what_is_held_out(digits: RecognisedData) -> None:
    train, held = split_by_names(digits, "_[0-4]$", OPTION)
    assert Counter(name[0] for name in names(held)) == {"0": 5, "1": 5, "2": 5}
    assert {name[-1] for name in names(train)} == set("56789")
    assert check(train, validation=held).counts == {}
    assert train.fingerprint != held.fingerprint


def test_patterns_add_up(digits: RecognisedData) -> None:
    """What is kept for a test is in neither part of what is left."""
    left = without_test(digits, "_[0-4]$", OPTION)
    assert left.description == f"{digits.description}; 15 files kept for a test, by '_[0-4]$' in their names"
    train, held = split_by_names(left, "_[56]$", "--data.held-from")
    assert {name[-1] for name in names(train)} == set("789")
    assert {name[-1] for name in names(held)} == set("56")
    assert len({left.fingerprint, train.fingerprint, held.fingerprint, digits.fingerprint}) == 4


def test_what_is_kept_for_a_test_is_not_opened(digits: RecognisedData, tmp_path: Path) -> None:
    (tmp_path / "0_ann_0.wav").write_bytes(b"no sound at all")
    left = without_test(digits, "_0$", OPTION)
    assert not [one for one in records(left) if isinstance(one, Problem)]
    assert [one.file.name for one in records(digits) if isinstance(one, Problem)] == ["0_ann_0.wav"]


def test_a_folder_of_test_files_alone_can_be_measured_on(digits: RecognisedData) -> None:
    assert names(only_named(digits, "ann", OPTION)) == names(digits)


REFUSED = {
    "none": ("bob", r"--test-from 'bob' finds none of the names, such as '0_ann_0'; give one that finds some"),
    "all": ("ann", r"--test-from 'ann' finds all names, and none are left"),
    "no pattern": ("(", r"'\(' is no pattern"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_patterns_that_cannot_be_meant_are_told(digits: RecognisedData, case: str) -> None:
    pattern, said = REFUSED[case]
    with pytest.raises(UserError, match=said):
        split_by_names(digits, pattern, OPTION)


def test_other_data_has_no_names(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("eins\tone\nzwei\ttwo\n", encoding="utf-8")
    with pytest.raises(UserError, match="only files of images or sounds can be told apart by their names"):
        without_test(recognise([tmp_path / "a.tsv"]), "e", OPTION)


@pytest.mark.slow
def test_real_recordings(shared: Path) -> None:
    """The patterns of recipes/spoken-digits.yaml and recipes/yesno.yaml."""
    given = recognise([shared / "data/fsdd/recordings"], label_from=r"(\d)_")
    left = without_test(given, "_[0-4]$", OPTION)
    assert left.description.endswith("; 300 files kept for a test, by '_[0-4]$' in their names")
    words = recognise([shared / "data/yesno"], label_from="(.*)")
    assert without_test(words, "^0.*1$", OPTION).description.endswith(
        "; 12 files kept for a test, by '^0.*1$' in their names"
    )
