"""Records and where they come from: here two parallel files and files of text; tables are in `table.py`.

All are read as a stream.  A file of text is one document of any length.  It comes in pieces that, joined, are its
text, with every line end a \\n.  They are cut before a line, or inside a very long line before a space, so that a
tokenizer sees nearly the same as in the whole.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedIOBase
from itertools import zip_longest
from pathlib import Path

from headway.data.archives import MediaLocation
from headway.data.text_lines import (
    CUT,
    Flaw,
    Problem,
    TextLine,
    counted,
    cut,
    decode,
    open_bytes,
    read_lines,
    unmarked,
)

PIECE_CHARACTERS = 2**16  # characters after which a piece ends where it may; at twice as many it ends anywhere


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

    @property
    def name(self) -> str:
        """What a person knows it by: its text, or the name of its file."""
        return self.fields[0] if self.place is None else str(self.place.path)

    @property
    def handed(self) -> tuple[str, ...]:
        """What a task is handed: the fields, and of an image or a sound its place and extent instead of the hash."""
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
    def side(self, field: int) -> tuple[Path, str]:
        """The file of a field and what a person calls it."""


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
            else:
                yield self.unequal(left, right, rest=sum(1 for _ in pairs))

    def unequal(self, left: TextLine | None, right: TextLine | None, rest: int) -> Problem:
        longer, other, line = (self.source, self.target, left) if left else (self.target, self.source, right)
        assert line is not None
        said = f"{counted(rest + 1, 'line')} more than {other} has ({line.number - 1:,})"
        return Problem(longer, line.number, Flaw.UNPAIRED, said, lines=rest + 1)

    def side(self, field: int) -> tuple[Path, str]:
        return self.files[field], ("the source", "the target")[field]


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

    def side(self, field: int) -> tuple[Path, str]:
        return self.file, "the text"


def read_document(file: Path) -> Iterator[tuple[int, str] | Problem]:
    """Pieces with the numbers of the lines where they begin."""
    parts: list[str] = []
    size = begin = 0
    for segment in segments(file):
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


def segments(file: Path) -> Iterator[tuple[int, str] | Problem]:
    """Lines with their ends, and parts of very long lines."""
    number, first = 1, True
    with open_bytes(file) as stream:
        try:
            for raw in chunks(stream):
                line = decode(unmarked(raw, file) if first else raw, file, number)
                first = False
                yield line.problem or whole(line, file)
                number += raw.endswith(b"\n")
        except CUT as error:
            yield cut(file, number, error)


def whole(line: TextLine, file: Path) -> tuple[int, str] | Problem:
    if "\0" in line.text:
        return Problem(file, line.number, Flaw.NUL, f"a NUL character at position {line.text.index(chr(0)) + 1}")
    return line.number, f"{line.bare}\n" if line.text.endswith("\n") else line.text


def chunks(stream: BufferedIOBase) -> Iterator[bytes]:
    """Lines, those longer than a piece in several parts."""
    rest = b""
    while raw := stream.readline(PIECE_CHARACTERS):
        raw, rest = rest + raw, b""
        if not raw.endswith(b"\n") and len(raw) >= PIECE_CHARACTERS:
            end = parting(raw)
            raw, rest = raw[:end], raw[end:]
        yield raw
    if rest:
        yield rest


def parting(raw: bytes) -> int:
    """Where a line may be cut: before its last space, else before its last character; \\r\\n is never cut."""
    space = raw.rfind(b" ")
    if space > 0:
        return space
    starts = (at for at in range(len(raw) - 1, len(raw) - 5, -1) if raw[at] & 0xC0 != 0x80)
    return next(starts, len(raw))
