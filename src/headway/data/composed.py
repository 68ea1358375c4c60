"""Records whose fields are made of several cells: two texts with a label or a number, several labels, answers.

The first field is the input as a person types it.  Two texts stand with ` ||| ` between them; of a question that is
the context behind it.  The second field is what is said about it: a label, a number, labels with `|` between them, or
the answers as JSON, each with the character of the context where it begins.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

from headway.data.kinds import DataKind
from headway.data.records import FileSource, Record, RecordSource, as_number
from headway.data.table import JsonLines, read_value, shortened
from headway.data.text_lines import Flaw, Problem
from headway.errors import UserError

PAIR = " ||| "  # between two texts that are read together
LABEL_MARK = "|"  # between labels of one text
TRUE, FALSE = frozenset(["1", "1.0", "true", "yes"]), frozenset(["0", "0.0", "false", "no"])  # of a column of a label


class Answer(TypedDict):
    """A span of a context, as SQuAD writes it."""

    text: str
    answer_start: int


class CellError(Exception):
    """A cell that cannot be learned from."""

    def __init__(self, what: Flaw, said: str):
        super().__init__(said)
        self.what = what


def halves(text: str) -> tuple[str, str]:
    """The two texts of an input: with ` ||| ` between them, or with a tab, as a line of a .tsv file has them."""
    for mark in (PAIR, "\t"):
        first, found, second = text.partition(mark)
        if found and first.strip() and second.strip():
            return first, second
    said = f"{text[:60]!r} is one text, and two are read together"
    raise UserError(said, do=f"write {PAIR.strip()} between them, as in 'one text{PAIR}another'")


def labels_in(field: str) -> list[str]:
    """The labels of a text, of which there may be none."""
    return field.split(LABEL_MARK) if field else []


def answers_in(field: str) -> list[Answer]:
    """The answers to a question; none, where its context holds none."""
    try:
        found = json.loads(field)
        return [{"text": str(one["text"]), "answer_start": int(one["answer_start"])} for one in found]
    except (ValueError, TypeError, KeyError):
        said = f"{field[:60]!r} holds no answers"
        raise UserError(said, allowed='a list of them, as in [{"text": "Rome", "answer_start": 17}]') from None


# ---- cells as fields


@dataclass(frozen=True)
class Cells:
    """The cells of a row with the names of their columns; `separator` stands between labels in a cell."""

    values: Sequence[str]
    names: Sequence[str]
    separator: str = ""

    def text(self, at: int) -> str:
        if not self.values[at].strip():
            raise CellError(Flaw.EMPTY, f"{self.names[at]} is empty")
        return self.values[at]

    def pair(self) -> str:
        first, second = self.text(0), self.text(1)
        for name, text in zip(self.names, (first, second), strict=False):
            if PAIR in text:
                raise CellError(Flaw.VALUE, f"{name} has {PAIR.strip()} in it, which stands between two texts")
        return first + PAIR + second

    def number(self, at: int) -> str:
        cell = self.text(at).strip()
        if as_number(cell) is None:
            raise CellError(Flaw.NUMBER, f"{self.names[at]} is {cell[:40]!r}, not a number")
        return cell


def labelled_pair(cells: Cells) -> tuple[str, str]:
    return cells.pair(), cells.text(2)


def scored_text(cells: Cells) -> tuple[str, str]:
    return cells.text(0), cells.number(1)


def scored_pair(cells: Cells) -> tuple[str, str]:
    return cells.pair(), cells.number(2)


def text_with_labels(cells: Cells) -> tuple[str, str]:
    """Labels in one cell, or a column of 0 and 1 for each of them."""
    if len(cells.values) == 2:
        found = labels_of_cell(cells.values[1], cells.separator)
    else:
        found = [label_of_column(cells, at) for at in range(1, len(cells.values))]
    labels = sorted({one.strip() for one in found if one.strip()})
    if wrong := next((one for one in labels if LABEL_MARK in one), None):
        raise CellError(Flaw.VALUE, f"the label {wrong[:40]!r} has {LABEL_MARK} in it, which stands between labels")
    return cells.text(0), LABEL_MARK.join(labels)


def labels_of_cell(cell: str, separator: str = "") -> list[str]:
    """The labels of a JSON list, of a list as Python writes it, or with a separator between them."""
    inside = cell.strip()
    if inside.startswith("[") and inside.endswith("]"):
        try:
            found = json.loads(inside)
            return [one if isinstance(one, str) else json.dumps(one) for one in found]
        except ValueError:
            return [one.strip().strip("'\"") for one in inside[1:-1].split(",")]
    return cell.split(separator) if separator else [cell]


def label_of_column(cells: Cells, at: int) -> str:
    value = cells.values[at].strip().casefold()
    if value not in TRUE | FALSE:
        raise CellError(Flaw.VALUE, f"{cells.names[at]} is {cells.values[at][:40]!r}, not 0 or 1")
    return cells.names[at] if value in TRUE else ""


def answered_question(cells: Cells) -> tuple[str, str]:
    """A question, its context, and its answers with or without the places where they begin."""
    question, context = cells.text(0), cells.text(1)
    texts, starts = listed_values(cells.values[2]), listed_values(cells.values[3]) if len(cells.values) > 3 else []
    if texts and isinstance(texts[0], Mapping):
        starts = [one.get("answer_start") for one in texts]
        texts = [one.get("text") for one in texts]
    return question_fields(question, context, [one for one in texts if one != ""], starts)


def listed_values(cell: str) -> list[Any]:
    """The values of a JSON list, or the cell as the only one."""
    try:
        value = json.loads(cell)
    except ValueError:
        return [cell]
    return value if isinstance(value, list) else [cell]


def question_fields(question: str, context: str, texts: Sequence[Any], starts: Sequence[Any]) -> tuple[str, str]:
    """The fields of a question; where an answer has no place, it is the first in the context."""
    if PAIR in question:
        raise CellError(Flaw.VALUE, f"the question has {PAIR.strip()} in it, which stands between two texts")
    found = list[Answer]()
    for at, text in enumerate(texts):
        start = starts[at] if at < len(starts) else context.find(str(text))
        if not isinstance(text, str) or not text.strip():
            raise CellError(Flaw.VALUE, f"an answer is {shortened(text)}, not a text")
        if not str(start).lstrip("-").isdecimal():
            raise CellError(Flaw.VALUE, f"answer_start is {shortened(start)}, not a whole number")
        begin = int(start)
        if begin < 0 or context[begin : begin + len(text)] != text:
            where = f" at character {begin}" if at < len(starts) else ""
            raise CellError(Flaw.VALUE, f"the answer {text[:40]!r} is not in the context{where}")
        found.append({"text": text, "answer_start": begin})
    return question + PAIR + context, json.dumps(found, ensure_ascii=False)


COMPOSERS: dict[DataKind, Callable[[Cells], tuple[str, str]]] = {
    DataKind.PAIR_LABELS: labelled_pair,
    DataKind.SCORES: scored_text,
    DataKind.PAIR_SCORES: scored_pair,
    DataKind.LABEL_SETS: text_with_labels,
    DataKind.ANSWERS: answered_question,
}
INPUTS = {DataKind.ANSWERS: "the question with its context", DataKind.PAIR_LABELS: "the two texts together"}
TARGETS = {DataKind.ANSWERS: "the answer", DataKind.LABEL_SETS: "the labels", DataKind.PAIR_LABELS: "the label"}


def as_cell(value: Any) -> str | None:
    """A value of JSON as a cell: a text as it is, everything else as JSON writes it."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


