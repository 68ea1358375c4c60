"""Excel files are tables like others, and Markdown files are texts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest

from headway.data.kinds import DataKind
from headway.data.recognise import recognise
from headway.data.records import Record, records
from headway.data.text_lines import Problem
from headway.errors import UserError

excel: Any = pytest.importorskip("openpyxl")
HEAD = ("text", "label", "score")
ROWS = [(f"a text of number {at}", ("ham", "spam")[at % 2], at + 0.5) for at in range(30)]


def workbook(file: Path, *sheets: Sequence[Sequence[object]]) -> Path:
    book = excel.Workbook()
    book.remove(book.active)
    for number, rows in enumerate(sheets, 1):
        sheet = book.create_sheet(f"sheet {number}")
        for row in rows:
            sheet.append(row)
    book.save(file)
    return file


def test_a_sheet_is_a_table(tmp_path: Path) -> None:
    file = workbook(tmp_path / "a.xlsx", [HEAD[:2], *(row[:2] for row in ROWS)], [])
    found = recognise([file])
    assert (found.kind, found.columns) == (DataKind.LABELS, ("text", "label"))
    assert "30 lines of text and label" in found.description
    assert [one.fields for one in records(found) if isinstance(one, Record)] == [row[:2] for row in ROWS]
    assert next(records(found)).line == 2  # as Excel numbers it


def test_numbers_and_dates_of_cells(tmp_path: Path) -> None:
    file = workbook(tmp_path / "a.xlsx", [("text", "score"), *((row[0], row[2]) for row in ROWS)])
    found = recognise([file])
    assert found.kind is DataKind.SCORES
    assert next(records(found)).fields == ("a text of number 0", "0.5")
    days = [("text", "label"), *((f"day {at}", datetime(2024, 1, 1 + at % 2)) for at in range(20))]
    found = recognise([workbook(tmp_path / "b.xlsx", days)], kind=DataKind.LABELS)
    assert next(records(found)).fields == ("day 0", "2024-01-01 00:00:00")
    whole = recognise(
        [workbook(tmp_path / "c.xlsx", [("text", "label"), *((f"t {at}", at % 2 * 1.0) for at in range(20))])]
    )
    assert next(records(whole)).fields == ("t 0", "0")


def test_empty_cells_and_rows_are_told(tmp_path: Path) -> None:
    rows = [HEAD[:2], ("a text", "ham"), (None, None), ("another", None), *(row[:2] for row in ROWS), (None, None)]
    problems = [one for one in records(recognise([workbook(tmp_path / "a.xlsx", rows)])) if isinstance(one, Problem)]
    assert [str(one) for one in problems] == [
        f"{tmp_path / 'a.xlsx'}:3: a blank line",
        f"{tmp_path / 'a.xlsx'}:4: 'label' is null",
    ]


def cut(file: Path) -> None:
    file.write_bytes(workbook(file, [HEAD, *ROWS]).read_bytes()[:2000])


def bomb(file: Path) -> None:
    with ZipFile(file, "w", ZIP_DEFLATED) as packed:
        packed.writestr("xl/workbook.xml", b" " * (2**29 + 1))


def xml(file: Path) -> None:
    with ZipFile(workbook(file, [HEAD, *ROWS])) as packed:
        parts = {one: packed.read(one) for one in packed.namelist()}
    with ZipFile(file, "w") as packed:
        for name, data in parts.items():
            packed.writestr(name, data[: len(data) // 2] if name == "xl/workbook.xml" else data)


BAD = {
    "no archive": (
        lambda file: file.write_bytes(b"PAR1"),
        "cannot be read as an Excel file: BadZipFile; save the sheet",
    ),
    "cut": (cut, "cannot be read as an Excel file"),
    "half a part": (xml, "cannot be read as an Excel file"),
    "no names": (lambda file: workbook(file, [(None, None), *ROWS]), "has no names of columns in its first row"),
    "a name twice": (lambda file: workbook(file, [("text", "text"), *ROWS]), "has two columns 'text'"),
    "two sheets": (lambda file: workbook(file, [HEAD, *ROWS], [HEAD, *ROWS]), "has 2 sheets (sheet 1, sheet 2)"),
    "nothing": (lambda file: workbook(file, []), "is empty"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_table_is_one_sentence(tmp_path: Path, case: str) -> None:
    make, said = BAD[case]
    make(tmp_path / "a.xlsx")
    with pytest.raises(UserError) as caught:
        recognise([tmp_path / "a.xlsx"])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.long
def test_what_would_fill_the_memory_is_refused(tmp_path: Path) -> None:
    bomb(tmp_path / "a.xlsx")
    with pytest.raises(UserError, match="unpacks to 536,870,913 bytes where 536,870,912 are allowed"):
        recognise([tmp_path / "a.xlsx"])


def test_without_openpyxl_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = workbook(tmp_path / "a.xlsx", [HEAD, *ROWS])
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(UserError, match=r"openpyxl is not there; pip install 'headway\[xlsx\]'"):
        recognise([file])


def test_markdown_files_are_texts(tmp_path: Path) -> None:
    (tmp_path / "notes" / "deep").mkdir(parents=True)
    for name in ("a.md", "deep/b.markdown"):
        (tmp_path / "notes" / name).write_text("# Title\n\nSome *text*.\n")
    found = recognise([tmp_path / "notes"])
    assert found.kind is DataKind.TEXTS
    assert [file.name for file in found.files] == ["a.md", "b.markdown"]
    assert next(records(found)).fields == ("# Title\n\nSome *text*.\n",)
    (tmp_path / "notes" / "c.txt").write_text("A text.\n")
    assert [file.name for file in recognise([tmp_path / "notes"]).files] == ["c.txt"]  # beside which it is a README
    assert recognise([tmp_path / "notes" / "a.md"]).kind is DataKind.TEXTS
