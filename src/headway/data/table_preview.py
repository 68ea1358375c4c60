"""The first rows of a table, and which of its columns are meant: as requested, by name, or by their values.

A first row is a header where its cells are words that headers have (text, label, source, en, …), or where a column was
requested by name.  A file is sampled once for each `DataQuery`, whatever it is then tried as.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias, TypeVar

from headway.data.kinds import DataKind
from headway.data.records import DataQuery, RecordSource
from headway.data.table import Dialect, JsonLines, JsonRow, Table, TableRow, as_text, as_texts, read_objects, sniff
from headway.data.text_lines import MEDIA_SUFFIXES, Problem, suffix_of
from headway.errors import UserError, listed, nearest

T = TypeVar("T", TableRow, JsonRow)
ColumnChoice: TypeAlias = tuple[DataKind, tuple[int, ...]]  # columns from 0, in the order of a record's fields
MAX_ROWS, MAX_CHARACTERS = 2000, 2**22  # of a sample
MIN_NAMES_SHARE = 0.9  # of the values in a column that are to look like names of files
MAX_LABEL, MAX_TAGS = 40, 100  # the longest label and the most tags that are taken for such without a name


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
class TablePreview:
    """Rows as texts, all of one width.  `lists` are the columns of JSON lists; lines of JSON have no dialect."""

    file: Path
    names: tuple[str, ...] | None
    rows: tuple[tuple[str, ...], ...]
    dialect: Dialect | None = None
    lists: frozenset[int] = frozenset()

    @property
    def width(self) -> int:
        return len(self.rows[0]) if self.names is None else len(self.names)

    @property
    def header_lines(self) -> int:
        """Lines before the first record."""
        return int(self.names is not None and self.dialect is not None)

    def name(self, column: int) -> str:
        return self.names[column].strip().casefold() if self.names else ""

    def values(self, column: int) -> list[str]:
        return [row[column] for row in self.rows]

    def with_header(self) -> TablePreview:
        """The same with its first row as the header."""
        return replace(self, names=self.rows[0], rows=self.rows[1:])

    def find(self, column: str | int) -> int:
        """The index of a column that is given by name or by number from 1."""
        names = self.names or ()
        if isinstance(column, str) and column in names:
            return names.index(column)
        if str(column).isdecimal() and 0 < int(column) <= self.width and self.dialect:
            return int(column) - 1
        allowed = listed(name[:24] for name in names) if names else f"1 to {self.width}"
        noun = "column" if self.dialect else "key"
        raise UserError(f"{self.file} has no {noun} {column!r}", allowed=allowed, meant=nearest(str(column), names))

    def source(self, columns: tuple[int, ...]) -> RecordSource:
        if self.dialect:
            return Table(self.file, self.dialect, self.width, columns, self.names)
        assert self.names is not None
        return JsonLines(self.file, tuple(self.names[column] for column in columns))


def preview_texts(query: DataQuery, file: Path, suffix: str) -> TablePreview:
    """The preview of a file that is named or meant as one of .tsv, .csv and .jsonl."""
    if suffix != ".jsonl":
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
    def read() -> tuple[Dialect, list[TableRow]]:
        dialect = sniff(file) if suffix == ".csv" else Dialect()
        return dialect, sample(dialect.rows(file), file)

    dialect, sampled = query.once((file, suffix), read)
    rows = tuple(cells for _, cells in sampled)
    first = rows[0]
    (width, _), *_ = Counter(map(len, rows)).most_common(1)
    by_name = any(not str(column).isdecimal() for column in query.columns)
    if not by_name and (sampled[0][0] != 1 or not is_header(first, width)):
        return TablePreview(file, None, tuple(cells for cells in rows if len(cells) == width), dialect)
    rows = tuple(cells for cells in rows[1:] if len(cells) == len(first))
    if not rows:
        raise UserError(f"{file} has no row with {len(first)} columns, as its first line has")
    return TablePreview(file, first, rows, dialect)


def sample_objects(query: DataQuery, file: Path) -> list[dict[str, Any]]:
    """The first objects of a file of JSON lines."""
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
    return TablePreview(file, keys, rows, None, lists)


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
        raise UserError(str(first) if first else f"{file} is empty")
    return good


def is_header(cells: tuple[str, ...], width: int) -> bool:
    """All cells of a narrow table, or two of a wide one, are words that headers have."""
    names = [cell.strip().casefold() for cell in cells]
    known = sum(name in KNOWN for name in names)
    return len(names) == width and len(set(names)) == width and known >= min(width, 2)


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
    candidates = columns or tuple(at for at in range(table.width) if table.name(at) not in BESIDES)
    found = arranged(table, kind, candidates) if kind else guessed(table, candidates)
    if found is None:
        raise undecided(table, kind)
    # requested columns stay in their order, unless one of them is the label
    return (found[0], columns) if columns and found[0] is not DataKind.LABELS else found


def guessed(table: TablePreview, candidates: tuple[int, ...]) -> ColumnChoice | None:
    for kind in NAMES:
        if named := by_names(table, kind, candidates):
            return named
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
    short = max(len(value) for value in values) <= MAX_LABEL
    return rows > 3 and short and different <= few and 2 * different <= len(set(texts))


def look_like_tags(words: list[str], tags: list[str]) -> bool:
    """As many tags as words in every row, and few different tags for many words."""
    counts = [len(text.split()) for text in tags]
    if counts != [len(text.split()) for text in words] or sum(counts) < 2 * len(counts):
        return False
    different = len({tag for text in tags for tag in text.split()})
    return different <= min(MAX_TAGS, sum(counts) // 10)


def described(table: TablePreview, kind: DataKind, columns: tuple[int, ...]) -> str:
    """The columns for a sentence: two text columns (en, de)"""
    names = ", ".join(str(table.names[at] if table.names else at + 1) for at in columns)
    return SHOWN[kind] + (f" ({names})" if table.names or table.width > len(columns) else "")


def undecided(table: TablePreview, kind: DataKind | None) -> UserError:
    """What there is to choose from; the example names the columns with the longest texts."""
    first = table.names or [f"{at} {cell[:24]!r}" for at, cell in enumerate(table.rows[0], 1)]
    many = 1 if kind is DataKind.TEXTS else 2
    longest = sorted(range(table.width), key=lambda at: -sum(map(len, table.values(at))))[:many]
    example = [table.names[at] if table.names else at + 1 for at in sorted(longest)]
    what = f"for {kind.value}" if kind else "to learn from"
    said = f"{table.file} has {table.width} columns ({listed(first)}) and nothing says which are {what}"
    return UserError(said, do=f"choose them, as in data.columns {spelled(example)}")


def spelled(columns: Sequence[str | int]) -> str:
    return ",".join(str(column) for column in columns)


def media_column(query: DataQuery, file: Path) -> tuple[TablePreview, int, str] | None:
    """A table, its column that names files, and whether these are images or sounds; None where no column does."""
    suffix = suffix_of(file)
    if suffix == ".jsonl":
        preview = preview_objects(query, file, media_cell)
    else:
        preview = with_media_header(preview_rows(query, file, suffix))
    named = {at: noun for at in range(preview.width) if (noun := medium_of(preview.values(at)))}
    if not named:
        return None
    column = preview.find(query.columns[0]) if query.columns else next(iter(named))
    return (preview, column, named[column]) if column in named else None


def media_cell(value: Any) -> str | tuple[str, ...] | None:
    texts = as_texts(value)
    return texts[0] if texts and len(texts) == 1 else texts


def with_media_header(preview: TablePreview) -> TablePreview:
    """A table in which only the first row names no file has a header."""
    if preview.names is None and len(preview.rows) > 1:
        for at in range(preview.width):
            first, *rest = preview.values(at)
            if (noun := medium_of(rest)) and medium_of([first]) != noun:
                return preview.with_header()
    return preview


def medium_of(names: Sequence[str]) -> str | None:
    """The medium that nearly all of these names have the suffixes of."""
    suffixes = [PurePosixPath(name).suffix.lower() for name in names]
    for noun, own in MEDIA_SUFFIXES.items():
        like = sum(suffix in own for suffix in suffixes)
        if like and like >= MIN_NAMES_SHARE * len(names):
            return noun
    return None
