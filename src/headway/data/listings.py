"""Tables that name images or sounds: which column has the names, which says something about them, and what.

Lines of JSON may have lists of texts: an image with several captions.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from headway.data.beside import Grouped
from headway.data.columns import look_like_labels, spelled
from headway.data.given import Asked
from headway.data.heads import BESIDES, CAPTION, LABEL, TEXT, TRANSCRIPT, Head, read_head, sample
from headway.data.images import Images
from headway.data.kinds import Kind
from headway.data.lines import Problem, What
from headway.data.looks import Medium
from headway.data.sounds import Sounds
from headway.data.sources import Record, Source, Table, read_objects, shortened
from headway.data.tables import Dialect
from headway.errors import UserError, listed, nearest

MOST = 0.9  # of the values in a column that are to look like names of files
KINDS = {"image": (Kind.IMAGES, Kind.CAPTIONS), "sound": (Kind.SOUNDS, Kind.SPEECH)}  # with a class, with texts
MEDIA: tuple[Medium, ...] = (Images(), Sounds())
NAMES = {
    Kind.IMAGES: LABEL,
    Kind.SOUNDS: LABEL,
    Kind.CAPTIONS: CAPTION | TEXT,
    Kind.SPEECH: TRANSCRIPT | TEXT,
}
Cell = tuple[str, ...]  # one text, or several


@dataclass(frozen=True)
class Listing:
    """The head of such a table; lines of JSON have no dialect."""

    file: Path
    names: tuple[str, ...] | None
    rows: tuple[tuple[Cell, ...], ...]
    dialect: Dialect | None

    @property
    def width(self) -> int:
        return len(self.rows[0])

    def name(self, column: int) -> str:
        return self.names[column].strip().casefold() if self.names else ""

    def values(self, column: int) -> list[str]:
        return [" ".join(row[column]) for row in self.rows]

    def find(self, asked: str | int) -> int:
        if self.dialect:
            return Head(
                self.file, self.names, tuple(tuple(cell[0] for cell in row) for row in self.rows), self.dialect
            ).find(asked)
        names = self.names or ()
        if asked not in names:
            raise UserError(
                f"{self.file} has no key {asked!r}", allowed=listed(names), meant=nearest(str(asked), names)
            )
        return names.index(str(asked))

    def source(self, file: int, text: int, kind: Kind) -> Source:
        """Records of a name and what is said about it."""
        if self.dialect is None:
            assert self.names is not None
            table = TextLists(self.file, self.names[file], self.names[text], kind is Kind.CAPTIONS)
        else:
            table = Table(self.file, self.dialect, self.width, (file, text), self.names)
        return Grouped(table) if kind is Kind.CAPTIONS else table


@dataclass(frozen=True)
class Naming:
    """A table one of whose columns names images or sounds."""

    listing: Listing
    medium: Medium
    column: int

    @property
    def file(self) -> Path:
        return self.listing.file

    @property
    def names(self) -> list[str]:
        """The first names."""
        return self.listing.values(self.column)[:50]

    @property
    def header(self) -> int:
        """Lines before the first record."""
        return int(self.listing.names is not None and self.listing.dialect is not None)

    @property
    def others(self) -> tuple[int, ...]:
        """Columns that may say something about the files."""
        columns = (at for at in range(self.listing.width) if at != self.column)
        return tuple(at for at in columns if self.listing.name(at) not in BESIDES)

    def told(self, asked: Asked) -> tuple[Kind, Source]:
        """What the table is for, and its records: a name and what is said about it."""
        others = tuple(self.listing.find(column) for column in asked.columns[1:]) or self.others
        kinds = (asked.kind,) if asked.kind else KINDS[self.medium.noun]
        kind, text = chosen(self.listing, self.column, others, kinds)
        return kind, self.listing.source(self.column, text, kind)


def find_names(file: Path, suffix: str, asked: Asked) -> Naming | None:
    """The column that names files; None where there is none, or where it was not asked for."""
    listing = (listed_objects if suffix == ".jsonl" else listed_rows)(file, suffix, asked)
    named = {at: medium for at in range(listing.width) for medium in MEDIA if names_files(listing.values(at), medium)}
    if not named:
        return None
    column = listing.find(asked.columns[0]) if asked.columns else next(iter(named))
    if column not in named or asked.kind not in (None, *KINDS[named[column].noun]):
        return None
    return Naming(listing, named[column], column)


def chosen(listing: Listing, column: int, others: Sequence[int], kinds: Sequence[Kind]) -> tuple[Kind, int]:
    """By the names of columns; else, where one is left, by what it holds."""
    for kind in kinds:
        named = [at for at in others if listing.name(at) in NAMES[kind]]
        if len(named) == 1:
            return kind, named[0]
    if len(others) != 1:
        shown = listing.names or tuple(range(1, listing.width + 1))
        example = spelled([shown[column], shown[others[-1]] if others else "…"])
        said = f"{listing.file} names files and nothing says what else in it is meant"
        raise UserError(f"{said} ({listed(map(str, shown))})", do=f"choose two columns, as in --columns {example}")
    (text,) = others
    several = any(len(row[text]) > 1 for row in listing.rows)
    classes = not several and look_like_labels(listing.values(text), listing.values(column))
    return kinds[0] if classes or len(kinds) == 1 else kinds[1], text


def names_files(values: list[str], medium: Medium) -> bool:
    like = sum(PurePosixPath(value).suffix.lower() in medium.suffixes for value in values)
    return like >= MOST * len(values) and like > 0


def listed_rows(file: Path, suffix: str, asked: Asked) -> Listing:
    """A table; where only the first row names no file, it is a header."""
    head = read_head(file, suffix, asked.columns)
    names, rows = head.names, head.rows
    if names is None and len(rows) > 1:
        for at, medium in ((at, medium) for at in range(head.width) for medium in MEDIA):
            rest = [row[at] for row in rows[1:]]
            if names_files(rest, medium) and not names_files([rows[0][at]], medium):
                names, rows = rows[0], rows[1:]
                break
    return Listing(file, names, tuple(tuple((cell,) for cell in row) for row in rows), head.dialect)


def listed_objects(file: Path, suffix: str, asked: Asked) -> Listing:
    """Keys that most lines have, with a text or a list of texts."""
    objects = [value for _, value in sample(read_objects(file), file)]
    rows = [{key: cell for key, at in value.items() if (cell := texts_in(at))} for value in objects]
    counts = Counter(key for row in rows for key in row)
    keys = tuple(key for key, count in counts.items() if 2 * count >= len(rows))
    whole = tuple(tuple(row[key] for key in keys) for row in rows if row.keys() >= set(keys))
    return Listing(file, keys, whole or ((),), None)


def texts_in(value: Any) -> Cell | None:
    """A text, a whole number as JSON writes it, or a list of texts."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, int):
        return (json.dumps(value),)
    if isinstance(value, list) and value and all(isinstance(text, str) for text in value):
        return tuple(value)
    return None


