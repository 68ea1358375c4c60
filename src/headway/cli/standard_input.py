"""Standard input: line by line, as it comes, or as a file to train on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import sha256
from io import UnsupportedOperation
from pathlib import Path
from select import select
from tempfile import NamedTemporaryFile
from typing import BinaryIO, TextIO

from headway.data.text_lines import BOM, MAX_LINE_BYTES, decode, unmarked
from headway.errors import UserError

NAME = Path("standard input")
READ_BYTES, SPOOLED_BYTES = 2**16, 2**20  # read at once
DASH = "-"  # what stands for it among files


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


def spooled(stream: BinaryIO) -> Path:
    """A file in the cache with all that is piped in, named after its hash, so that a run finds it again.

    Lines of JSON are a .jsonl file, lines with tabs a table, all else is text.
    """
    from headway.data.shard_cache import cache_folder

    folder, hashed = cache_folder() / "standard-input", sha256()
    folder.mkdir(parents=True, exist_ok=True)
    first = b""
    with NamedTemporaryFile(dir=folder, prefix="unfinished-", delete=False) as part:
        try:
            while data := stream.read(SPOOLED_BYTES):
                first = first if first.strip() else data
                hashed.update(data)
                part.write(data)
            if not first.strip():
                raise UserError(f"{NAME} is empty", do="pipe texts in, or name a file")
        except BaseException:
            os.unlink(part.name)
            raise
    place = folder / f"standard-input-{hashed.hexdigest()[:16]}{suffix_of_text(first)}"
    os.replace(part.name, place)
    return place


def suffix_of_text(first: bytes) -> str:
    line = first.removeprefix(BOM).lstrip().partition(b"\n")[0]
    return ".jsonl" if line.startswith(b"{") else ".tsv" if b"\t" in line else ".txt"
