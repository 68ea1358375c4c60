"""Standard input line by line, as it comes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from io import UnsupportedOperation
from pathlib import Path
from select import select
from typing import TextIO

from headway.data.text_lines import MAX_LINE_BYTES, decode, unmarked
from headway.errors import UserError

NAME = Path("standard input")
READ_BYTES = 2**16


def read_batches(stream: TextIO, most: int) -> Iterator[list[str]]:
    """Lines without their ends: at once all that are there already, at most so many.

    It waits for a line only where there is none, so that each is answered before the next is typed.
    """
    batch, number = list[str](), 0
    for raw in arriving(stream):
        if raw is None or len(batch) == most:
            yield from [batch] if batch else []
            batch = []
        if raw is None:
            continue
        number += 1
        line = decode(unmarked(raw, NAME) if number == 1 else raw, NAME, number)
        if line.problem:
            yield from [batch] if batch else []
            raise UserError(f"line {number:,} of {NAME}: {line.problem.said}", do="give it texts in UTF-8")
        batch.append(line.bare)
    yield from [batch] if batch else []


def arriving(stream: TextIO) -> Iterator[bytes | None]:
    """The lines of a stream; None before the next one has to be waited for."""
    try:
        handle = stream.fileno()
    except UnsupportedOperation:  # all of it is in memory
        yield from (line.encode() for line in stream)
        return
    rest = b""
    while True:
        if not select([handle], [], [], 0)[0]:
            yield None
        data = os.read(handle, READ_BYTES)
        *lines, rest = (rest + data).split(b"\n")
        yield from (line + b"\n" for line in lines)
        if len(rest) > MAX_LINE_BYTES:
            raise UserError(f"{NAME} has a line of more than {MAX_LINE_BYTES:,} bytes", do="break it into lines")
        if not data:
            yield from [rest] if rest else []
            return
