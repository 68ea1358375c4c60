"""Texts of any length, in pieces: a file of text is one document.

The pieces of a document joined are its text, with every line end a \\n.  They are cut before a line, or inside a very
long line before a space, so that a tokenizer sees nearly the same as in the whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BufferedIOBase
from pathlib import Path

from headway.data.lines import CUT, Line, Problem, What, cut, decode, open_bytes, unmarked

PIECE = 2**16  # characters after which a piece ends where it may; at twice as many it ends anywhere


def read_document(file: Path) -> Iterator[tuple[int, str] | Problem]:
    """Pieces with the numbers of the lines where they begin."""
    parts: list[str] = []
    size = begin = 0
    for segment in segments(file):
        if isinstance(segment, Problem):
            yield segment
            continue
        number, text = segment
        if size >= PIECE and (size >= 2 * PIECE or not (text[:1].isspace() and parts[-1][-1:].isspace())):
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


def whole(line: Line, file: Path) -> tuple[int, str] | Problem:
    if "\0" in line.text:
        return Problem(file, line.number, What.NUL, f"a NUL character at place {line.text.index(chr(0)) + 1}")
    return line.number, f"{line.bare}\n" if line.text.endswith("\n") else line.text


def chunks(stream: BufferedIOBase) -> Iterator[bytes]:
    """Lines, those longer than a piece in several parts."""
    rest = b""
    while raw := stream.readline(PIECE):
        raw, rest = rest + raw, b""
        if not raw.endswith(b"\n") and len(raw) >= PIECE:
            end = parting(raw)
            raw, rest = raw[:end], raw[end:]
        yield raw
    if rest:
        yield rest


def parting(raw: bytes) -> int:
    """Where a line may be parted: before its last space, else before its last letter; \\r\\n is never parted."""
    space = raw.rfind(b" ")
    if space > 0:
        return space
    starts = (at for at in range(len(raw) - 1, len(raw) - 5, -1) if raw[at] & 0xC0 != 0x80)
    return next(starts, len(raw))
