"""Records as a stream: what each line says, or what is wrong with it.

Lines lose their ends and nothing else.  Every line that is given is a record or a problem, so that the two together
count what is there; memory does not grow with the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from headway.data.kinds import ENDLESS, Kind
from headway.data.lines import Problem, What
from headway.data.recognise import Given
from headway.data.sources import Record, Source, counted

__all__ = ["LONGEST", "Problem", "Record", "What", "by_document", "records"]

FASTEST = 100  # letters a second: one in each frame of 10 ms is all that CTC can say
LONGEST = 10_000  # characters of a text that is learned as one row


def records(given: Given, longest: int = LONGEST) -> Iterator[Record | Problem]:
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


def checked(record: Record, source: Source, kind: Kind, longest: int) -> Record | Problem:
    """A record that can be learned from, or why it cannot."""
    if record.goes_on:
        return record
    for field, text in enumerate(record.fields):
        flaw = flaw_of(text, kind, longest)
        if flaw:
            file, name = source.side(field)
            return Problem(record.file if record.place else file, record.line, flaw[0], f"{name} {flaw[1]}")
    if kind is Kind.TAGS:
        return tagged(record)
    return sayable(record) if kind is Kind.SPEECH else record


def flaw_of(text: str, kind: Kind, longest: int) -> tuple[What, str] | None:
    if not text or text.isspace():
        return What.EMPTY, "is empty"
    if "\0" in text:
        return What.NUL, f"has a NUL character at place {text.index(chr(0)) + 1}"
    if not text.isascii() and (half := half_pair(text)):
        return What.ENCODING, f"has half a surrogate pair at place {half}, which is no letter"
    if kind not in ENDLESS and len(text) > longest:
        return What.LONG, f"has {counted(len(text), 'character')} where {longest:,} are allowed"
    return None


def half_pair(text: str) -> int | None:
    """The place of a surrogate, from 1; JSON can spell it and no UTF-8 can hold it."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return error.start + 1
    return None


def sayable(record: Record) -> Record | Problem:
    """A transcript that could have been said in its sound."""
    samples, rate = record.extent
    letters, seconds = len(record.fields[1]), samples / rate
    if letters <= max(1, FASTEST * seconds):
        return record
    said = f"has a transcript of {counted(letters, 'letter')} for {seconds:.2f} seconds"
    return Problem(record.file, record.line, What.LONG, said)


def tagged(record: Record) -> Record | Problem:
    words, tags = (field.split() for field in record.fields)
    if len(words) != len(tags):
        said = f"{counted(len(words), 'word')} and {counted(len(tags), 'tag')}"
        return Problem(record.file, record.line, What.COUNTS, said)
    return Record((" ".join(words), " ".join(tags)), record.file, record.line)
