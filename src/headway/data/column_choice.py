"""Which columns of a table are meant, and for which kind of data: as requested, by name, or by their values.

Fields of several cells are found in `composed_columns.py`.  What no task learns from is refused with a sentence: a
question with a context and no answer, records of several kinds in one file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

from headway.data.kinds import DataKind
from headway.data.records import DataQuery, as_number
from headway.data.table_preview import (
    BESIDES,
    CONTEXT,
    LABEL,
    LANGUAGE,
    MISSING,
    SOURCE,
    TAGS,
    TARGET,
    TEXT,
    WORDS,
    TablePreview,
    has_known_names,
    is_name,
    is_numeric,
    sample_objects,
    sample_rows,
    words,
)
from headway.errors import UserError, counted, listed

ColumnChoice: TypeAlias = tuple[DataKind, tuple[int, ...]]  # columns from 0, in the order of a record's fields
MAX_LABEL, MAX_TAGS = 40, 100  # the longest label and the most tags that are taken for such without a name
MAX_GRADES = 20  # different numbers that may be classes; more may be a quantity
MIN_SCORE_SHARE = 0.9  # of the values of a score that are to be numbers
MIN_SHARE, MIN_RECORDS = 0.75, 8  # of the first records that are to be of one kind; others that are a kind of their own
SEVERAL = "|;,"  # what stands between labels
MANY_LABELS = words("categories topics genres emotions classes")
NAMES = {DataKind.TAGS: (WORDS, TAGS), DataKind.PAIRS: (SOURCE, TARGET), DataKind.LABELS: (TEXT, LABEL)}
SHOWN = {
    DataKind.LABELS: "text and label",
    DataKind.PAIRS: "two text columns",
    DataKind.TAGS: "words and tags",
    DataKind.TEXTS: "one text column",
}


def choose(table: TablePreview, query: DataQuery) -> ColumnChoice:
    """The requested columns, else what they look like; where that leaves a choice, a UserError that lists them."""
    kind, columns = query.kind, tuple(table.find(column) for column in query.columns)
    if len(set(columns)) < len(columns) or len(columns) > 2:
        said = f"data.columns {spelled(query.columns)} is no choice"
        raise UserError(said, allowed="one column of text, or two different ones")
    candidates = columns or table.columns_besides(BESIDES)
    if kind is None and not columns:
        refuse_context(table)
    found = arranged(table, kind, candidates) if kind else guessed(table, candidates)
    if found is None:
        raise undecided(table, kind)
    # requested columns stay in their order, unless one of them is the label
    return (found[0], columns) if columns and found[0] is not DataKind.LABELS else found


def guessed(table: TablePreview, candidates: tuple[int, ...]) -> ColumnChoice | None:
    for kind in NAMES:
        if named := by_names(table, kind, candidates):
            text, label = named[1]
            tags = kind is DataKind.LABELS and look_like_tags(table.values(text), table.values(label))
            return (DataKind.TAGS, named[1]) if tags and label in table.lists else named
    plain = tuple(at for at in candidates if at not in table.lists)
    if len(plain) == 1:
        return DataKind.TEXTS, plain
    if len(plain) != 2:
        return None
    left, right = plain
    if all(table.name(at) in LANGUAGE for at in plain):
        return DataKind.PAIRS, plain
    if look_like_tags(table.values(left), table.values(right)):
        return DataKind.TAGS, plain
    for text, label in ((left, right), (right, left)):
        if look_like_labels(table.values(label), table.values(text)):
            return DataKind.LABELS, (text, label)
    return DataKind.PAIRS, plain


def arranged(table: TablePreview, kind: DataKind, candidates: tuple[int, ...]) -> ColumnChoice | None:
    """The columns for a kind that is known."""
    if kind is DataKind.TEXTS:
        texts = candidates if len(candidates) == 1 else tuple(at for at in candidates if table.name(at) in TEXT)
        return (kind, texts) if len(texts) == 1 else None
    if named := by_names(table, kind, candidates):
        return named
    if len(candidates) != 2:
        return None
    if kind is DataKind.LABELS:  # the column with fewer different values, the second where they are equal
        label = min(reversed(candidates), key=lambda at: len(set(table.values(at))))
        return kind, (*(at for at in candidates if at != label), label)
    return kind, candidates


def by_names(table: TablePreview, kind: DataKind, candidates: tuple[int, ...]) -> ColumnChoice | None:
    """The columns whose names say what they are, where each role has one."""
    first, second = ([at for at in candidates if table.name(at) in names] for names in NAMES[kind])
    return (kind, (first[0], second[0])) if len(first) == len(second) == 1 else None


def look_like_labels(values: list[str], texts: list[str]) -> bool:
    """Short values of which a few stand again and again, beside texts that differ."""
    rows, different = len(values), len(set(values))
    few = max(2, min(rows // 3, 10), rows // 10)
    short = max(map(len, values), default=0) <= MAX_LABEL
    return rows > 3 and short and different <= few and 2 * different <= len(set(texts))


def look_like_tags(words: list[str], tags: list[str]) -> bool:
    """As many tags as words in every row, few different tags for many words, and most of them no words themselves."""
    counts = [len(text.split()) for text in tags]
    if not counts or counts != [len(text.split()) for text in words] or sum(counts) < 2 * len(counts):
        return False
    different, known = {tag for text in tags for tag in text.split()}, {word for text in words for word in text.split()}
    return len(different) <= min(MAX_TAGS, sum(counts) // 10) and 2 * len(different & known) <= len(different)


def described(table: TablePreview, columns: tuple[int, ...]) -> str:
    """The columns of a table for a sentence, where there is something to say: (message, spam; …)"""
    names = [str(table.names[at] if table.names else at + 1) for at in columns]
    unknown = table.dialect and table.names and not has_known_names(table.names)
    header = "; the first line is a header" if unknown else ""
    return f" ({listed(names)}{header})" if table.names or table.width > len(columns) else ""


def doubted_header(table: TablePreview, query: DataQuery) -> str | None:
    """The value of data.header that reads the first line otherwise, where its looks alone decided and may deceive."""
    if query.header is not None or query.columns or table.dialect is None:
        return None
    if any(is_numeric(table.values(at)) for at in range(table.width)):  # a first cell that is no number is its name
        return None
    if table.names:
        return None if has_known_names(table.names) else "no"
    first, *rest = table.rows
    alike = sum(all(map(is_name, row)) for row in rest)
    return "yes" if all(map(is_name, first)) and 2 * alike < len(rest) else None


def undecided(table: TablePreview, kind: DataKind | None) -> UserError:
    """What there is to choose from; the example names the longest texts, and their label where one looks like it."""
    first = table.names or [f"{at} {cell[:24]!r}" for at, cell in enumerate(table.rows[0], 1)]
    many = 1 if kind is DataKind.TEXTS else 2
    longest = sorted(range(table.width), key=lambda at: -sum(map(len, table.values(at))))
    texts = table.values(longest[0])
    labels = [at for at in longest[1:] if look_like_labels(table.values(at), texts)]
    example = [called(table, at) for at in sorted([longest[0], *labels, *longest[1:]][:many])]
    what = f"for {kind.value}" if kind else "to learn from"
    said = f"{table.file} has {table.width} columns ({listed(first)}) and nothing says which are {what}"
    return UserError(said, do=f"choose them, as in data.columns {spelled(example)}")


def called(table: TablePreview, column: int) -> str | int:
    """A column as data.columns takes it."""
    return table.names[column] if table.names else column + 1


# ---- what no task learns from


def refuse_context(table: TablePreview) -> None:
    """A question that is answered from a text beside it would be learned without that text."""
    names = [table.name(at) for at in range(table.width)]
    context = next((name for name in names if name in CONTEXT), None)
    if context and "question" in names:
        said = f"{table.file} has a question with a {context}, and no answer"
        do = f"add a column answer, or leave out the {context} with data.columns"
        raise UserError(said, do=do)


def combined(values: Sequence[str], by: str) -> bool:
    """Whether values are combinations, with a character between, of parts of which there are fewer."""
    several = {value for value in values if by in value}
    parts = {part.strip(" []'\"") for value in values for part in value.split(by)}
    return len(several) > 1 and len(parts) < len(set(values)) and any(as_number(part) is None for part in parts)


def is_quantity(values: Sequence[str]) -> bool:
    """Whether values are more different numbers than classes have: with fractions, or hardly any of them twice."""
    numbers = {number for value in values if (number := as_number(value)) is not None}
    return len(numbers) > MAX_GRADES and (any(number % 1 for number in numbers) or 2 * len(numbers) > len(values))


def has_quantities(table: TablePreview, column: int) -> bool:
    """Whether values are a quantity, or more different numbers than classes have beneath a name of no class or text."""
    values = table.values(column)
    named = set(re.split(r"[\W_]", table.name(column))) - {""}
    other = bool(named) and not named & (LABEL | TARGET)
    return is_quantity(values) or (other and len(set(values)) > MAX_GRADES)


def are_scores(table: TablePreview, column: int, *, labels: bool) -> bool:
    """Whether a column has numbers to be predicted: many different ones, or fractions where they are no `labels`."""
    values = table.values(column)
    if share_of_numbers(values) < MIN_SCORE_SHARE:
        return False
    # a class is no number with a fraction in JSON
    return has_quantities(table, column) or (has_fractions(values) and (table.dialect is None or not labels))


def share_of_numbers(values: Sequence[str]) -> float:
    """The share of numbers among the values that are there; a record without one is told later."""
    there = [value for value in values if value.strip().casefold() not in MISSING]
    return sum(as_number(value) is not None for value in there) / max(1, len(there))


def has_fractions(values: Sequence[str]) -> bool:
    return any((as_number(value) or 0) % 1 for value in values)


def refuse_mixed(table: TablePreview, query: DataQuery, suffix: str, columns: tuple[int, ...]) -> None:
    """A file of which a large part are records of another kind."""
    if query.columns or query.kind:
        return
    if table.dialect:
        widths = [len(cells) for _, cells in sample_rows(query, table.file, suffix)[1] if len(cells) > 1]
        shapes = Counter(counted(width, "column") for width in widths)
        good = shapes[counted(table.width, "column")]
        do = "give a file of one kind, and put quotes around cells of a .csv that hold its separator"
    else:
        objects, keys = sample_objects(query, table.file), {table.names[at] for at in columns} if table.names else set()
        shapes = Counter(listed(one, 4) for one in objects)
        good = sum(keys <= one.keys() for one in objects)
        do = "give a file of one kind, or choose keys with data.columns"
    if shapes.total() - good >= MIN_RECORDS and good < MIN_SHARE * shapes.total():
        kinds = listed((f"{count:,} with {shape}" for shape, count in shapes.most_common()), 3)
        raise UserError(f"{table.file} holds records of several kinds ({kinds} among the first)", do=do)


def spelled(columns: Sequence[str | int]) -> str:
    return ",".join(str(column) for column in columns)
