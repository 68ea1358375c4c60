"""All records of a data set at a glance, by hashes: which stand there twice, and which in another set too.

A record takes 28 bytes: two hashes of 64 bits, of all it says and of its source alone, its line and its file.  Among a
hundred million records the odds that any two different ones are taken for the same are one in four thousand.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from headway.data.sources import Record

Rows: TypeAlias = NDArray[np.int64]  # numbers of records, in the order in which they were read


class Survey:
    """Filled record by record; the pieces of a document are one record."""

    def __init__(self) -> None:
        self.wholes, self.sources, self.lines, self.owners = array("Q"), array("Q"), array("Q"), array("I")
        self.files: list[Path] = []
        self.text = blake2b()  # of the document that is being read

    def __len__(self) -> int:
        return len(self.wholes)

    def add(self, record: Record) -> None:
        if record.goes_on:
            self.text.update(record.fields[0].encode("utf-8"))
            self.wholes[-1] = self.sources[-1] = number(self.text.digest())
            return
        self.text = hashed(record.fields[:1])
        source = number(self.text.digest())
        self.sources.append(source)
        self.wholes.append(source if len(record.fields) == 1 else number(hashed(record.fields).digest()))
        self.lines.append(record.line)
        if not self.files or self.files[-1] != record.file:
            self.files.append(record.file)
        self.owners.append(len(self.files) - 1)

    def place(self, row: int) -> tuple[Path, int]:
        return self.files[self.owners[row]], self.lines[row]

    def duplicates(self) -> tuple[Rows, Rows]:
        """Records that say what an earlier one said, and those earlier ones."""
        return repeated(self.wholes)

    def others(self) -> tuple[Rows, Rows]:
        """Records with the source of an earlier one and another target, and the first with that source."""
        again, first = repeated(self.sources)
        duplicates, _ = repeated(self.wholes)
        fresh = ~np.isin(again, duplicates, assume_unique=True)
        return again[fresh], first[fresh]

    def shared(self, other: Survey) -> tuple[Rows, Rows]:
        """Records whose source stands in the other set too, and where it stands there first."""
        theirs, first = np.unique(numbers(other.sources), return_index=True)
        ours = numbers(self.sources)
        at = np.minimum(np.searchsorted(theirs, ours), max(len(theirs) - 1, 0))
        both = np.flatnonzero(theirs[at] == ours) if len(theirs) else np.empty(0, np.int64)
        return both, first[at[both]] if len(both) else both


def repeated(hashes: array[int]) -> tuple[Rows, Rows]:
    """Rows whose hash an earlier row has, and the first such row; besides the hashes, 25 bytes a row while it looks."""
    order = np.argsort(numbers(hashes), kind="stable")
    values = numbers(hashes)[order]
    same = np.concatenate([[False], values[1:] == values[:-1]])[: len(order)]
    places, starts = np.flatnonzero(same), np.flatnonzero(~same)
    again, first = order[places], order[starts[np.searchsorted(starts, places) - 1]]
    in_order = np.argsort(again)
    return again[in_order], first[in_order]


def numbers(hashes: array[int]) -> NDArray[np.uint64]:
    return np.frombuffer(hashes, dtype=np.uint64)


def hashed(fields: Sequence[str]) -> blake2b:
    """A hash that can go on; NUL, which no field holds, stands between fields."""
    return blake2b("\0".join(fields).encode("utf-8"), digest_size=8)


def number(digest: bytes) -> int:
    return int.from_bytes(digest, "little")
