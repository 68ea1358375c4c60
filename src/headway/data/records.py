"""Records as a stream: what data is for, what was recognised, and what is wrong with each record.

Lines lose their ends and nothing else.  Every line is a record or a problem, so that the two together count what is
there; memory does not grow with the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from headway.data.kinds import ENDLESS, TEXTUAL, DataKind
from headway.data.sources import Record, RecordSource
from headway.data.text_lines import Flaw, Problem, counted

T = TypeVar("T")
MAX_SPEECH_RATE = 100  # characters a second: CTC writes at most one in each frame of 10 ms
MAX_FIELD_CHARACTERS = 10_000  # characters of a text that is learned as one row


@dataclass(frozen=True)
class RecognisedData:
    """Data that was recognised, with a `description`; `paths` are what a person named, where these are not files.

    `told` is what decides, besides the bytes of files, which records these hold: names that say a class.
    """

    kind: DataKind
    sources: tuple[RecordSource, ...]
    description: str
    paths: tuple[Path, ...] = ()
    told: tuple[str, ...] = ()
    unlabelled: bool = False  # images that are learned from without classes

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
    """What a person handed over and said about it."""

    paths: tuple[Path, ...]
    kind: DataKind | None = None
    columns: tuple[str | int, ...] = ()
    label_from: str | None = None  # a pattern for names of files
    rate: int | None = None  # at which all sounds are wanted
    frames: int = 1  # of a film, of which the first may be taken for an image
    nameless: bool = False  # images are learned from without classes
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
        for found in source.read():
            yield found if isinstance(found, Problem) else checked(found, source, given.kind, longest)


def by_document(records: Iterable[Record]) -> Iterator[Iterator[str]]:
    """The pieces of each document; they are to be read before the next one is asked for."""
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
        flaw = flaw_of(text, kind, longest)
        if flaw:
            file, name = source.side(at)
            return Problem(record.file if record.place else file, record.line, flaw[0], f"{name} {flaw[1]}")
    if kind is DataKind.TAGS:
        return tagged(record)
    return sayable(record) if kind is DataKind.SPEECH else record


def flaw_of(text: str, kind: DataKind, longest: int) -> tuple[Flaw, str] | None:
    if not text or text.isspace():
        return Flaw.EMPTY, "is empty"
    if "\0" in text:
        return Flaw.NUL, f"has a NUL character at position {text.index(chr(0)) + 1}"
    if not text.isascii() and (half := half_pair(text)):
        return Flaw.ENCODING, f"has half a surrogate pair at character {half}, which is no character"
    if kind not in ENDLESS and len(text) > longest:
        return Flaw.LONG, f"has {counted(len(text), 'character')} where {longest:,} are allowed"
    return None


def half_pair(text: str) -> int | None:
    """The place of a surrogate, from 1; JSON can spell it and no UTF-8 can hold it."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return error.start + 1
    return None


def sayable(record: Record) -> Record | Problem:
    """A transcript that is not too long for its sound."""
    samples, rate = record.extent
    characters, seconds = len(record.fields[1]), samples / rate
    if characters <= max(1, MAX_SPEECH_RATE * seconds):
        return record
    said = f"has a transcript of {counted(characters, 'character')} for {seconds:.2f} seconds"
    return Problem(record.file, record.line, Flaw.LONG, said)


def tagged(record: Record) -> Record | Problem:
    words, tags = (field.split() for field in record.fields)
    if len(words) != len(tags):
        said = f"{counted(len(words), 'word')} and {counted(len(tags), 'tag')}"
        return Problem(record.file, record.line, Flaw.COUNTS, said)
    return Record((" ".join(words), " ".join(tags)), record.file, record.line)
