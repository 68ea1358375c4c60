"""Tables that name image or sound files: which column has the names, what the others say, and where the files are.

Lines of JSON may have lists of texts: an image with several captions.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from headway.data.images import Images
from headway.data.kinds import DataKind
from headway.data.media_sources import (
    BadEntry,
    FileSet,
    FolderFiles,
    MediaEntry,
    MediaSource,
    Medium,
    TarFiles,
    named_like,
)
from headway.data.records import DataQuery, Record, RecordSource
from headway.data.sounds import Sounds
from headway.data.table import JsonLines, Rewritten, shortened
from headway.data.table_preview import (
    BESIDES,
    CAPTION,
    LABEL,
    TEXT,
    TRANSCRIPT,
    TablePreview,
    look_like_labels,
    preview_objects,
    preview_rows,
    spelled,
)
from headway.data.text_lines import TABLE_SUFFIXES, Flaw, Problem, TextLine, on_disk, read_lines, suffix_of
from headway.errors import UserError, listed

BETWEEN = re.compile(r"[,;\t\r\n\"]")  # what stands around a name in a table or in JSON
MIN_NAMES_SHARE = 0.9  # of the values in a column that are to look like names of files
# with a class, with texts
KINDS = {"image": (DataKind.IMAGES, DataKind.CAPTIONS), "sound": (DataKind.SOUNDS, DataKind.SPEECH)}
MEDIA: tuple[Medium, ...] = (Images(), Sounds())
NAMES = {
    DataKind.IMAGES: LABEL,
    DataKind.SOUNDS: LABEL,
    DataKind.CAPTIONS: CAPTION | TEXT,
    DataKind.SPEECH: TRANSCRIPT | TEXT,
}
HOMES = ("images", "image", "img", "photos", "pictures", "audio", "sounds", "clips", "recordings", "wavs", "wav")


@dataclass(frozen=True, kw_only=True)
class MediaTable(MediaSource):
    """A table whose first field names a file in the pool; the others are said about it.

    `strays` says whether a file that no line names is a problem, as it is where this table is the only one.
    """

    table: RecordSource
    strays: bool = True

    @property
    def files(self) -> tuple[Path, ...]:
        read = [on_disk(file) for file in self.table.files]
        return tuple(dict.fromkeys((*read, *self.pool.files(self.medium))))

    @property
    def columns(self) -> tuple[str | int, ...]:
        return self.table.columns

    def entries(self) -> Iterator[MediaEntry | BadEntry]:
        named, nameless = set[str](), 0
        lines = LineByNumber(self.table.files[0])
        for row in self.table.read():
            if isinstance(row, Record):
                name, found = row.fields[0], self.entry(row)
            else:
                name = next(filter(self.pool.place, BETWEEN.split(lines.text(row.line))), "")
                nameless += not name and row.what is not Flaw.EMPTY
                found = BadEntry(row, name)
            named.add(self.pool.identity(name))
            yield found
        if self.strays:
            yield from self.unnamed(named, nameless)

    def entry(self, row: Record) -> MediaEntry | BadEntry:
        name, *texts = row.fields
        place = self.pool.place(name)
        if place is not None:
            return MediaEntry(place, tuple(texts), row.file, row.line)
        return BadEntry(Problem(row.file, row.line, Flaw.MISSING, f"{name!r} is not in {self.pool.path}"), name)

    def unnamed(self, named: set[str], nameless: int) -> Iterator[BadEntry]:
        """Files that no line names, less one for each bad line whose name cannot be read."""
        told = f"is named by no line of {self.table.files[0]}"
        strays = (n for n in named_like(self.pool, self.medium) if self.pool.identity(n) not in named)
        for name in islice(strays, nameless, None):
            place = self.pool.place(name)
            problem = Problem(place.path, 0, Flaw.UNNAMED, told) if place else self.pool.lost(name)
            yield BadEntry(problem, name)


class LineByNumber:
    """The raw lines of a file by number, asked for in increasing order."""

    def __init__(self, file: Path):
        self.lines, self.last = read_lines(file), TextLine(0, "")

    def text(self, number: int) -> str:
        while self.last.number < number:
            self.last = next(self.lines, TextLine(number, ""))
        return self.last.text


@dataclass(frozen=True)
class GroupedByFile(Rewritten[RecordSource]):
    """A table in which all lines that name the same file are one record with several texts, where the first stands.

    A text that cannot be learned from is a record of its own, so that it alone is left out, and its line is told.
    """

    def read(self) -> Iterator[Record | Problem]:
        found: list[tuple[Record | Problem, list[str]]] = []
        texts: dict[str, list[str]] = {}  # of each file
        for row in self.table.read():
            if isinstance(row, Problem):
                found.append((row, []))
                continue
            name, *said = row.fields
            file = posixpath.normpath(name)
            found += [(replace(row, fields=(name, text)), []) for text in said if not learnable(text)]
            if good := [text for text in said if learnable(text)]:
                if file not in texts:
                    found.append((replace(row, fields=(name,)), texts.setdefault(file, [])))
                texts[file] += good
        for row, more in found:
            yield row if isinstance(row, Problem) else replace(row, fields=(*row.fields, *more))

    def side(self, field: int) -> tuple[Path, str]:
        return self.table.side(min(field, 1))


def learnable(text: str) -> bool:
    """Whether a text is good; what is wrong with it is said where records are checked."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # half a surrogate pair
        return False
    return bool(text.strip()) and "\0" not in text


