"""Which columns of a table are two texts, a number, several labels, or a question with its context and answers.

Names of columns say it, else their values: two texts of several words beside a column of few short values, numbers with
fractions or of many values, lists of labels, a column of 0 and 1 for each label.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from headway.data.column_choice import (
    MANY_LABELS,
    MAX_LABEL,
    MIN_SCORE_SHARE,
    SEVERAL,
    are_scores,
    by_names,
    combined,
    described,
    doubted_header,
    guessed,
    has_fractions,
    has_quantities,
    look_like_labels,
    look_like_tags,
    refuse_mixed,
    share_of_numbers,
)
from headway.data.composed import FALSE, PAIR, TRUE, ComposedRows, JsonCells, as_cell, labels_of_cell, squad_file
from headway.data.kinds import COMPOSED, DataKind
from headway.data.records import DataQuery, RecognisedData, RecordSource, as_number
from headway.data.table import Table, row_count
from headway.data.table_preview import (
    BESIDES,
    CONTEXT,
    LABEL,
    LANGUAGE,
    PAIRED,
    SCORE,
    TAGS,
    TEXT,
    TablePreview,
    preview_objects,
    preview_rows,
    sample_objects,
)
from headway.data.text_lines import OBJECT_SUFFIXES, TABLE_SUFFIXES, suffix_of
from headway.errors import UserError, counted, listed

ANSWER, ANSWER_START = ("answers.text", "answers", "answer", "answer_text"), ("answers.answer_start", "answer_start")
RELATION = LABEL | frozenset(["gold_label", "is_duplicate", "duplicate", "relation", "entailment", "judgement"])
MIN_COLUMNS_OF_LABELS = 3  # of 0 and 1, without a name that says what they are
MIN_PAIR_WORDS = 2.0  # on average, of each of two texts without names
NEEDED = {
    DataKind.PAIR_LABELS: "two texts and a label, as premise, hypothesis and label",
    DataKind.SCORES: "a text and a number, as text and score",
    DataKind.PAIR_SCORES: "two texts and a number, as sentence1, sentence2 and score",
    DataKind.LABEL_SETS: "a text and its labels, as text and labels, or a column of 0 and 1 for each label",
    DataKind.ANSWERS: "question, context and answer, and perhaps answer_start",
}
WHAT = {
    DataKind.PAIR_LABELS: "two texts and their label",
    DataKind.SCORES: "text and number",
    DataKind.PAIR_SCORES: "two texts and their number",
    DataKind.LABEL_SETS: "text and labels",
    DataKind.ANSWERS: "question, context and answers",
}


@dataclass(frozen=True)
class Composition:
    """A kind of data, the columns that its fields are made of, from 0, and what stands between labels of a cell."""

    kind: DataKind
    columns: tuple[int, ...]
    separator: str = ""


def recognise_composed(query: DataQuery, files: Sequence[Path]) -> RecognisedData | None:
    """Tables of such columns, of which the first decides; None where something else was given."""
    if query.kind not in (None, *COMPOSED) or not all(suffix_of(file) in TABLE_SUFFIXES for file in files):
        return None
    if query.kind in (None, DataKind.ANSWERS) and (found := recognise_squad(query, files)):
        return found
    sources, shown, doubt, lines = list[RecordSource](), "", None, 0
    for file in files:
        objects = suffix_of(file) in OBJECT_SUFFIXES
        table = preview_objects(query, file, as_cell) if objects else preview_rows(query, file, suffix_of(file))
        found = composition(table, query) if table.rows else None
        if found is None:
            if query.kind is None:
                return None
            raise lacking(table, query.kind)
        if not sources:
            refuse_mixed(table, query, suffix_of(file), found.columns)
            shown, doubt = f"{WHAT[found.kind]}{described(table, found.columns)}", doubted_header(table, query)
        sources.append(ComposedRows(file, rows_of(table, found.columns), found.kind, found.separator))
        lines += row_count(file) - table.header_lines
        query = replace(query, kind=found.kind, columns=query.columns or sources[0].columns)
    assert query.kind is not None
    said = f"{listed(map(str, files), 3)}: {counted(lines, 'line')} of {shown}"
    return RecognisedData(query.kind, tuple(sources), said, other_header=doubt)


def recognise_squad(query: DataQuery, files: Sequence[Path]) -> RecognisedData | None:
    """Files of articles with paragraphs and questions."""
    if query.columns or any(suffix_of(file) != ".json" for file in files):
        return None
    found = [squad_file(file, sample_objects(query, file)) for file in files]
    sources = tuple(one for one in found if one is not None)
    if len(sources) < len(files):
        return None
    count = sum(1 for one in sources for _ in one.read())
    said = f"{listed(map(str, query.paths), 3)}: {counted(count, 'question')} on paragraphs of articles"
    return RecognisedData(DataKind.ANSWERS, sources, said)


def rows_of(table: TablePreview, columns: tuple[int, ...]) -> RecordSource:
    if table.dialect:
        return Table(table.file, table.dialect, table.width, columns, table.names)
    assert table.names is not None
    return JsonCells(table.file, tuple(table.names[column] for column in columns))


def composition(table: TablePreview, query: DataQuery) -> Composition | None:
    """The requested columns, else those whose names or values say it."""
    if query.columns:
        return requested(table, query.kind, tuple(table.find(column) for column in query.columns))
    finders = {query.kind: FINDERS[query.kind]} if query.kind else FINDERS
    return next((found for find in finders.values() if (found := find(table, query.kind is not None))), None)


def requested(table: TablePreview, kind: DataKind | None, columns: tuple[int, ...]) -> Composition | None:
    """Columns in the order in which they were named: texts first."""
    if len(set(columns)) < len(columns):
        return None
    if kind is None:
        if len(columns) == 2 and is_score(table, columns[1], columns[0]):
            kind = DataKind.SCORES
        elif len(columns) == 2 and has_several(table, *columns, named=True):
            kind = DataKind.LABEL_SETS
        elif len(columns) == 3 and is_about(table, *columns):
            kind = pair_kind(table, columns[2])
        elif len(columns) > MIN_COLUMNS_OF_LABELS and all(is_binary(table, at) for at in columns[1:]):
            kind = DataKind.LABEL_SETS
        else:
            return None
    fits = {
        DataKind.PAIR_LABELS: len(columns) == 3,
        DataKind.PAIR_SCORES: len(columns) == 3,
        DataKind.SCORES: len(columns) == 2,
        DataKind.LABEL_SETS: len(columns) >= 2,
        DataKind.ANSWERS: 3 <= len(columns) <= 4,
    }
    if not fits[kind]:
        raise lacking(table, kind)
    return with_separator(table, kind, columns)


def with_separator(table: TablePreview, kind: DataKind, columns: tuple[int, ...]) -> Composition:
    if kind is not DataKind.LABEL_SETS or len(columns) > 2:
        return Composition(kind, columns)
    values = table.values(next(iter(columns[1:])))
    separator = next((by for by in SEVERAL if any(by in value for value in values)), "")
    return Composition(kind, columns, separator)


# ---- by names and values


def find_answers(table: TablePreview, sure: bool) -> Composition | None:
    names = [name.strip().casefold() for name in table.names or ()]
    question = next((at for at, name in enumerate(names) if name == "question"), None)
    context = next((at for at, name in enumerate(names) if name in CONTEXT), None)
    answer = next((names.index(name) for name in ANSWER if name in names), None)
    if question is None or context is None or answer is None:
        return None
    start = next((names.index(name) for name in ANSWER_START if name in names), None)
    return Composition(DataKind.ANSWERS, (question, context, answer, *([] if start is None else [start])))


def find_pair(table: TablePreview, sure: bool) -> tuple[int, int, int] | None:
    """Two texts that are named so, or are of several words each, and what is said about them."""
    names = [table.name(at) for at in range(table.width)]
    named = next((both for both in PAIRED if set(both) <= set(names)), None)
    if named is None and (table.dialect is None or set(names) & LANGUAGE):
        return None
    if named is not None:
        first, second = map(names.index, named)
        others = [at for at, name in enumerate(names) if at not in (first, second) and name in RELATION | SCORE]
        return (first, second, others[0]) if others else None
    plain = [at for at in table.columns_besides(BESIDES) if at not in table.lists]
    if len(plain) != 3 or len(table.rows) < 2 or (not sure and guessed(table, tuple(plain)) is not None):
        return None
    about = sorted(plain, key=lambda at: (mean_words(table, at), len(set(table.values(at)))))[0]
    texts = [at for at in plain if at != about]
    wordy = all(mean_words(table, at) >= MIN_PAIR_WORDS for at in texts)
    return (texts[0], texts[1], about) if wordy and (sure or is_about(table, texts[0], texts[1], about)) else None


def is_about(table: TablePreview, first: int, second: int, about: int) -> bool:
    """Whether a column looks like what is said about two texts: a label or a number."""
    both = [row[first] + PAIR + row[second] for row in table.rows]
    few = look_like_labels(table.values(about), both)
    return few or table.name(about) in RELATION | SCORE or is_score(table, about, first)


def mean_words(table: TablePreview, column: int) -> float:
    values = table.values(column)
    return sum(len(value.split()) for value in values) / len(values)


def pair_kind(table: TablePreview, about: int) -> DataKind:
    """A number where most values have a fraction, or are many; else a label."""
    numbers = [number for value in table.values(about) if (number := as_number(value)) is not None]
    most = share_of_numbers(table.values(about)) >= MIN_SCORE_SHARE
    scored = any(number % 1 for number in numbers) or has_quantities(table, about) or table.name(about) in SCORE
    return DataKind.PAIR_SCORES if most and scored else DataKind.PAIR_LABELS


def find_scored_pair(table: TablePreview, sure: bool) -> Composition | None:
    found = find_pair(table, sure)
    if found is None or not (sure or pair_kind(table, found[2]) is DataKind.PAIR_SCORES):
        return None
    return Composition(DataKind.PAIR_SCORES, found)


def find_labelled_pair(table: TablePreview, sure: bool) -> Composition | None:
    found = find_pair(table, sure)
    return None if found is None else Composition(DataKind.PAIR_LABELS, found)


def find_scores(table: TablePreview, sure: bool) -> Composition | None:
    """A text, and the only column of numbers beside it, or the one that is named like a score."""
    candidates = [at for at in table.columns_besides(BESIDES) if at not in table.lists]
    numeric = [at for at in candidates if share_of_numbers(table.values(at)) >= MIN_SCORE_SHARE]
    texts = [at for at in candidates if at not in numeric]
    named = [at for at in texts if table.name(at) in TEXT]
    text = named[0] if len(named) == 1 else texts[0] if len(texts) == 1 else None
    scores = [at for at in numeric if table.name(at) in SCORE] if len(numeric) > 1 else numeric
    if text is None or len(scores) != 1 or not (sure or is_score(table, scores[0], text)):
        return None
    return Composition(DataKind.SCORES, (text, scores[0]))


def is_score(table: TablePreview, column: int, text: int) -> bool:
    """Whether a column has many different numbers, or fractions beside texts that are no calculations."""
    values = table.values(column)
    if share_of_numbers(values) < MIN_SCORE_SHARE:
        return False
    choice = guessed(table, (text, column))
    labels = choice is not None and choice[0] is DataKind.LABELS
    if table.name(column) in SCORE or choice is None or labels:
        return are_scores(table, column, labels=labels)
    digits = sum(any(map(str.isdigit, value)) for value in table.values(text))
    wordy = 2 * digits < len(table.rows)
    return (has_fractions(values) and (table.dialect is None or wordy)) or (wordy and has_quantities(table, column))


def find_label_sets(table: TablePreview, sure: bool) -> Composition | None:
    candidates = table.columns_besides(BESIDES)
    text = text_column(table, candidates)
    if text is None or (not sure and has_words_and_tags(table, candidates)):
        return None
    for at in candidates:
        named = table.name(at) in LABEL | TAGS | MANY_LABELS
        if at != text and (named or len(candidates) == 2) and (sure or has_several(table, text, at, named=named)):
            return with_separator(table, DataKind.LABEL_SETS, (text, at))
    binary = [at for at in candidates if at != text and is_binary(table, at)]
    if table.names and len(binary) >= MIN_COLUMNS_OF_LABELS and len(binary) == len(candidates) - 1:
        return Composition(DataKind.LABEL_SETS, (text, *binary))
    return None


def text_column(table: TablePreview, candidates: Sequence[int]) -> int | None:
    """The column that is named like a text, else the one of the most characters."""
    named = [at for at in candidates if table.name(at) in TEXT]
    if len(named) == 1:
        return named[0]
    return max(candidates, key=lambda at: sum(map(len, table.values(at))), default=None)


def has_words_and_tags(table: TablePreview, candidates: tuple[int, ...]) -> bool:
    """Whether columns are named so, and have as many of both in every row; tags may have more characters than words."""
    if (named := by_names(table, DataKind.TAGS, candidates)) is None:
        return False

    def size(cell: str) -> int:
        return len(labels_of_cell(cell) if cell.strip().startswith("[") else cell.split())

    words, tags = (list(map(size, table.values(at))) for at in named[1])
    return words == tags


def has_several(table: TablePreview, text: int, column: int, *, named: bool) -> bool:
    """Whether cells are lists of labels, not all of one and not tags, or combinations of fewer labels."""
    values = table.values(column)
    if 2 * sum(value.strip().startswith("[") for value in values) > len(values):
        lists, words = (list(map(labels_of_cell, one)) for one in (values, table.values(text)))
        again = len(set(chain.from_iterable(lists))) < sum(map(len, lists))
        tags = look_like_tags(list(map(" ".join, words)), list(map(" ".join, lists)))
        return again and not tags and any(len(one) != 1 for one in lists)
    longest = max(map(len, values), default=0)
    return any(combined(values, by) for by in SEVERAL) and (named or longest <= MAX_LABEL)


def is_binary(table: TablePreview, column: int) -> bool:
    return {value.strip().casefold() for value in table.values(column)} <= TRUE | FALSE


FINDERS: dict[DataKind, Callable[[TablePreview, bool], Composition | None]] = {
    DataKind.ANSWERS: find_answers,
    DataKind.PAIR_SCORES: find_scored_pair,
    DataKind.PAIR_LABELS: find_labelled_pair,
    DataKind.SCORES: find_scores,
    DataKind.LABEL_SETS: find_label_sets,
}


def lacking(table: TablePreview, kind: DataKind) -> UserError:
    named = f" ({listed(table.names)})" if table.names else ""
    said = f"{table.file} has {counted(table.width, 'column')}{named}, and not all that {kind.value} have"
    return UserError(said, allowed=NEEDED[kind], do="choose them in this order with data.columns")