@dataclass(frozen=True)
class TextLists:
    """Lines of JSON with the name of a file and what is said about it: a text or, where `several` may be, a list."""

    file: Path
    name: str
    text: str
    several: bool

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.file,)

    @property
    def columns(self) -> tuple[str | int, ...]:
        return self.name, self.text

    def read(self) -> Iterator[Record | Problem]:
        for found in read_objects(self.file):
            yield found if isinstance(found, Problem) else self.record(*found)

    def record(self, line: int, value: dict[str, Any]) -> Record | Problem:
        for key in (self.name, self.text):
            if value.get(key) is None:
                said = f"{key!r} is null" if key in value else f"no {key!r} among its keys"
                return Problem(self.file, line, What.KEY, said)
        name, texts = (texts_in(value[key]) for key in (self.name, self.text))
        if name is None or len(name) > 1:
            return Problem(self.file, line, What.VALUE, f"{self.name!r} is {shortened(value[self.name])}, not a name")
        if texts is None or (len(texts) > 1 and not self.several):
            allowed = "a text or a list of texts" if self.several else "a text"
            said = f"{self.text!r} is {shortened(value[self.text])}, not {allowed}"
            return Problem(self.file, line, What.VALUE, said)
        return Record((*name, *texts), self.file, line)

    def side(self, field: int) -> tuple[Path, str]:
        return self.file, repr(self.text if field else self.name)
