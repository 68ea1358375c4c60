"""Records that are drawn: evenly, always the same, and wherever they stand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

from headway.data.drawn import drawn
from headway.data.sources import Record

RECORDS = [Record((f"text {at}", "abcd"[at // 250]), Path("a.tsv"), at + 1) for at in range(1000)]  # class by class


def test_all_classes_are_among_a_few() -> None:
    counts = Counter(record.fields[1] for record in drawn(RECORDS, 100))
    assert counts.total() == 100
    assert min(counts[label] for label in "abcd") >= 15


def test_they_keep_their_order_and_all_come_where_there_are_fewer() -> None:
    lines = [record.line for record in drawn(RECORDS, 100)]
    assert lines == sorted(lines)
    assert drawn(RECORDS[:7], 100) == RECORDS[:7]
    assert drawn([], 3) == []


def test_a_few_of_some_are_a_few_of_all() -> None:
    assert drawn(drawn(RECORDS, 300), 50) == drawn(RECORDS, 50)


def test_what_a_record_holds_decides_and_not_its_place() -> None:
    moved = [replace(record, line=at) for at, record in enumerate(reversed(RECORDS), start=1)]
    assert {one.fields for one in drawn(moved, 60)} == {one.fields for one in drawn(RECORDS, 60)}
