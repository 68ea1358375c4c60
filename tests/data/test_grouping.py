"""Groups of records, such as speakers and patients: read beside the fields, and whole on one side of the split."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from headway.data.records import Record
from headway.data.splits import DataSplits, held_groups
from headway.errors import UserError
from headway.tasks.base import task_class
from headway.training.recipe_data import load_splits
from headway.training.recipe_sources import read_layers, resolve

PAIRS = st.lists(st.tuples(st.sampled_from("abcdefghij"), st.sampled_from("xyz")), min_size=2, max_size=60)


def splits_of(paths: Path, **settings: Any) -> DataSplits:
    given = {f"data.{name}": value for name, value in settings.items()}
    return load_splits(resolve(read_layers({"data.path": (str(paths),), **given}, environ={})))


@given(PAIRS, st.floats(0.01, 0.5), st.integers(0, 9), st.randoms(use_true_random=False))
def test_training_has_some_of_each_class(
    pairs: list[tuple[str, str]], share: float, seed: int, shuffled: random.Random
) -> None:
    """And the order of the records decides nothing."""
    again = list(pairs)
    shuffled.shuffle(again)
    groups = {group for group, _ in pairs}
    able = [g for g in groups if {label for _, label in pairs} == {label for other, label in pairs if other != g}]
    if not able:
        with pytest.raises(UserError, match=r"all records are of one group|each has all records of some class"):
            held_groups(pairs, share, seed)
        return
    held, count = held_groups(pairs, share, seed)
    assert held_groups(again, share, seed) == (held, count)
    assert count == len(groups)
    assert held
    assert held < groups
    assert {label for group, label in pairs if group not in held} == {label for _, label in pairs}


def test_classes_are_near_their_share() -> None:
    draw = random.Random(3)
    sizes = [(f"group {at}", draw.randint(3, 30), draw.random()) for at in range(60)]
    pairs = [(name, "rare" if draw.random() < lean / 5 else "often") for name, size, lean in sizes for _ in range(size)]
    totals = Counter(label for _, label in pairs)
    assert min(totals.values()) > 50
    for share in (0.1, 0.2, 0.4):
        held, _ = held_groups(pairs, share, 0)
        counts = Counter(label for group, label in pairs if group in held)
        assert all(abs(counts[label] / total - share) < 0.01 for label, total in totals.items())
    assert held_groups(pairs, 0.2, 0) != held_groups(pairs, 0.2, 1)


ROWS = [(f"the text {at}", "ab"[at % 2], f"p{at * 7 % 10}") for at in range(60)]


def write(folder: Path, layout: str) -> tuple[Path, dict[str, Any]]:
    """A data set with ten groups in a layout, and the settings that say so."""
    file = folder / layout
    match layout:
        case "named.csv":
            file.write_text("text,label,patient\n" + "".join(",".join(row) + "\n" for row in ROWS))
            return file, {"group": "patient"}
        case "bare.tsv":
            file.write_text("".join("\t".join(row) + "\n" for row in ROWS))
            return file, {"group": "3", "columns": "1,2"}
        case "nested.jsonl":
            rows = ({"text": text, "label": label, "who": {"id": who}} for text, label, who in ROWS)
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
            return file, {"group": "who.id"}
        case "scored.csv":
            file.write_text(
                "text,score,who\n" + "".join(f"{t},{at / 7:.2f},{g}\n" for at, (t, _, g) in enumerate(ROWS))
            )
            return file, {"group": "who"}
        case "series.csv":
            rows = (f"{at},{at / 3:.2f},{at % 5},{label},{who}\n" for at, (_, label, who) in enumerate(ROWS))
            file.write_text("x,y1,y2,label,patient\n" + "".join(rows))
            return file, {"group": "patient"}
        case "sets.jsonl":
            rows = ({"set": [[at, 1], [2, 3]], "label": b, "who": g} for at, (_, b, g) in enumerate(ROWS))
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
            return file, {"group": "who"}
        case _:
            return file, write_images(file, table="table" in layout)


def write_images(folder: Path, *, table: bool) -> dict[str, Any]:
    folder.mkdir()
    for at, (_, label, who) in enumerate(ROWS):
        place = folder if table else folder / label
        place.mkdir(exist_ok=True)
        Image.new("RGB", (4, 4), (at, 2 * at, 0)).save(place / f"{who}-{at}.png")
    if table:
        rows = (f"{who}-{at}.png,{label},{who}\n" for at, (_, label, who) in enumerate(ROWS))
        (folder / "labels.csv").write_text("image,label,patient\n" + "".join(rows))
        return {"group": "patient"}
    return {"group_from": r"(p\d+)-"}


LAYOUTS = ("named.csv", "bare.tsv", "nested.jsonl", "scored.csv", "series.csv", "sets.jsonl", "images", "images table")


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_group_is_on_both_sides(layout: str, tmp_path: Path) -> None:
    path, settings = write(tmp_path, layout)
    found, again = splits_of(path, **settings), splits_of(path, **settings)
    sides = list(found.train()), list(found.validation())
    assert sum(map(len, sides)) == len(ROWS)
    groups = [{record.group for record in side} for side in sides]
    assert groups[0] | groups[1] == {row[2] for row in ROWS}
    assert not groups[0] & groups[1]
    assert f"; {len(groups[1])} of 10 groups are held out" in found.description
    assert [record.fields for record in again.validation()] == [record.fields for record in sides[1]]
    assert all(len(record.fields) == 2 for side in sides for record in side)  # the group is none of them
    ungrouped = splits_of(path, columns=settings.get("columns") or (None if "images" in layout else found.columns))
    assert ungrouped.digest != found.digest


@pytest.mark.slow
def test_records_in_python_bring_their_groups() -> None:
    records = [Record(row[:2], Path("records"), at, group=row[2]) for at, row in enumerate(ROWS)]
    found = load_splits(resolve(read_layers({}, environ={})), task_class("text-classification"), records)
    assert not {one.group for one in found.train()} & {one.group for one in found.validation()}
    plain = [Record(one.fields, one.file, one.line) for one in records]
    other = load_splits(resolve(read_layers({}, environ={})), task_class("text-classification"), plain)
    assert other.digest != found.digest
    with pytest.raises(UserError, match="the records are given in Python; give each Record its group"):
        load_splits(resolve(read_layers({"data.group": "who"}, environ={})), task_class("text-classification"), records)


REFUSED = {
    "no such column": (
        {"group": "pationt"},
        "named.csv has no column 'pationt'; allowed: text, label, patient; did you",
    ),
    "both": ({"group": "patient", "group_from": "x"}, "data.group and data.group_from are both given"),
    "validation": (
        {"group": "patient", "validation": ("other.csv",)},
        "are for a validation split, and there is valid",
    ),
    "no images": ({"group_from": "x", "columns": "text,label"}, "finds groups in names of images and sounds"),
    "no pattern": ({"path": ("images",), "group_from": "("}, "'(' is no pattern"),
    "nothing found": ({"path": ("images",), "group_from": "q"}, "p0-0.png is a name in which 'q' finds no group"),
    "no table": ({"path": ("images",), "group": "patient"}, "images: there is no table with a column for data.group"),
    "a stream": ({"path": ("book.txt",), "group": "patient"}, "the end of texts is held out, which has no groups"),
    "one group": (
        {"path": ("one.csv",), "group": "patient"},
        "all records are of one group, 'p'; leave data.group out",
    ),
    "no class left": ({"path": ("each.csv",), "group": "patient"}, "no group can be held out: each has all records of"),
    "an empty cell": ({"path": ("gap.csv",), "group": "patient"}, "gap.csv:4: column 3 (patient), the group, is empty"),
    "dates": ({"path": ("dates",), "group": "patient"}, "dates has no files for data.group to choose from"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_groups_is_refused(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "named.csv")
    write(tmp_path, "images")
    Path("book.txt").write_text("a book " * 100)
    groups = {"one": "p" * 4, "each": "aabb", "gap": "pq q"}
    for name, of in groups.items():
        rows = (f"text {at},{'aabb'[at]},{one.strip()}\n" for at, one in enumerate(of))
        Path(f"{name}.csv").write_text("text,label,patient\n" + "".join(rows))
    Path("other.csv").write_text("text,label\n" + "".join(f"another {at},{'ab'[at % 2]}\n" for at in range(9)))
    settings, said = REFUSED[case]
    with pytest.raises(UserError, match=re.escape(said)):
        list(splits_of(Path("named.csv"), **settings).train())
