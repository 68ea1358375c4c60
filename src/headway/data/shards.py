"""Token ids on disk, ready to be trained on: rows of one or more columns, mapped into memory, not read into it.

A folder holds for each column the ids of all rows one after the other (`0.tokens`, little-endian, two bytes each where
the vocabulary allows it) and where each row begins (`0.offsets`, R + 1 numbers of eight bytes); `index.json` says how
much of what, with the size and hash of each file.  It is written last and the folder is renamed into place when all
is on the disk, so a folder with that name is whole.

Axes:  R rows   N all tokens of a column
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from headway.data.digest import hash_of
from headway.data.keyed import Numbers
from headway.data.sink import ColumnSink, Stamp
from headway.errors import UserError
from headway.files import flush, read_json, write_json

FORMAT = "headway shards 1"
INDEX = "index.json"


class Shards:
    """Rows of token ids in a folder.  Opening compares sizes; `verify` compares every byte.

    A pickled one is the folder's name: whoever unpickles it maps the files again.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.index = Index.read(self.folder)
        numbers = range(self.index.columns)
        self.offsets = [mapped(self.folder / f"{c}.offsets", "<u8") for c in numbers]  # each R + 1
        self.tokens = [mapped(self.folder / f"{c}.tokens", dtype_for(self.index.vocab)) for c in numbers]  # each N
        for offsets, tokens in zip(self.offsets, self.tokens, strict=True):
            if len(offsets) != self.index.rows + 1 or offsets[0] != 0 or offsets[-1] != len(tokens):
                raise damaged(self.folder, "the offsets are not those of the tokens")

    def __reduce__(self) -> tuple[type[Shards], tuple[Path]]:
        return Shards, (self.folder,)

    def __len__(self) -> int:
        return self.index.rows

    @property
    def columns(self) -> int:
        return self.index.columns

    @property
    def vocab(self) -> int:
        return self.index.vocab

    def row(self, number: int) -> tuple[Numbers, ...]:
        """The ids of each column of a row."""
        if not 0 <= number < len(self):
            raise IndexError(f"row {number} of {len(self)}")
        pairs = zip(self.tokens, self.offsets, strict=True)
        return tuple(tokens[offsets[number] : offsets[number + 1]].astype(np.int64) for tokens, offsets in pairs)

    def lengths(self, column: int) -> Numbers:
        """The length of each row, R, without a look at the tokens."""
        return np.diff(self.offsets[column].astype(np.int64))

    def stream(self, column: int = 0) -> Stream:
        return Stream(self, column)

    def verify(self) -> None:
        """Reads every byte, and raises where one is not what was written."""
        for name, stamp in self.index.files.items():
            if hash_of(self.folder / name).hex() != stamp.sha256:
                raise damaged(self.folder, f"{name} is not what was written")


@dataclass(frozen=True, eq=False)
class Stream:
    """A column as one long text: `stream[a:b]` are its ids, N, whatever rows they belong to."""

    shards: Shards
    column: int

    def __len__(self) -> int:
        return len(self.shards.tokens[self.column])

    def __getitem__(self, span: slice) -> Numbers:
        return self.shards.tokens[self.column][span].astype(np.int64)

    def starts(self, begin: int, end: int) -> Numbers:
        """The positions from `begin` up to `end`, `end` excluded, where a row begins."""
        assert 0 <= begin <= end <= len(self), (begin, end)
        offsets = self.shards.offsets[self.column]
        first, last = np.searchsorted(offsets, np.array([begin, end], dtype=np.uint64))
        return np.unique(offsets[first:last]).astype(np.int64)  # a row without tokens begins where the next one does

    def pieces(self, begin: int, end: int) -> Numbers:
        """The lengths of the pieces of rows that a span is made of; they add up to its length."""
        return np.diff(np.unique(np.concatenate([[begin], self.starts(begin, end), [end]])))


def write_shards(folder: Path, rows: Iterable[Iterable[Iterable[int]]], columns: int, vocab: int) -> Shards:
    """Writes rows as they come; the folder is whole or not there, and must not be there before.

    A column may be any iterable of ids, so that a text of any size need not stand in memory.
    """
    if folder.exists():
        raise UserError(f"{folder} is there already", do="give another name, or remove it")
    part = beside(folder)
    try:
        part.mkdir(parents=True)
        fill(part, rows, columns, vocab)
        os.rename(part, folder)
        flush(folder.parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return Shards(folder)


def fill(folder: Path, rows: Iterable[Iterable[Iterable[int]]], columns: int, vocab: int) -> None:
    """Writes the files of each column, and the index when they are on the disk."""
    count = 0
    with ExitStack() as stack:
        sinks = [stack.enter_context(ColumnSink(folder, c, vocab, dtype_for(vocab))) for c in range(columns)]
        for row in rows:
            for sink, ids in zip(sinks, row, strict=True):
                sink.add(ids)
            count += 1
        files = {name: stamp for sink in sinks for name, stamp in sink.finish().items()}
    write_json(folder / INDEX, {"format": FORMAT, **asdict(Index(columns, count, vocab, files))})


@dataclass(frozen=True)
class Index:
    """What the folder holds, as `index.json` tells it."""

    columns: int
    rows: int
    vocab: int
    files: dict[str, Stamp]

    @staticmethod
    def read(folder: Path) -> Index:
        told = read_json(folder / INDEX)
        if told.get("format") != FORMAT:
            raise damaged(folder, f"{INDEX} does not say {FORMAT!r}")
        try:
            files = {name: Stamp(**stamp) for name, stamp in told["files"].items()}
            index = Index(int(told["columns"]), int(told["rows"]), int(told["vocab"]), files)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise damaged(folder, f"{INDEX} lacks what it should say") from None
        if set(files) != {f"{c}.{kind}" for c in range(index.columns) for kind in ("tokens", "offsets")}:
            raise damaged(folder, f"{INDEX} names other files")
        for name, stamp in files.items():
            if (found := size_of(folder / name)) != stamp.bytes:
                raise damaged(folder, f"{name} has {found} bytes of {stamp.bytes}")
        return index


def dtype_for(vocab: int) -> str:
    return "<u2" if vocab <= 2**16 else "<u4"


def mapped(path: Path, dtype: str) -> NDArray[np.unsignedinteger]:
    """A file as an array that is read where it is looked at; a file without bytes cannot be mapped."""
    if size_of(path) % np.dtype(dtype).itemsize:
        raise damaged(path.parent, f"{path.name} ends within a number")
    # a plain view: slices of np.memmap itself take five times as long
    return np.memmap(path, dtype, "r").view(np.ndarray) if size_of(path) else np.empty(0, dtype)


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def damaged(folder: Path, why: str) -> UserError:
    return UserError(f"{folder} is not a whole store of tokens: {why}", do="remove it and write it again")


def beside(folder: Path) -> Path:
    """A name for a folder on its way to this one, or from it: nobody else's, and never taken for whole."""
    return folder.with_name(f"{folder.name}.{uuid4().hex}.part")
