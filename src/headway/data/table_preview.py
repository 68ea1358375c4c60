"""The first rows of a table as texts, with the names of its columns.

A first row is a header where a person said so (data.header), where a column was requested by name, or where it looks
like one: by its words (text, label, source, en, …), or by how it differs from the rows below it: a column of numbers or
of names of files begins with neither, or a row of names stands above rows of sentences.  A first record must not be
taken for a header, so what is left open is a record.  One word with a class that occurs nowhere else, above sentences
whose classes all occur again, is taken for a header; the plan says so, and what to do where it is none.

A file is sampled once for each `DataQuery`, whatever it is then tried as.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from headway.data.records import DataQuery, RecordSource, as_number, is_number
from headway.data.table import (
    Dialect,
    JsonLines,
    JsonRow,
    Table,
    TableRow,
    as_text,
    as_texts,
    column_index,
    read_objects,
    sniff,
)
from headway.data.text_lines import MEDIA_SUFFIXES, OBJECT_SUFFIXES, Problem, suffix_of
from headway.errors import UserError, counted, listed

T = TypeVar("T", TableRow, JsonRow)
SEVERAL = "give every line as many cells as the header, and quotes to cells of a .csv that hold its separator"
MAX_ROWS, MAX_CHARACTERS = 2000, 2**22  # of a sample
MIN_NAMES_SHARE = 0.9  # of the values in a column that are to look like names of files
MIN_NUMBER_SHARE = 0.5  # of the values in a column that are to be numbers: a column of texts has hardly any
MIN_ROWS = 20  # below a header none of whose words is known
MAX_NAME, MAX_NAME_WORDS = 40, 4  # characters and words of the name of a column
# rows, as a share, that may look like the first one: where all its words are known, some, none
MAX_ALIKE = {"all": 0.5, "some": 0.1, "none": 0.01}
MISSING = frozenset(["", "-", "?", "n/a", "na", "nan", "null", "none", "missing"])  # values that stand for no value
WORD = re.compile(r"[A-Z]{2,}(?![a-z])|[^\W\d_][^\W\d_A-Z]*")  # review, Review, reviewText, REVIEW
NAME = re.compile(r"[^\W\d](?:.*[^.!?,;:…])?", re.S)  # begins with a letter and is no sentence


@dataclass(frozen=True)
class TablePreview:
    """Rows as texts, all of one width.  `lists` are the columns of JSON lists; lines of JSON have no dialect.

    `group` is the column that is no field of records, by name or number.
    """

    file: Path
    names: tuple[str, ...] | None
    rows: tuple[tuple[str, ...], ...]
    dialect: Dialect | None = None
    lists: frozenset[int] = frozenset()
    group: str | None = None

    @property
    def width(self) -> int:
        return len(self.rows[0]) if self.names is None else len(self.names)

    @property
    def header_lines(self) -> int:
        """Lines before the first record."""
        return int(self.names is not None and self.dialect is not None)

    def name(self, column: int) -> str:
        """The name of a column in small letters; of a path the last part, as of translation.de."""
        name = self.names[column].strip().casefold() if self.names else ""
        return name if self.dialect else name.rpartition(".")[2]

    def columns_besides(self, names: Container[str]) -> tuple[int, ...]:
        """Columns with other names than these; one without a name, beside others that have one, is an index."""
        own = self.names or ("",) * self.width
        columns = (at for at in range(self.width) if self.group not in (own[at], str(at + 1)))
        return tuple(at for at in columns if self.name(at) not in names and (self.name(at) or not self.names))

    def values(self, column: int) -> list[str]:
        return [row[column] for row in self.rows]

    def find(self, column: str | int) -> int:
        """The index of a column that is given by name or by number from 1."""
        return column_index(self.file, self.names, self.width, column, numbered=self.dialect is not None)

    def source(self, columns: tuple[int, ...]) -> RecordSource:
        if self.dialect:
            return Table(self.file, self.dialect, self.width, columns, self.names)
        assert self.names is not None
        return JsonLines(self.file, tuple(self.names[column] for column in columns))


def preview_texts(query: DataQuery, file: Path, suffix: str) -> TablePreview:
    """The preview of a file that is named or meant as a table."""
    if suffix not in OBJECT_SUFFIXES:
        return preview_rows(query, file, suffix)
    found, objects = preview_objects(query, file, as_text), sample_objects(query, file)
    if not found.names:
        keys = listed(dict.fromkeys(key for one in objects for key in one))
        raise UserError(
            f"{file} has no key with texts on most of its lines",
            allowed="texts and labels by key",
            do=f"its keys are {keys}" if keys else None,
        )
    lists = (at for at, key in enumerate(found.names) if any(isinstance(one.get(key), list) for one in objects))
    return replace(found, lists=frozenset(lists))


def preview_rows(query: DataQuery, file: Path, suffix: str) -> TablePreview:
    dialect, sampled = sample_rows(query, file, suffix)
    rows = tuple(cells for _, cells in sampled)
    first = rows[0]
    (width, _), *_ = Counter(map(len, rows)).most_common(1)
    rest = tuple(cells for cells in rows[1:] if len(cells) == len(first))
    asked = (*query.columns, *([] if query.group is None else [query.group]))
    by_name = [column for column in asked if not str(column).isdecimal()]
    looks = sampled[0][0] == 1 and len(first) == width and is_header(first, rest)
    if query.header is None and by_name and not looks and not {*map(str, by_name)} & {*first}:
        said = f"{file} has no column {by_name[0]!r}, and its first line does not look like a header"
        do = "put a line of names above it, or give numbers of columns"
        raise UserError(said, do=do)
    if query.header == "no" or (query.header is None and not by_name and not looks):
        whole = tuple(cells for cells in rows if len(cells) == width)
        return TablePreview(file, None, whole, dialect, group=query.group)
    if len(rows) == 1:
        do = "give more lines, or data.header no where it is a record"
        raise UserError(f"{file} has a header and no records below it", do=do)
    if not rest:
        raise UserError(f"{file} has no row with {counted(len(first), 'column')}, as its first line has", do=SEVERAL)
    return TablePreview(file, first, rest, dialect, group=query.group)


def sample_rows(query: DataQuery, file: Path, suffix: str) -> tuple[Dialect, list[TableRow]]:
    """The first rows of a table, and how its lines are split."""

    def read() -> tuple[Dialect, list[TableRow]]:
        dialect = sniff(file) if suffix == ".csv" else Dialect()
        return dialect, sample(dialect.rows(file), file)

    return query.once((file, suffix), read)


def sample_objects(query: DataQuery, file: Path) -> list[dict[str, Any]]:
    """The first objects of a file."""
    return query.once((file, ".jsonl"), lambda: [value for _, value in sample(read_objects(file), file)])


def preview_objects(
    query: DataQuery, file: Path, cell_of: Callable[[Any], str | tuple[str, ...] | None]
) -> TablePreview:
    """Keys that most objects have, where `cell_of` finds a text, or several, which are joined by spaces."""
    objects = sample_objects(query, file)
    cells = [{key: cell for key, value in one.items() if (cell := cell_of(value)) is not None} for one in objects]
    counts = Counter(key for row in cells for key in row)
    keys = tuple(key for key, count in counts.items() if 2 * count >= len(objects))
    whole = [[row[key] for key in keys] for row in cells if row.keys() >= set(keys)]
    rows = tuple(tuple(cell if isinstance(cell, str) else " ".join(cell) for cell in row) for row in whole)
    lists = frozenset(at for row in whole for at, cell in enumerate(row) if isinstance(cell, tuple))
    return TablePreview(file, keys, rows, None, lists, query.group)


def sample(rows: Iterable[T | Problem], file: Path) -> list[T]:
    """The first good rows; a UserError with the first problem where there is none."""
    first: Problem | None = None
    good: list[T] = []
    size = 0
    for number, row in enumerate(rows):
        if isinstance(row, Problem):
            first = first or row
        else:
            good.append(row)
            size += len(str(row))
        if number + 1 == MAX_ROWS or size > MAX_CHARACTERS:
            break
    if not good:
        raise first.error() if first else UserError(f"{file} is empty")
    return good


def media_column(query: DataQuery, file: Path) -> tuple[TablePreview, int, str] | None:
    """A table, its column that names files, and whether these are images or sounds; None where no column does."""
    suffix = suffix_of(file)
    objects = suffix in OBJECT_SUFFIXES
    preview = preview_objects(query, file, media_cell) if objects else preview_rows(query, file, suffix)
    named = {at: noun for at in range(preview.width) if (noun := medium_of(preview.values(at)))}
    if not named:
        return None
    column = preview.find(query.columns[0]) if query.columns else next(iter(named))
    return (preview, column, named[column]) if column in named else None


def media_cell(value: Any) -> str | tuple[str, ...] | None:
    """What may be the name of a file, or what is said about it: a text, a number, or several texts."""
    texts = (json.dumps(value),) if is_number(value) else as_texts(value)
    return texts[0] if texts and len(texts) == 1 else texts


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


TEXT = words("text sentence document content review comment body message tweet abstract")
LABEL = words("label labels class category sentiment topic intent rating polarity")
SOURCE = words("source src input question prompt from grapheme word")
TARGET = words("target tgt output answer translation response to phonemes pronunciation")
WORDS = words("words tokens")
TAGS = words("tags labels ner_tags pos_tags ner pos")
LANGUAGE = words(
    "ar bg bn ca cs cy da de el en eo es et eu fa fi fr ga gl he hi hr hu hy is it ja ka ko la lt lv mk nl no pl pt "
    "ro ru sk sl sq sr sv sw ta th tl tr uk ur vi zh english german french spanish italian dutch portuguese russian "
    "chinese japanese turkish finnish arabic"
)
CAPTION = words("caption captions description descriptions")
TRANSCRIPT = words("transcript transcription transcripts utterance")
BESIDES = words(
    "id idx index line number nr no. ref reference key guid uid url image images audio path file filename file_name "
    "image_id speaker"
)
PAIRED = (  # two texts that are read together
    ("premise", "hypothesis"),
    ("sentence1", "sentence2"),
    ("sentence_1", "sentence_2"),
    ("sentence_a", "sentence_b"),
    ("text1", "text2"),
    ("text_1", "text_2"),
    ("text_a", "text_b"),
    ("question1", "question2"),
    ("query", "passage"),
    ("query", "document"),
    ("claim", "evidence"),
    ("question", "sentence"),
)
BOTH = frozenset(name for pair in PAIRED for name in pair)
KNOWN = TEXT | LABEL | SOURCE | TARGET | WORDS | TAGS | LANGUAGE | CAPTION | TRANSCRIPT | BESIDES | BOTH
CONTEXT = words("context passage paragraph")  # that a question is answered from
SCORE = words("score scores rating stars grade value price similarity relatedness_score similarity_score y")
SHORT_WORDS = words("from line word number key class y")  # that sentences have too, as they have those of two letters
# words within names of columns
COMMON = {word for word in KNOWN | CONTEXT | SCORE if len(word) > 2 and word not in SHORT_WORDS} | words(
    "title headline summary article dialogue email mail sms post query name gender sex spam toxic emotion genre type "
    "kind lang language tag author user date time timestamp premise hypothesis original simplified utterances column"
)


def is_header(first: Sequence[str], rest: Sequence[Sequence[str]]) -> bool:
    """Whether the first row names the columns of the others, all of which are as wide."""
    names = [cell.strip().casefold() for cell in first]
    if len(set(names)) < len(names):
        return False
    if has_known_names(first):
        return True
    if not rest:
        return False
    columns = list(zip(*rest, strict=True))
    for cell, column in zip(first, columns, strict=True):
        if (noun := medium_of(column)) and medium_of([cell]) != noun:
            return True
    numeric = [(cell, at) for at, cell in enumerate(first) if is_numeric(columns[at])]
    if numeric:
        index = len(first) > 1 and not first[0].strip()  # pandas writes its index so
        named = all(map(is_name, first[1:] if index else first))
        free = all(
            as_number(cell) is None and (cell.strip().casefold() not in MISSING or not at) for cell, at in numeric
        )
        return free and (named or len(numeric) > 1)
    return all(map(is_name, first)) and stands_above(first, names, rest, columns)


def has_known_names(first: Sequence[str]) -> bool:
    """Whether all cells of a narrow table, or two of a wide one, are words that headers have."""
    return sum(cell.strip().casefold() in KNOWN for cell in first) >= min(len(first), 2)


def stands_above(
    first: Sequence[str], names: Sequence[str], rest: Sequence[Sequence[str]], columns: Sequence[Sequence[str]]
) -> bool:
    """Whether a row of names is unlike the rows of texts below it."""
    known = [bool({part.casefold() for part in WORD.findall(cell)} & COMMON) for cell in first]
    lengths = [len(cell.split()) for cell in first]
    alike = sum(
        all(is_name(cell) and len(cell.split()) <= most for cell, most in zip(row, lengths, strict=True))
        for row in rest
    )
    again = [name in {cell.strip().casefold() for cell in column} for name, column in zip(names, columns, strict=True)]
    # columns of few values, as classes are; the first of one is its name where it is none of them and each of them
    # occurs again: where classes occur once, the first record may have one of its own
    classes = [(seen, Counter(column)) for seen, column in zip(again, columns, strict=True)]
    classes = [(seen, counts) for seen, counts in classes if len(counts) <= max(2, len(rest) // 10)]
    class_name = any(not seen and min(counts.values()) > 1 for seen, counts in classes)
    if any(sure and not seen for sure, seen in zip(known, again, strict=True)):
        return alike <= MAX_ALIKE["all" if all(known) else "some"] * len(rest) or (all(known) and class_name)
    small = all(cell == cell.lower() for cell in first)  # a phrase book begins with Hello, Hallo
    unlike = alike <= MAX_ALIKE["none"] * len(rest) and len(rest) >= MIN_ROWS and not any(again)
    return unlike and (class_name if classes else small)


def is_name(cell: str) -> bool:
    """Whether a cell may be the name of a column: a few words that are no sentence."""
    text = cell.strip()
    short = len(text) <= MAX_NAME and len(text.split()) <= MAX_NAME_WORDS
    return short and bool(NAME.fullmatch(text)) and text.casefold() not in MISSING


def is_numeric(column: Sequence[str]) -> bool:
    """Whether at least half of the values that are there are numbers."""
    there = [cell for cell in column if cell.strip().casefold() not in MISSING]
    return bool(there) and sum(as_number(cell) is not None for cell in there) >= MIN_NUMBER_SHARE * len(there)


def medium_of(names: Sequence[str]) -> str | None:
    """The medium that nearly all of these names have the suffixes of."""
    suffixes = [PurePosixPath(name).suffix.lower() for name in names]
    for noun, own in MEDIA_SUFFIXES.items():
        like = sum(suffix in own for suffix in suffixes)
        if like and like >= MIN_NAMES_SHARE * len(names):
            return noun
    return None
