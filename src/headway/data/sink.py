"""One column of token ids on its way to the disk: gathered in small arrays, checked, hashed and written.

Two files: the ids of all rows one after the other, and where each row begins.
"""

from __future__ import annotations

import hashlib
import os
from array import array
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headway.errors import UserError

if TYPE_CHECKING:
    from types import TracebackType

BLOCK = 2**16  # ids that are taken from an iterable at once
HELD = 2**18  # ids that wait to be written: 2 MB


@dataclass(frozen=True)
class Stamp:
    """The size of a file and its SHA-256."""

    bytes: int
    sha256: str


class ColumnSink:
    """Takes rows of ids; `finish` waits for the disk and returns the stamps of both files."""

    def __init__(self, folder: Path, number: int, vocab: int, dtype: str) -> None:
        self.vocab, self.dtype = vocab, dtype
        self.ids, self.ends = array("q"), array("q", [0])
        self.total = 0
        self.tokens = FileSink(folder / f"{number}.tokens")
        self.offsets = FileSink(folder / f"{number}.offsets")

    def __enter__(self) -> ColumnSink:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.tokens.file.close()
        self.offsets.file.close()

    def add(self, ids: Iterable[int]) -> None:
        for block in blocks(ids):
            self.ids.extend(block)
            self.total += len(block)
            if len(self.ids) >= HELD:
                self.write_ids()
        self.ends.append(self.total)
        if len(self.ends) >= HELD:
            self.write_ends()

    def write_ids(self) -> None:
        ids = np.array(self.ids, dtype=np.int64)
        wrong = ids[(ids < 0) | (ids >= self.vocab)]
        if len(wrong):
            raise UserError(f"token {wrong[0]} is not in the vocabulary", allowed=f"0 to {self.vocab - 1}")
        self.tokens.write(ids.astype(self.dtype))
        self.ids = array("q")

    def write_ends(self) -> None:
        self.offsets.write(np.array(self.ends, dtype="<u8"))
        self.ends = array("q")

    def finish(self) -> dict[str, Stamp]:
        self.write_ids()
        self.write_ends()
        return {sink.path.name: sink.finish() for sink in (self.tokens, self.offsets)}


class FileSink:
    """A file that is written piece by piece and knows its size and hash."""

    def __init__(self, path: Path) -> None:
        self.path, self.file = path, path.open("xb")
        self.hash, self.bytes = hashlib.sha256(), 0

    def write(self, values: NDArray[np.unsignedinteger]) -> None:
        data = values.tobytes()
        with naming(self.path):
            self.file.write(data)
        self.hash.update(data)
        self.bytes += len(data)

    def finish(self) -> Stamp:
        with naming(self.path):
            self.file.flush()
            os.fsync(self.file.fileno())
        return Stamp(self.bytes, self.hash.hexdigest())


def blocks(ids: Iterable[int]) -> Iterator[array[int]]:
    """The ids as arrays of bounded size."""
    if isinstance(ids, np.ndarray):  # going through it number by number takes forty times as long
        for start in range(0, len(ids), BLOCK):
            yield array("q", ids[start : start + BLOCK].astype(np.int64, casting="same_kind").tobytes())
        return
    ids = iter(ids)
    while block := array("q", islice(ids, BLOCK)):
        yield block


@contextmanager
def naming(path: Path) -> Generator[None]:
    """A full disk is reported by a write without the file's name; this adds it."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise
