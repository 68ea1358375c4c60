"""Records: what one is, where they come from, which data they were recognised as, and what is wrong with one.

All are read as a stream, so memory does not grow with the file.  Every line is a record or a problem, and the two
together count what is there.  Lines lose their ends and nothing else.  Here are two parallel files and files of text;
tables are in `table.py`, images and sounds in `media_sources.py`.

A file of text is one document of any length.  It comes in pieces that, joined, are its text, with every line end a \n.
They are cut before a line, or inside a very long line before a space, so that a tokenizer sees nearly the same as in
the whole.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from io import BufferedIOBase, BytesIO
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any, TypeVar

from headway.console import counted_within
from headway.data.kinds import ENDLESS, SCORED, TEXTUAL, DataKind
from headway.data.text_lines import (
    CUT,
    Flaw,
    MediaLocation,
    Problem,
    cut,
    decode,
    open_bytes,
    read_lines,
    unmarked,
)
from headway.errors import counted

T = TypeVar("T")
BUILTIN = "dates"  # the name of the built-in data set
PIECE_CHARACTERS = 2**16  # characters after which a piece ends where it may; at twice as many it ends anywhere
MAX_SPEECH_RATE = 100  # characters a second: CTC writes at most one in each frame of 10 ms
MAX_FIELD_CHARACTERS = 10_000  # characters of a text that is learned as one row
MAX_FLOAT = 3e38  # what four bytes hold


@dataclass(frozen=True, slots=True)
class Record:
    """What one line says, or one row, or a piece of a document that goes on from the piece before it.

    Of an image or a sound the first field is a hash of its contents, `place` is where these are, and `extent` how large
    it is: height and width, or samples and their rate.
    """

    fields: tuple[str, ...]
    file: Path
    line: int
    goes_on: bool = False
    place: MediaLocation | None = None
    extent: tuple[int, ...] = ()
    group: str = ""  # what it shares with others that are on the same side of a split: a speaker, a patient

    @property
    def name(self) -> str:
        """What a person knows it by: its text, or the name of its file."""
        return self.fields[0] if self.place is None else str(self.place.path)

    @property
    def handed(self) -> tuple[str, ...]:
        """What a task encodes: the fields, and of an image or a sound its place and extent instead of the hash."""
        if self.place is None:
            return self.fields
        return (self.place.spelled(), " ".join(map(str, self.extent)), *self.fields[1:])


class RecordSource(ABC):
    """Records in one place."""

    @property
    @abstractmethod
    def files(self) -> tuple[Path, ...]: ...

    @property
    def columns(self) -> tuple[str | int, ...]:
        """Names of columns, or their numbers from 1; none where a file has no columns."""
        return ()

    @abstractmethod
    def read(self) -> Iterator[Record | Problem]: ...

    @abstractmethod
    def field_name(self, field: int) -> str:
        """What a person calls a field."""

    def column(self, name: str) -> RecordSource | None:
        """Another column of the same rows, alone; None where there are no others."""
        return None


@dataclass(frozen=True)
class FileSource(RecordSource):
    """Records of one file."""

    file: Path

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.file,)


@dataclass(frozen=True)
class ParallelFiles(RecordSource):
    """Two files whose lines belong together."""

    source: Path
    target: Path

    @property
    def files(self) -> tuple[Path, ...]:
        return self.source, self.target

    def read(self) -> Iterator[Record | Problem]:
        pairs = zip_longest(read_lines(self.source), read_lines(self.target))
        for left, right in pairs:
            problem = (left and left.problem) or (right and right.problem)
            if problem:
                yield problem
                if problem.what is Flaw.BROKEN:
                    return
            elif left and right:
                yield Record((left.bare, right.bare), self.source, left.number)
            elif line := left or right:
                longer, other = self.files if left else self.files[::-1]
                count = 1 + sum(1 for _ in pairs)
                said = f"{counted(count, 'line')} more than {other} has ({line.number - 1:,})"
                yield Problem(longer, line.number, Flaw.UNPAIRED, said, lines=count)

    def field_name(self, field: int) -> str:
        return ("the source", "the target")[field]


@dataclass(frozen=True)
class TextFile(FileSource):
    """A file that is one text; it begins with the first piece that is not blank."""

    def read(self) -> Iterator[Record | Problem]:
        begun = False
        for piece in read_document(self.file):
            if isinstance(piece, Problem):
                yield piece
            elif begun or not piece[1].isspace():
                yield Record((piece[1],), self.file, piece[0], goes_on=begun)
                begun = True
        if not begun:
            yield Problem(self.file, 1, Flaw.EMPTY, "no text in this file")

    def field_name(self, field: int) -> str:
        return "the text"


def read_document(file: Path) -> Iterator[tuple[int, str] | Problem]:
    """Pieces with the numbers of the lines where they begin."""
    parts: list[str] = []
    size = begin = 0

    def room() -> int:
        return PIECE_CHARACTERS - size

    for segment in segments(file, room):
        if isinstance(segment, Problem):
            yield segment
            continue
        number, text = segment
        if size >= PIECE_CHARACTERS and (
            size >= 2 * PIECE_CHARACTERS or not (text[:1].isspace() and parts[-1][-1:].isspace())
        ):
            yield begin, "".join(parts)
            parts, size = [], 0
        begin = begin if parts else number
        parts.append(text)
        size += len(text)
    if parts:
        yield begin, "".join(parts)


def segments(file: Path, room: Callable[[], int]) -> Iterator[tuple[int, str] | Problem]:
    """Lines with their ends, those that have `room` in a piece together, and parts of very long lines."""
    number, first = 1, True
    with open_bytes(file) as stream:
        try:
            for raw in chunks(stream, room):
                raw = unmarked(raw, file) if first else raw
                lines, first = [decode(raw, file, number)], False
                if lines[0].problem or "\0" in lines[0].text:  # one by one, to find the line
                    lines = [decode(one, file, at) for at, one in enumerate(BytesIO(raw), number)]
                for line in lines:
                    if line.problem:
                        yield line.problem
                    elif "\0" in line.text:
                        said = f"a NUL character at position {line.text.index(chr(0)) + 1}"
                        yield Problem(file, line.number, Flaw.NUL, said)
                    else:
                        yield line.number, line.text.replace("\r\n", "\n")
                number += raw.count(b"\n")
        except CUT as error:
            yield cut(file, number, error)


def chunks(stream: BufferedIOBase, room: Callable[[], int]) -> Iterator[bytes]:
    """Lines: after the first, as many together as have `room`; those longer than a piece in several parts."""
    ahead = rest = b""
    while raw := ahead + stream.readline(PIECE_CHARACTERS - len(ahead)):
        raw, rest, ahead = rest + raw, b"", b""
        if not raw.endswith(b"\n") and len(raw) >= PIECE_CHARACTERS:
            end = parting(raw)
            raw, rest = raw[:end], raw[end:]
        yield raw
        if not rest and (most := room()) > 0:  # bytes are no fewer than characters
            lines, end, ahead = stream.read1(most).rpartition(b"\n")
            if end:
                yield lines + end
    if rest:
        yield rest


def parting(raw: bytes) -> int:
    """Where a line may be cut: before its last space, else before its last character; \\r\\n is never cut."""
    space = raw.rfind(b" ")
    if space > 0:
        return space
    starts = (at for at in range(len(raw) - 1, len(raw) - 5, -1) if raw[at] & 0xC0 != 0x80)
    return next(starts, len(raw))


@dataclass(frozen=True)
class RecognisedData:
    """Data that was recognised, with a `description`; `paths` are what a person named, where these are not files.

    `fingerprint` is what decides, besides the bytes of files, which records these hold: names that say a class.
    """

    kind: DataKind
    sources: tuple[RecordSource, ...]
    description: str
    paths: tuple[Path, ...] = ()
    fingerprint: tuple[str, ...] = ()
    unlabelled: bool = False  # images that are learned from without classes
    other_header: str | None = None  # the value of data.header that would read a first line otherwise, if in doubt

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(file for source in self.sources for file in source.files)

    @property
    def columns(self) -> tuple[str | int, ...]:
        """Names, or numbers from 1, of the columns in use; none where files have no columns."""
        return self.sources[0].columns

    @property
    def noun(self) -> str:
        """What one record is called when some are counted."""
        return "line" if self.kind in TEXTUAL else "record"


@dataclass(frozen=True)
class DataQuery:
    """What a person gave, and settings about it."""

    paths: tuple[Path, ...]
    kind: DataKind | None = None
    columns: tuple[str | int, ...] = ()
    label_from: str | None = None  # a pattern for names of files
    rate: int | None = None  # at which all sounds are wanted
    frames: int = 1  # of a film, of which the first may be taken for an image
    nameless: bool = False  # images are learned from without classes
    header: str | None = None  # whether tables have one: yes, no, or as it looks
    group: str | None = None  # a column that says which records belong together, and nothing else
    samples: dict[tuple[Path, str], Any] = field(default_factory=dict[tuple[Path, str], Any], repr=False)

    def once(self, key: tuple[Path, str], read: Callable[[], T]) -> T:
        """What `read` finds in a file, for all that try to recognise it."""
        if key not in self.samples:
            self.samples[key] = read()
        return self.samples[key]


def records(given: RecognisedData, longest: int = MAX_FIELD_CHARACTERS) -> Iterator[Record | Problem]:
    """Everything that was given, in order.

    A field of more than `longest` characters is a problem, except in documents, which come in pieces: those after the
    first say that they go on.  Words and tags come joined by single spaces.
    """
    for source in given.sources:
        for found in counted_within(source.read(), "records"):
            yield found if isinstance(found, Problem) else checked(found, source, given.kind, longest)


def by_document(records: Iterable[Record]) -> Iterator[Iterator[str]]:
    """The pieces of each document; read them before the next one."""
    begun = 0

    def number(record: Record) -> int:
        nonlocal begun
        begun += not record.goes_on
        return begun

    return ((record.fields[0] for record in pieces) for _, pieces in groupby(records, number))


def checked(record: Record, source: RecordSource, kind: DataKind, longest: int) -> Record | Problem:
    """A record that can be learned from, or why it cannot."""
    if record.goes_on:
        return record
    for at, text in enumerate(record.fields):
        if kind is DataKind.LABEL_SETS and at and not text:
            continue  # a text may have none of the labels
        if flaw := flaw_of(text, kind, longest):
            file = source.files[at] if isinstance(source, ParallelFiles) else record.file
            return Problem(file, record.line, flaw[0], f"{source.field_name(at)} {flaw[1]}")
    if kind is DataKind.TAGS:
        words, tags = (field.split() for field in record.fields)
        if len(words) == len(tags):
            return replace(record, fields=(" ".join(words), " ".join(tags)))
        said = f"{counted(len(words), 'word')} and {counted(len(tags), 'tag')}"
        return Problem(record.file, record.line, Flaw.COUNTS, said)
    if kind in SCORED and as_number(record.fields[1]) is None:
        said = f"{source.field_name(1)} is {record.fields[1][:40]!r}, not a number"
        return Problem(record.file, record.line, Flaw.NUMBER, said)
    if kind is DataKind.SPEECH:
        samples, rate = record.extent
        characters, seconds = len(record.fields[1]), samples / rate
        if characters > max(1, MAX_SPEECH_RATE * seconds):
            said = f"has a transcript of {counted(characters, 'character')} for {seconds:.2f} seconds"
            return Problem(record.file, record.line, Flaw.LONG, said)
    return record


def flaw_of(text: str, kind: DataKind, longest: int) -> tuple[Flaw, str] | None:
    if not text or text.isspace():
        return Flaw.EMPTY, "is empty"
    if "\0" in text:
        return Flaw.NUL, f"has a NUL character at position {text.index(chr(0)) + 1}"
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:  # JSON can spell half a pair, and no UTF-8 can hold it
        return Flaw.ENCODING, f"has half a surrogate pair at character {error.start + 1}, which is no character"
    if kind not in ENDLESS and len(text) > longest:
        return Flaw.LONG, f"has {counted(len(text), 'character')} where {longest:,} are allowed"
    return None


def as_number(cell: str) -> float | None:
    """A number that four bytes can hold, as programs write it."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if is_number(value) and "_" not in cell else None


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MAX_FLOAT


def is_paths(data: Any) -> bool:
    return isinstance(data, list | tuple) and bool(data) and all(isinstance(one, str | Path) for one in data)


def as_records(data: Iterable[Any]) -> list[Record]:
    """Records of Python values: `Record`s, or tuples of texts."""
    return [
        one if isinstance(one, Record) else Record(tuple(map(str, one)), Path("records"), at)
        for at, one in enumerate(data, 1)
    ]


def is_builtin(paths: Sequence[str | Path]) -> bool:
    """Whether the built-in data set is meant, and no file of that name."""
    return [str(path) for path in paths] == [BUILTIN] and not Path(BUILTIN).exists()
