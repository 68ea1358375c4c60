"""Folds: every record is held out once, what belongs together is in one of them, and each class is in all of them."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.data.folds import dealt
from headway.data.records import Record
from headway.data.splits import DataSplits
from headway.errors import UserError
from headway.tasks.base import task_class
from headway.training.recipe_data import load_splits
from headway.training.recipe_sources import read_layers, resolve

ROWS = st.lists(
    st.tuples(st.sampled_from([f"text {at}" for at in range(12)]), st.sampled_from("xyz"), st.sampled_from("abcdef")),
    min_size=3,
    max_size=40,
)


def folds_of(rows: Any, folds: int, seed: int = 0, **settings: Any) -> list[DataSplits]:
    """All folds of records in Python, or of a file."""
    options: dict[str, Any] = {"data.folds": folds, "seed": seed, **{f"data.{name}": x for name, x in settings.items()}}
    path, records = ({"data.path": (str(rows),)}, None) if isinstance(rows, Path) else ({}, rows)
    task = None if isinstance(rows, Path) else task_class("text-classification")
    return [
        load_splits(resolve(read_layers({**path, **options, "data.fold": at + 1}, environ={})), task, records)
        for at in range(folds)
    ]


def lines(records: Any) -> list[tuple[str, ...]]:
    return [(*record.fields, record.group, str(record.line)) for record in records]


@pytest.mark.slow
@given(ROWS, st.integers(2, 6), st.integers(0, 9), st.booleans(), st.booleans())
def test_every_record_is_held_out_once(
    rows: list[tuple[str, str, str]], folds: int, seed: int, grouped: bool, stratify: bool
) -> None:
    """With the records of its text, or of its group, and of these none is learned from at the same time."""
    whole = [Record(row[:2], Path("records"), at, group=row[2] * grouped) for at, row in enumerate(rows)]
    kept = 2 if grouped else 0
    units = {row[kept] for row in rows}
    if len(units) < folds:
        with pytest.raises(UserError, match="each fold needs one"):
            folds_of(whole, folds, seed, stratify=stratify)
        return
    found = folds_of(whole, folds, seed, stratify=stratify)
    held = [lines(one.validation()) for one in found]
    assert all(held)
    assert sorted(line for part in held for line in part) == sorted(lines(whole))
    for one, part in zip(found, held, strict=True):
        learned = lines(one.train())
        assert sorted(learned + part) == sorted(lines(whole))
        assert not {line[kept] for line in learned} & {line[kept] for line in part}
        assert (one.share, one.tail, one.test) == (None, 0.0, None)
    assert len({one.digest for one in found}) == folds


@given(st.lists(st.sampled_from("aaabbc"), min_size=6, max_size=80), st.integers(2, 6), st.integers(0, 9))
def test_folds_and_classes_differ_by_one_record_at_most(labels: list[str], folds: int, seed: int) -> None:
    units = {f"{at}": Counter([label]) for at, label in enumerate(labels)}
    found = dealt(units, folds, seed)
    for of in ("abc", *labels):
        sizes = Counter(dict.fromkeys(range(folds), 0))
        sizes.update(fold for unit, fold in found.items() if labels[int(unit)] in of)
        assert max(sizes.values()) - min(sizes.values()) <= 1
    shuffled = list(units.items())
    random.Random(seed).shuffle(shuffled)
    assert dealt(dict(shuffled), folds, seed) == found  # the order of records decides nothing


def test_groups_of_many_sizes_give_folds_of_one_size_and_every_class_its_part() -> None:
    draw = random.Random(3)
    units = {
        f"group {at}": Counter("rare" if draw.random() < at / 400 else "often" for _ in range(draw.randint(3, 30)))
        for at in range(80)
    }
    totals = sum(units.values(), Counter[str]())
    found = dealt(units, 5, 0)
    assert totals["rare"] > 50
    for fold in range(5):
        held = sum((units[unit] for unit, at in found.items() if at == fold), Counter[str]())
        assert all(abs(held[label] / total - 0.2) < 0.02 for label, total in totals.items())
    assert found != dealt(units, 5, 1)


def test_documents_are_whole_and_folds_have_as_many_words(tmp_path: Path) -> None:
    for at in range(12):
        (tmp_path / f"{at}.txt").write_text("".join(f"word {at} {line}\n" for line in range(5 + at * 3)))
    found = folds_of(tmp_path, 3)
    files = [{record.file.name for record in one.validation()} for one in found]
    assert sorted(name for part in files for name in part) == sorted(f"{at}.txt" for at in range(12))
    sizes = [sum(len(record.fields[0].split()) for record in one.validation()) for one in found]
    assert max(sizes) < 1.05 * min(sizes)


def test_what_a_fold_lacks_is_noted(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text(
        "text,label\n" + "".join(f"text {at},{'ab'[at % 2] if at else 'only'}\n" for at in range(21))
    )
    whole = load_splits(
        resolve(read_layers({"data.path": (str(tmp_path / "labels.csv"),), "data.folds": 4}, environ={}))
    )
    assert whole.description.endswith("; 4 folds of 5 to 6 records; not every fold has records of only (1)")
    assert (len(list(whole.train())), list(whole.validation())) == (21, [])


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "one text": ({"path": ("book.txt",), "folds": 3}, r"3 of 1 text, .*; leave out data.folds: the end of the text"),
    "few records": ({"path": ("few.csv",), "folds": 5}, "5 of 4 different records, and .*; give data.folds 4, or more"),
    "few groups": ({"path": ("few.csv",), "folds": 3, "group": "who"}, "3 of 2 groups, .*; give data.folds 2, or more"),
    "rows": ({"path": ("rows.csv",), "task": "forecast", "folds": 2}, "is one series of .*; leave out data.folds"),
    "dates": ({"path": ("dates",), "folds": 2}, "dates comes with 1,000 validation records of its own; leave out"),
    "named parts": (
        {"path": ("parts",), "folds": 2},
        r"validation.csv is for validation already; leave out data.folds",
    ),
    "a share": ({"path": ("few.csv",), "folds": 2, "validation_split": 0.1}, "are both given; give one of them"),
    "a file": (
        {"path": ("few.csv",), "folds": 2, "validation": (Path("few.csv"),)},
        "are both given; give one of them",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_folded_is_refused(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("book.txt").write_text("a text of one line\nand another\n")
    Path("few.csv").write_text("text,label,who\n" + "".join(f"text {at},{'ab'[at % 2]},{at // 2}\n" for at in range(4)))
    Path("rows.csv").write_text("x,y\n" + "".join(f"{at},{at % 7}\n" for at in range(60)))
    Path("parts").mkdir()
    for part in ("train", "validation"):
        Path(f"parts/{part}.csv").write_text("text,label\nthe one,a\nthe other,b\nthe third,a\n")
    settings, said = REFUSED[case]
    with pytest.raises(UserError, match=said):
        load_splits(resolve(read_layers({f"data.{name}": value for name, value in settings.items()}, environ={})))


def test_test_data_is_for_the_model_of_all_records(tmp_path: Path) -> None:
    rows = [json.dumps({"text": f"text {at}", "label": "ab"[at % 2]}) + "\n" for at in range(20)]
    (tmp_path / "train.jsonl").write_text("".join(rows[:12]))
    (tmp_path / "test.jsonl").write_text("".join(rows[12:]))
    assert [one.test for one in folds_of(tmp_path, 3)] == [None] * 3
    whole = load_splits(resolve(read_layers({"data.path": (str(tmp_path),), "data.folds": 3}, environ={})))
    assert whole.test is not None
    assert len(list(whole.test())) == 8