@dataclass(frozen=True)
class MediaColumn:
    """A table one of whose columns names images or sounds."""

    preview: TablePreview
    medium: Medium
    column: int

    @property
    def file(self) -> Path:
        return self.preview.file

    @property
    def names(self) -> list[str]:
        """The first names."""
        return self.preview.values(self.column)[:50]

    @property
    def others(self) -> tuple[int, ...]:
        """Columns that may say something about the files."""
        columns = (at for at in range(self.preview.width) if at != self.column)
        return tuple(at for at in columns if self.preview.name(at) not in BESIDES)

    def records(self, query: DataQuery) -> tuple[DataKind, RecordSource]:
        """What the table is for, and its records: a name and what is said about it."""
        others = tuple(self.preview.find(column) for column in query.columns[1:]) or self.others
        kinds = (query.kind,) if query.kind else KINDS[self.medium.noun]
        kind, text = self.choose(others, kinds)
        source = self.preview.source((self.column, text))
        if isinstance(source, JsonLines):
            source = TextLists(source.file, source.keys, kind is DataKind.CAPTIONS)
        return kind, GroupedByFile(source) if kind is DataKind.CAPTIONS else source

    def choose(self, others: Sequence[int], kinds: Sequence[DataKind]) -> tuple[DataKind, int]:
        """By the names of columns; else, where one is left, by what it holds."""
        table = self.preview
        for kind in kinds:
            named = [at for at in others if table.name(at) in NAMES[kind]]
            if len(named) == 1:
                return kind, named[0]
        if len(others) != 1:
            shown = table.names or tuple(range(1, table.width + 1))
            example = spelled([shown[self.column], shown[others[-1]] if others else "…"])
            said = f"{table.file} names files and nothing says what else in it is meant"
            do = f"choose two columns, as in data.columns {example}"
            raise UserError(f"{said} ({listed(map(str, shown))})", do=do)
        (text,) = others
        classes = text not in table.lists and look_like_labels(table.values(text), table.values(self.column))
        return kinds[0] if classes or len(kinds) == 1 else kinds[1], text


def find_names(query: DataQuery, file: Path) -> MediaColumn | None:
    """The column that names files; None where there is none, or where it was not asked for."""
    suffix = suffix_of(file)
    if suffix == ".jsonl":
        preview = preview_objects(query, file, media_cell)
    else:
        preview = with_media_header(preview_rows(query, file, suffix))
    named = {at: medium for at in range(preview.width) for medium in MEDIA if names_files(preview.values(at), medium)}
    if not named:
        return None
    column = preview.find(query.columns[0]) if query.columns else next(iter(named))
    if column not in named or query.kind not in (None, *KINDS[named[column].noun]):
        return None
    return MediaColumn(preview, named[column], column)