@dataclass(frozen=True)
class JsonCells(JsonLines):
    """Values of the chosen keys as cells, whatever they are."""

    def fields(self, line: int, value: dict[str, Any]) -> tuple[str, ...]:
        return tuple(as_cell(value[key]) or "" for key in self.keys)


@dataclass(frozen=True)
class ComposedRows(FileSource):
    """Rows of a table, whose chosen cells become two fields."""

    rows: RecordSource
    kind: DataKind
    separator: str = ""

    @property
    def columns(self) -> tuple[str | int, ...]:
        return self.rows.columns

    def read(self) -> Iterator[Record | Problem]:
        names = [one if isinstance(one, str) else f"column {one}" for one in self.columns]
        for found in self.rows.read():
            if isinstance(found, Problem):
                yield found
                continue
            try:
                fields = COMPOSERS[self.kind](Cells(found.fields, names, self.separator))
            except CellError as error:
                yield Problem(self.file, found.line, error.what, str(error))
            else:
                yield replace(found, fields=fields)

    def column(self, name: str) -> RecordSource | None:
        return self.rows.column(name)

    def field_name(self, field: int) -> str:
        return TARGETS.get(self.kind, "the number") if field else INPUTS.get(self.kind, "the text")


@dataclass(frozen=True)
class SquadFile(FileSource):
    """Questions on the paragraphs of articles, as SQuAD's own .json files nest them."""

    def read(self) -> Iterator[Record | Problem]:
        number = 0
        for paragraph in paragraphs(read_value(self.file)):
            for one in paragraph.get("qas") or ():
                number += 1
                answers = one.get("answers") or []
                texts, starts = ([answer.get(key) for answer in answers] for key in ("text", "answer_start"))
                question, context = str(one.get("question") or ""), str(paragraph.get("context") or "")
                empty = next((what for what, text in (("question", question), ("context", context)) if not text), None)
                if empty:
                    yield Problem(self.file, number, Flaw.EMPTY, f"the {empty} is empty")
                    continue
                try:
                    yield Record(question_fields(question, context, texts, starts), self.file, number)
                except CellError as error:
                    yield Problem(self.file, number, error.what, str(error))

    def field_name(self, field: int) -> str:
        return TARGETS[DataKind.ANSWERS] if field else INPUTS[DataKind.ANSWERS]


def paragraphs(articles: Sequence[Any]) -> Iterator[Mapping[str, Any]]:
    return (one for article in articles if is_article(article) for one in article["paragraphs"])


def is_article(value: Any) -> bool:
    """Whether a value of JSON is one of SQuAD's articles."""
    inner = value.get("paragraphs") if isinstance(value, Mapping) else None
    return isinstance(inner, list) and all(isinstance(one, Mapping) and "qas" in one for one in inner)


def squad_file(file: Path, objects: Sequence[Mapping[str, Any]]) -> SquadFile | None:
    """A file whose first objects are articles."""
    return SquadFile(file) if objects and all(map(is_article, objects)) else None
