"""The first rows of a table, from which its columns are recognised.

A first row is a header where its cells are words that headers have (text, label, source, en, …), or where a column was
asked for by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from headway.data.lines import Problem
from headway.data.sources import JsonLines, Source, Table, as_text, read_objects
from headway.data.tables import Dialect, Plain, Row, sniff
from headway.errors import UserError, listed, nearest

ROWS, CHARACTERS = 2000, 2**22  # that are looked at


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
KNOWN = TEXT | LABEL | SOURCE | TARGET | WORDS | TAGS | LANGUAGE | CAPTION | TRANSCRIPT | BESIDES


@dataclass(frozen=True)
class Head:
    """Rows as texts, all of one width.  `lists` are the columns of lists of words; lines of JSON have no dialect."""

    file: Path
    names: tuple[str, ...] | None
    rows: tuple[tuple[str, ...], ...]
    dialect: Dialect | None = None
    lists: frozenset[int] = frozenset()

    @property
    def width(self) -> int:
        return len(self.names) if self.names else len(self.rows[0])

    def name(self, column: int) -> str:
        return self.names[column].strip().casefold() if self.names else ""

    def values(self, column: int) -> list[str]:
        return [row[column] for row in self.rows]

    def find(self, asked: str | int) -> int:
        """The place of a column that was asked for by name or by number from 1."""
        if isinstance(asked, str) and asked in (self.names or ()):
            return (self.names or ()).index(asked)
        if str(asked).isdecimal() and 0 < int(asked) <= self.width and self.dialect:
            return int(asked) - 1
        names = self.names or ()
        allowed = listed(name[:24] for name in names) if names else f"1 to {self.width}"
        raise UserError(f"{self.file} has no column {asked!r}", allowed=allowed, meant=nearest(str(asked), names))

    def source(self, columns: tuple[int, ...]) -> Source:
        if self.dialect:
            return Table(self.file, self.dialect, self.width, columns, self.names)
        assert self.names is not None
        return JsonLines(self.file, tuple(self.names[column] for column in columns))


def read_head(file: Path, suffix: str, asked: Sequence[str | int]) -> Head:
    """The head of a file that is named or meant as one of .tsv, .csv and .jsonl."""
    if suffix == ".jsonl":
        return head_of_objects(file)
    dialect = sniff(file) if suffix == ".csv" else Plain()
    first, *others = sample(dialect.rows(file), file)
    (width, _), *_ = Counter(len(row.cells) for row in (first, *others)).most_common(1)
    by_name = any(not str(column).isdecimal() for column in asked)
    if by_name or (first.line == 1 and is_header(first.cells, width)):
        rows = tuple(row.cells for row in others if len(row.cells) == len(first.cells))
        if not rows:
            raise UserError(f"{file} has no row with {len(first.cells)} columns, as its first line has")
        return Head(file, first.cells, rows, dialect)
    return Head(file, None, tuple(row.cells for row in (first, *others) if len(row.cells) == width), dialect)


def head_of_objects(file: Path) -> Head:
    """Keys that most objects have, with values that are texts, whole numbers or lists of words."""
    objects = [value for _, value in sample(read_objects(file), file)]
    texts = [{key: text for key, at in value.items() if (text := as_text(at)) is not None} for value in objects]
    found = Counter(key for row in texts for key in row)
    keys = tuple(key for key, count in found.items() if 2 * count >= len(objects))
    if not keys:
        keyed = listed(dict.fromkeys(key for value in objects for key in value))
        raise UserError(
            f"{file} has no key with texts on most of its lines",
            allowed="texts and labels by key",
            do=f"its keys are {keyed}" if keyed else None,
        )
    rows = tuple(tuple(row[key] for key in keys) for row in texts if row.keys() >= set(keys))
    lists = frozenset(at for at, key in enumerate(keys) if any(isinstance(value.get(key), list) for value in objects))
    return Head(file, keys, rows, None, lists)


Found = TypeVar("Found", Row, tuple[int, dict[str, object]])


def sample(rows: Iterable[Found | Problem], file: Path) -> list[Found]:
    """The first good rows; where there is none, what is wrong with the first is a UserError."""
    first: Problem | None = None
    good: list[Found] = []
    size = 0
    for number, row in enumerate(rows):
        if isinstance(row, Problem):
            first = first or row
        else:
            good.append(row)
            size += len(str(row))
        if number + 1 == ROWS or size > CHARACTERS:
            break
    if not good:
        raise UserError(str(first) if first else f"{file} is empty")
    return good


def is_header(cells: tuple[str, ...], width: int) -> bool:
    """All cells of a narrow table, or two of a wide one, are words that headers have."""
    names = [cell.strip().casefold() for cell in cells]
    known = sum(name in KNOWN for name in names)
    return len(names) == width and len(set(names)) == width and known >= min(width, 2)