def names_files(values: list[str], medium: Medium) -> bool:
    like = sum(PurePosixPath(value).suffix.lower() in medium.suffixes for value in values)
    return like >= MIN_NAMES_SHARE * len(values) and like > 0


def with_media_header(preview: TablePreview) -> TablePreview:
    """A table in which only the first row names no file has a header."""
    if preview.names is None and len(preview.rows) > 1:
        for at, medium in ((at, medium) for at in range(preview.width) for medium in MEDIA):
            first, *rest = preview.values(at)
            if names_files(rest, medium) and not names_files([first], medium):
                return preview.with_header()
    return preview


def texts_in(value: Any) -> tuple[str, ...] | None:
    """A text, a whole number as JSON writes it, or a list of texts."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, int):
        return (json.dumps(value),)
    if isinstance(value, list) and value and all(isinstance(text, str) for text in value):
        return tuple(value)
    return None


def media_cell(value: Any) -> str | tuple[str, ...] | None:
    texts = texts_in(value)
    return texts[0] if texts and len(texts) == 1 else texts


@dataclass(frozen=True)
class TextLists(JsonLines):
    """Lines of JSON with the name of a file and what is said about it: a text or, where `several` may be, a list."""

    several: bool

    def fields(self, line: int, value: dict[str, Any]) -> tuple[str, ...] | Problem:
        name_key, text_key = self.keys
        name, texts = texts_in(value[name_key]), texts_in(value[text_key])
        if name is None or len(name) > 1:
            return Problem(self.file, line, Flaw.VALUE, f"{name_key!r} is {shortened(value[name_key])}, not a name")
        if texts is None or (len(texts) > 1 and not self.several):
            allowed = "a text or a list of texts" if self.several else "a text"
            said = f"{text_key!r} is {shortened(value[text_key])}, not {allowed}"
            return Problem(self.file, line, Flaw.VALUE, said)
        return *name, *texts


def pool_at(path: Path) -> FileSet | None:
    """A folder or an archive with images or sounds in it, and not more texts."""
    if path.suffix.lower() == ".tar" and path.is_file():
        return TarFiles(path)
    if not path.is_dir():
        return None
    suffixes = Counter(PurePosixPath(name).suffix.lower() for name in FolderFiles(path).names())
    most = max(sum(suffixes[suffix] for suffix in medium.suffixes) for medium in MEDIA)
    return FolderFiles(path) if most and most >= suffixes[".txt"] else None


def tables_of(pool: FileSet) -> list[Path]:
    """Tables at the top of a pool, and beside an archive one of its name."""
    inside = [pool.path / name for name in pool.names() if "/" not in name and is_named_table(PurePosixPath(name))]
    if not isinstance(pool, TarFiles):
        return inside
    return inside + [file for suffix in TABLE_SUFFIXES if (file := pool.path.with_suffix(suffix)).is_file()]


def pool_beside(naming: MediaColumn, pools: Sequence[FileSet]) -> FileSet | None:
    """The folder or archive in which any of the first names of a table are found."""
    return next((p for p in around(naming.file, pools) if any(p.place(name) for name in naming.names)), None)


def around(table: Path, pools: Sequence[FileSet]) -> Iterator[FileSet]:
    """Where files of a table may be: what was given, and folders with usual names in it; else what is beside it."""
    archive = next((up for up in table.parents if up.suffix.lower() == ".tar"), None)
    if not pools and archive is None:
        stem = table.with_name(table.name.partition(".")[0])
        pools = [TarFiles(stem.with_suffix(".tar"))] if stem.with_suffix(".tar").is_file() else []
        pools = [*pools, FolderFiles(stem), FolderFiles(table.parent)]
    for pool in pools or ([TarFiles(archive)] if archive else []):
        yield pool
        yield from (
            TarFiles(pool.path, f"{home}/") if isinstance(pool, TarFiles) else FolderFiles(pool.path / home)
            for home in HOMES
        )


def is_table(path: Path) -> bool:
    return path.is_file() and is_named_table(path)


def is_named_table(path: PurePosixPath | Path) -> bool:
    return suffix_of(Path(path)) in TABLE_SUFFIXES
