"""Columns of numbers and lists of vectors: what they are taken for, what they hold, what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.data.checks import Skipped, check, good_records
from headway.data.kinds import DataKind
from headway.data.numbers import vectors, written
from headway.data.recognise import recognise
from headway.data.records import Record, by_document, records
from headway.data.text_lines import Flaw, Problem
from headway.errors import UserError
from headway.tasks.registry import sentence

RANDOM = np.random.default_rng(0)
TABLE = RANDOM.normal(size=(9, 4)).round(3)
POINTS = [RANDOM.normal(size=(at % 3 + 1, 2)).round(3).tolist() for at in range(9)]


def rows(label: bool, head: str = "") -> str:
    lines = (",".join(map(str, row)) + (f",{'ab'[at % 2]}" if label else "") for at, row in enumerate(TABLE))
    return head + "\n".join(lines) + "\n"


def objects(**columns: list[Any]) -> str:
    return "".join(
        json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in zip(*columns.values(), strict=True)
    )


LABELS = list("ababababa")
TIMED = "date,price\n" + "".join(f"2024-01-0{at + 1},{at * 1.5}\n" for at in range(9))
CASES = {
    "numbers and a label": (
        "a.csv",
        rows(True),
        {},
        DataKind.SERIES,
        "9 lines of 4 numbers and a label, so classification of series",
    ),
    "a header": ("a.csv", rows(True, "p,q,r,s,kind\n"), {}, DataKind.SERIES, "9 lines of 4 numbers and a label"),
    "a label of numbers": (
        "a.csv",
        rows(False, "p,q,r,label\n"),
        {},
        DataKind.SERIES,
        "9 lines of 3 numbers and a label",
    ),
    "moments": (
        "a.csv",
        rows(False),
        {},
        DataKind.ROWS,
        "9 lines of 4 numbers, so forecasting (change with data.task)",
    ),
    "moments with names": (
        "a.csv",
        rows(False, "open,high,low,close\n"),
        {},
        DataKind.ROWS,
        "9 lines of 4 numbers",
    ),
    "a time and one number": (
        "a.csv",
        TIMED,
        {},
        DataKind.ROWS,
        "9 lines of 1 number (price; the first line is a header), so forecasting",
    ),
    "the last column": (
        "a.csv",
        rows(False),
        {"kind": DataKind.SERIES},
        DataKind.SERIES,
        "9 lines of 3 numbers and a label",
    ),
    "chosen columns": (
        "a.csv",
        rows(True),
        {"columns": (1, 5), "kind": DataKind.SERIES},
        DataKind.SERIES,
        "9 lines of 1 number and",
    ),
    "sets": (
        "a.jsonl",
        objects(points=POINTS, label=LABELS),
        {},
        DataKind.SETS,
        "9 lines of sets of vectors of 2 numbers and a label",
    ),
    "flat sets": (
        "a.jsonl",
        objects(x=[[1, 2, at] for at in range(9)], y=LABELS),
        {"kind": DataKind.SETS},
        DataKind.SETS,
        "vectors of 1 number",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_numbers_are_taken_for(tmp_path: Path, case: str) -> None:
    name, text, options, kind, why = CASES[case]
    (tmp_path / name).write_text(text)
    data = recognise([tmp_path / name], **options)
    assert data.kind is kind
    assert why in sentence(data)
    found = list(records(data))
    assert all(isinstance(one, Record) for one in found)
    assert len(found) == 9
    assert check(data).counts == ({Flaw.FEW: 2} if kind is DataKind.ROWS else {})  # 9 of 11 rows


def test_the_numbers_are_those_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(rows(True))
    (tmp_path / "b.csv").write_text(rows(False))
    (tmp_path / "c.jsonl").write_text(objects(points=POINTS, label=LABELS))
    series, moments, sets = (
        [one for one in records(recognise([tmp_path / name])) if isinstance(one, Record)]
        for name in ("a.csv", "b.csv", "c.jsonl")
    )
    assert [one.fields[1] for one in series] == LABELS == [one.fields[1] for one in sets]
    for at in range(9):
        assert np.array_equal(vectors(series[at].fields[0]), TABLE[at, :, None].astype(np.float32))
        assert np.array_equal(vectors(moments[at].fields[0]), TABLE[at, None].astype(np.float32))
        assert np.array_equal(vectors(sets[at].fields[0]), np.array(POINTS[at], np.float32))
    assert len(list(by_document(moments))) == 1


@pytest.mark.slow
@given(
    st.lists(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=3, max_size=3), min_size=1)
)
def test_numbers_survive_their_text(values: list[list[float]]) -> None:
    assert np.array_equal(vectors(written(values)), np.array(values, np.float32))


def bad_row(row: str) -> tuple[str, str]:
    return "a.csv", rows(True) + row + "\n"


def bad_line(line: str) -> tuple[str, str]:
    return "a.jsonl", objects(points=POINTS, label=LABELS) + line + "\n"


BAD = {
    "a word": (*bad_row("1,2,n/a,4,a"), Flaw.NUMBER, 'column 3 is "n/a", not a number'),
    "not a number": (*bad_row("1,nan,3,4,a"), Flaw.NUMBER, 'column 2 is "nan", not a number'),
    "without end": (*bad_row("inf,2,3,4,a"), Flaw.NUMBER, 'column 1 is "inf", not a number'),
    "an empty cell": (*bad_row("1,2,,4,a"), Flaw.EMPTY, 'column 3 is "", not a number'),
    "an empty label": (*bad_row("1,2,3,4,"), Flaw.EMPTY, "column 5 is empty"),
    "a number too few": (*bad_row("1,2,3,a"), Flaw.COLUMNS, "4 columns where the file has 5"),
    "a ragged set": (
        *bad_line('{"points": [[1, 2], [3]], "label": "a"}'),
        Flaw.NUMBER,
        "a vector of 1 numbers where others have 2",
    ),
    "a wider set": (
        *bad_line('{"points": [[1, 2, 3]], "label": "a"}'),
        Flaw.NUMBER,
        "a vector of 3 numbers where others have 2",
    ),
    "an empty set": (*bad_line('{"points": [], "label": "a"}'), Flaw.NUMBER, "'points' is empty"),
    "words in a set": (
        *bad_line('{"points": [["x", 2]], "label": "a"}'),
        Flaw.NUMBER,
        "not a list of vectors of numbers",
    ),
    "NaN in a set": (
        *bad_line('{"points": [[NaN, 2]], "label": "a"}'),
        Flaw.NUMBER,
        "not a list of vectors of numbers",
    ),
    "no label": (*bad_line('{"points": [[1, 2]]}'), Flaw.KEY, "no 'label' among its keys"),
    "a label that is a list": (
        *bad_line('{"points": [[1, 2]], "label": ["a"]}'),
        Flaw.VALUE,
        "'label' is [\"a\"], not a label",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_numbers_are_named_or_counted(tmp_path: Path, case: str) -> None:
    name, text, what, said = BAD[case]
    (tmp_path / name).write_text(text)
    data = recognise([tmp_path / name])
    (problem,) = (one for one in records(data) if isinstance(one, Problem))
    assert (problem.line, problem.what) == (10, what)
    assert said in problem.said
    with pytest.raises(UserError, match=f"{name}:10: "):
        list(good_records(data, None))
    skipped = Skipped()
    assert len(list(good_records(data, skipped))) == 9
    assert skipped.counts == {what: 1}


def test_columns_that_are_no_numbers_are_texts(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("".join(f"{at}\t{' '.join(str(at * 7))}\n" for at in range(9)))
    assert recognise([tmp_path / "a.tsv"]).kind is DataKind.PAIRS
    (tmp_path / "b.csv").write_text("".join(f"word {at},b {at},c\n" for at in range(9)))
    with pytest.raises(UserError, match=r"b\.csv has other columns than of numbers and one label"):
        recognise([tmp_path / "b.csv"], kind=DataKind.ROWS)


def test_which_is_the_label(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(objects(points=POINTS, colour=LABELS, form=LABELS))
    with pytest.raises(
        UserError, match="nothing says which of points, colour, form are the vectors and which the label"
    ):
        recognise([tmp_path / "a.jsonl"])
    assert recognise([tmp_path / "a.jsonl"], columns=["points", "form"]).columns == ("points", "form")


@pytest.mark.slow
def test_numbers_are_not_measured_in_letters(tmp_path: Path) -> None:
    row = ",".join("0.123456789" for _ in range(2000))
    (tmp_path / "a.csv").write_text(f"{row},a\n{row[:-1]}8,b\n" * 3)
    found = list(records(recognise([tmp_path / "a.csv"])))
    assert len(found) == 6
    assert all(isinstance(one, Record) and len(one.fields[0]) > 10_000 for one in found)


def test_a_value_that_is_no_list_is_named_wherever_it_stands(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(objects(points=[5, *POINTS, *POINTS], label=["a", *LABELS, *LABELS]))
    data = recognise([tmp_path / "a.jsonl"])
    assert data.kind is DataKind.SETS
    with pytest.raises(UserError, match=r"a\.jsonl:1: 'points' is 5, not a list of vectors"):
        list(good_records(data, None))


def test_numbers_that_four_bytes_cannot_hold_are_none(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(rows(True) + "1e39,0,0,0,a\n")
    data = recognise([tmp_path / "a.csv"])
    with pytest.raises(UserError, match=r'a\.csv:10: column 1 is "1e39"'):
        list(good_records(data, None))


def test_beside_a_time_y_is_a_number_like_the_others(tmp_path: Path) -> None:
    moments = "".join(f"2024-01-0{at + 1},{at},{at * 2},{at * 3}\n" for at in range(9))
    (tmp_path / "a.csv").write_text(f"date,x,y,z\n{moments}")
    for kind in (None, DataKind.ROWS):
        data = recognise([tmp_path / "a.csv"], kind=kind)
        assert (data.kind, data.columns) == (DataKind.ROWS, ("x", "y", "z"))
    assert recognise([tmp_path / "a.csv"], kind=DataKind.SERIES).columns == ("x", "z", "y")


def test_a_column_of_numbers_may_have_many_holes(tmp_path: Path) -> None:
    table = [f"{'NA' if at % 3 == 0 else at},{at},{at},{'ab'[at % 2]}\n" for at in range(9)]
    (tmp_path / "a.csv").write_text("p,q,r,label\n" + "".join(table))
    skipped = Skipped()
    assert len(list(good_records(recognise([tmp_path / "a.csv"]), skipped))) == 6
    assert skipped.total == 3
