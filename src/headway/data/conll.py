"""CoNLL files: a word and its tag on each line, and a blank line after each sentence.

Columns are separated by tabs or spaces.  The first holds the word and the last the tag; in CoNLL-U, which numbers the
words, they are the second and the fourth.  Lines that begin with -DOCSTART-, and comments, are no words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from headway.data.column_choice import MAX_TAGS
from headway.data.kinds import DataKind
from headway.data.records import DataQuery, FileSource, RecognisedData, Record
from headway.data.text_lines import Flaw, Problem, TextLine, read_lines, suffix_of
from headway.errors import UserError, counted, listed

CONLL_SUFFIXES = (".conll", ".conllu", ".bio", ".iob", ".iob2", ".ner")
MAX_LINES = 2000  # that are looked at
MIN_LINES_SHARE = 0.9  # of the lines that are to have the same number of columns
MIN_SENTENCE = 2  # words on average
UNIVERSAL = 10  # columns of CoNLL-U
NUMBER = re.compile(r"\d+(?:[-.]\d+)?")  # of a word, of several, and of one that is not written
TAG = re.compile(r"[A-Z_][A-Z0-9_$&*+]*(?:[-_:|=.]\S*)?|[^\w\s]+")  # O, B-PER, NNP, PRP$, ADJ:f, -LRB-, ``
ALLOWED = "a word and its tag on a line, a tab or spaces between them, and blank lines between sentences"


@dataclass(frozen=True)
class ConllFile(FileSource):
    """Sentences of a file whose lines have `width` columns; `chosen` are those of the word and of the tag, from 0."""

    separator: str | None  # None: any white space
    width: int
    chosen: tuple[int, int]

    @property
    def columns(self) -> tuple[str | int, ...]:
        return tuple(at + 1 for at in self.chosen)

    @property
    def universal(self) -> bool:
        return self.separator == "\t" and self.width == UNIVERSAL

    def cells(self, line: TextLine) -> list[str] | None:
        """The columns of a line that has a word."""
        cells = line.bare.strip("\r\n").split(self.separator)
        if line.text.startswith("-DOCSTART-") or (line.text.startswith("#") and len(cells) != self.width):
            return None
        return None if self.universal and not cells[0].isdecimal() and NUMBER.fullmatch(cells[0]) else cells

    def read(self) -> Iterator[Record | Problem]:
        """A sentence is a record, or one problem."""
        words, tags, start, problem = list[str](), list[str](), 0, None
        for line in read_lines(self.file):
            if not line.problem and not line.text.strip():
                yield from self.sentence(words, tags, start, problem)
                words, tags, start, problem = list[str](), list[str](), 0, None
            elif line.problem or (cells := self.cells(line)) is None:
                problem = problem or line.problem
            elif len(cells) != self.width:
                said = f"{counted(len(cells), 'column')} where the file has {self.width}"
                problem = problem or Problem(self.file, line.number, Flaw.COLUMNS, said)
            else:
                start = start or line.number
                words.append(cells[self.chosen[0]])
                tags.append(cells[self.chosen[1]])
        yield from self.sentence(words, tags, start, problem)

    def sentence(
        self, words: list[str], tags: list[str], start: int, problem: Problem | None
    ) -> Iterator[Record | Problem]:
        if problem:
            yield problem
        elif words:
            yield Record((" ".join(words), " ".join(tags)), self.file, start)

    def field_name(self, field: int) -> str:
        return f"column {self.chosen[field] + 1}"


def recognise_conll(query: DataQuery) -> RecognisedData | None:
    """Tagged sentences; None where something else was given."""
    suffixes = {suffix_of(path) for path in query.paths}
    if query.kind not in (None, DataKind.TAGS) or not suffixes <= {*CONLL_SUFFIXES, ".txt", ".tsv"}:
        return None
    sources: list[ConllFile] = []
    for file in query.paths:
        found = conll_in(file, query) if file.is_file() else None
        if found is None and suffix_of(file) in CONLL_SUFFIXES:
            do = (
                "choose the columns of the word and of the tag by number, as in data.columns 1,2"
                if query.columns
                else None
            )
            raise UserError(f"{file} holds no words with a tag each", allowed=ALLOWED, do=do)
        if found is None:
            return None
        sources.append(found)
    count = sum(1 for source in sources for _ in source.read())
    word, tag = sources[0].columns
    said = f"{counted(count, 'sentence')} of words and tags, a word on each line (columns {word} and {tag})"
    return RecognisedData(DataKind.TAGS, tuple(sources), f"{listed(map(str, query.paths), 3)}: {said}")


def conll_in(file: Path, query: DataQuery) -> ConllFile | None:
    """How a file is read that looks like CoNLL; a file of that name may be a single sentence."""
    lines = [line for line in islice(read_lines(file), MAX_LINES) if not line.problem]
    full = [line for line in lines if line.text.strip() and not line.text.startswith("-DOCSTART-")]
    separator = "\t" if 2 * sum("\t" in line.text for line in full) > len(full) else None
    rows = [line.bare.split(separator) for line in full]
    (width, _), *_ = Counter(len(row) for row in rows if row[0] != "#").most_common(1) or [(0, 0)]
    if width < 2:
        return None
    words = [row for row in rows if len(row) == width]
    numbered = width == UNIVERSAL and separator == "\t" and all(NUMBER.fullmatch(row[0]) for row in words)
    columns = requested(query, width) if query.columns else ((1, 3) if numbered else (0, width - 1))
    if columns is None:
        return None
    found = ConllFile(file, separator, width, columns)
    comments = sum(found.cells(line) is None for line in full)
    sentences = sum(1 for one, line in zip([None, *lines], lines, strict=False) if begins(one, line))
    tags = {row[columns[1]] for row in words}
    strict = all(map(TAG.fullmatch, tags))
    if suffix_of(file) not in CONLL_SUFFIXES and (
        sentences < 2 or any(" " in row[columns[0]].strip() for row in words)
    ):
        return None
    regular = len(words) >= MIN_LINES_SHARE * (len(full) - comments) and len(words) >= MIN_SENTENCE * sentences
    few = len(tags) <= min(MAX_TAGS, max(2, len(words) // (2 if strict else 10)))
    return found if regular and few else None


def begins(before: TextLine | None, line: TextLine) -> bool:
    """Whether a sentence begins at a line."""
    first = before is None or not before.text.strip()
    return first and bool(line.text.strip()) and not line.text.startswith("-DOCSTART-")


def requested(query: DataQuery, width: int) -> tuple[int, int] | None:
    """The columns of the word and of the tag, from 0, where two are requested by number."""
    wanted = [int(column) - 1 for column in query.columns if str(column).isdecimal() and 0 < int(column) <= width]
    return (wanted[0], wanted[1]) if len(wanted) == len(query.columns) == 2 else None
