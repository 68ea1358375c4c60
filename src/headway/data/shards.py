"""Token ids on disk, ready to be trained on: rows of one or more columns.

A folder holds for each column the ids of all rows one after the other (`0.tokens`, little-endian, two bytes each where
the vocabulary allows it) and where each row begins (`0.offsets`, R + 1 numbers of eight bytes); `index.json` has the
counts, with the size and hash of each file.  It is written last and the folder is renamed into place when all is on the
disk, so a folder with that name is whole.

Ids are read where they are asked for, and only offsets are mapped: each page of a mapped file that was ever looked at
counts as memory of the process, and an epoch looks at all of them.

Axes:  R rows   N all tokens of a column
"""

from __future__ import annotations

import hashlib
import os
import shutil
import weakref
from array import array
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from headway.data.order import Numbers
from headway.errors import UserError
from headway.system import flush, read_json, write_json

if TYPE_CHECKING:
    from types import TracebackType


BLOCK_IDS = 2**16  # ids that are taken from an iterable at once
BUFFERED_IDS = 2**18  # ids that wait to be written: 2 MB
FORMAT = "headway shards 1"
INDEX = "index.json"


class Shards:
    """Rows of token ids in a folder.  Opening compares sizes; `verify` compares every byte.

    A pickled one is the folder's name: whoever unpickles it maps the files again.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.columns, self.rows, self.vocab, self.hashes = read_index(self.folder)
        numbers = range(self.columns)
        self.offsets = [mapped(self.folder / f"{c}.offsets", "<u8") for c in numbers]  # each R + 1
        self.tokens = [TokenFile(self.folder / f"{c}.tokens", dtype_for(self.vocab)) for c in numbers]  # each N
        for offsets, tokens in zip(self.offsets, self.tokens, strict=True):
            if len(offsets) != self.rows + 1 or offsets[0] != 0 or offsets[-1] != len(tokens):
                raise damaged(self.folder, "the offsets are not those of the tokens")

    def __reduce__(self) -> tuple[type[Shards], tuple[Path]]:
        return Shards, (self.folder,)

    def __len__(self) -> int:
        return self.rows

    def row(self, number: int) -> tuple[Numbers, ...]:
        """The ids of each column of a row."""
        if not 0 <= number < len(self):
            raise IndexError(f"row {number} of {len(self)}")
        pairs = zip(self.tokens, self.offsets, strict=True)
        return tuple(tokens[int(offsets[number]) : int(offsets[number + 1])] for tokens, offsets in pairs)

    def lengths(self, column: int) -> Numbers:
        """The length of each row, R, without a look at the tokens."""
        return np.diff(self.offsets[column].astype(np.int64))

    def stream(self, column: int = 0) -> TokenColumn:
        return TokenColumn(self, column)

    def verify(self) -> None:
        """Reads every byte, and raises where one is not what was written."""
        for name, sha256 in self.hashes.items():
            if hash_of(self.folder / name).hex() != sha256:
                raise damaged(self.folder, f"{name} is not what was written")


@dataclass(frozen=True, eq=False)
class TokenColumn:
    """A column as one stream: `stream[a:b]` are its ids, N, across rows."""

    shards: Shards
    column: int

    def __len__(self) -> int:
        return len(self.shards.tokens[self.column])

    def __getitem__(self, span: slice) -> Numbers:
        return self.shards.tokens[self.column][span]

    def starts(self, begin: int, end: int) -> Numbers:
        """The positions from `begin` up to `end`, `end` excluded, where a row begins."""
        assert 0 <= begin <= end <= len(self), (begin, end)
        offsets = self.shards.offsets[self.column]
        first, last = np.searchsorted(offsets, np.array([begin, end], dtype=np.uint64))
        return np.unique(offsets[first:last]).astype(np.int64)  # a row without tokens begins where the next one does

    def pieces(self, begin: int, end: int) -> Numbers:
        """The lengths of the pieces of rows that a span is made of; they add up to its length."""
        return np.diff(np.unique(np.concatenate([[begin], self.starts(begin, end), [end]])))


def read_index(folder: Path) -> tuple[int, int, int, dict[str, str]]:
    """Columns, rows, vocabulary, and the hashes of the files, whose sizes are as `index.json` says."""
    index = read_json(folder / INDEX)
    if index.get("format") != FORMAT:
        raise damaged(folder, f"{INDEX} does not say {FORMAT!r}")
    try:
        columns, rows, vocab = (int(index[name]) for name in ("columns", "rows", "vocab"))
        sizes = {name: stamp["bytes"] for name, stamp in index["files"].items()}
        hashes = {name: stamp["sha256"] for name, stamp in index["files"].items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise damaged(folder, f"{INDEX} lacks what it should say") from None
    if set(sizes) != {f"{c}.{kind}" for c in range(columns) for kind in ("tokens", "offsets")}:
        raise damaged(folder, f"{INDEX} names other files")
    for name, size in sizes.items():
        if (found := size_of(folder / name)) != size:
            raise damaged(folder, f"{name} has {found} bytes of {size}")
    return columns, rows, vocab, hashes


class TokenFile:
    """The ids of a column, N, in a file: `ids[a:b]` reads these."""

    def __init__(self, path: Path, dtype: str) -> None:
        self.path, self.dtype = path, np.dtype(dtype)
        self.count = numbers_in(path, self.dtype)
        self.file = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self.file)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, span: slice) -> Numbers:
        first, last, _ = span.indices(self.count)
        size = max(0, last - first) * self.dtype.itemsize
        read = os.pread(self.file, size, first * self.dtype.itemsize)
        if len(read) != size:
            raise damaged(self.path.parent, f"{self.path.name} has become shorter")
        return np.frombuffer(read, self.dtype).astype(np.int64)


def numbers_in(path: Path, dtype: np.dtype[Any]) -> int:
    """How many numbers a file holds."""
    if size_of(path) % dtype.itemsize:
        raise damaged(path.parent, f"{path.name} ends within a number")
    return size_of(path) // dtype.itemsize


def mapped(path: Path, dtype: str) -> NDArray[np.unsignedinteger]:
    """A file as an array that is read where it is looked at; a file without bytes cannot be mapped."""
    # a plain view: slices of np.memmap itself take five times as long
    return np.memmap(path, dtype, "r").view(np.ndarray) if numbers_in(path, np.dtype(dtype)) else np.empty(0, dtype)


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def damaged(folder: Path, why: str) -> UserError:
    return UserError(f"{folder} is not a whole store of tokens: {why}", do="remove it and write it again")


def dtype_for(vocab: int) -> str:
    return "<u2" if vocab <= 2**16 else "<u4"


def write_shards(folder: Path, rows: Iterable[Iterable[Iterable[int]]], columns: int, vocab: int) -> Shards:
    """Writes rows as they come; the folder is whole or not there, and must not be there before.

    A column may be any iterable of ids, so that a text of any size need not stand in memory.
    """
    if folder.exists():
        raise UserError(f"{folder} is there already", do="give another name, or remove it")
    part = beside(folder)
    try:
        part.mkdir(parents=True)
        count = 0
        with ExitStack() as stack:
            sinks = [stack.enter_context(ColumnSink(part, c, vocab)) for c in range(columns)]
            for row in rows:
                for sink, ids in zip(sinks, row, strict=True):
                    sink.add(ids)
                count += 1
            files = {name: stamp for sink in sinks for name, stamp in sink.finish().items()}
        index = {"format": FORMAT, "columns": columns, "rows": count, "vocab": vocab, "files": files}
        write_json(part / INDEX, index)
        os.rename(part, folder)
        flush(folder.parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return Shards(folder)


def beside(folder: Path) -> Path:
    """A unique temporary name beside a folder, which is never taken for a whole one."""
    return folder.with_name(f"{folder.name}.{uuid4().hex}.part")


class ColumnSink:
    """Takes rows of ids; `finish` waits for the disk and returns the stamps of both files."""

    def __init__(self, folder: Path, number: int, vocab: int) -> None:
        self.vocab = vocab
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
            if len(self.ids) >= BUFFERED_IDS:
                self.write_ids()
        self.ends.append(self.total)
        if len(self.ends) >= BUFFERED_IDS:
            self.write_ends()

    def write_ids(self) -> None:
        ids = np.array(self.ids, dtype=np.int64)
        wrong = ids[(ids < 0) | (ids >= self.vocab)]
        if len(wrong):
            raise UserError(f"token {wrong[0]} is not in the vocabulary", allowed=f"0 to {self.vocab - 1}")
        self.tokens.write(ids.astype(dtype_for(self.vocab)))
        self.ids = array("q")

    def write_ends(self) -> None:
        self.offsets.write(np.array(self.ends, dtype="<u8"))
        self.ends = array("q")

    def finish(self) -> dict[str, dict[str, int | str]]:
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

    def finish(self) -> dict[str, int | str]:
        with naming(self.path):
            self.file.flush()
            os.fsync(self.file.fileno())
        return {"bytes": self.bytes, "sha256": self.hash.hexdigest()}


def blocks(ids: Iterable[int]) -> Iterator[array[int]]:
    """The ids as arrays of bounded size."""
    if isinstance(ids, np.ndarray):  # going through it number by number takes forty times as long
        for start in range(0, len(ids), BLOCK_IDS):
            yield array("q", ids[start : start + BLOCK_IDS].astype(np.int64, casting="same_kind").tobytes())
        return
    ids = iter(ids)
    while block := array("q", islice(ids, BLOCK_IDS)):
        yield block


@contextmanager
def naming(path: Path) -> Generator[None]:
    """A full disk is reported by a write without the file's name; this adds it."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def hash_of(path: Path) -> bytes:
    """The SHA-256 of a file; what is no file is not opened, for a pipe would never end."""
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is {'a folder' if path.is_dir() else 'a pipe or a device'}", allowed="a file")
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except FileNotFoundError:
        raise UserError(f"{path} does not exist") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None


def digest(files: Iterable[Path], *texts: str | bytes) -> str:
    """64 hexadecimal digits for the bytes of these files, in this order, and these texts; names and dates do not count.

    Files are read piece by piece.  Their sizes and dates are not trusted instead: an edit may keep both.
    """
    encoded = (text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text for text in texts)
    parts = [b"file " + hash_of(path) for path in files]
    parts += [b"text " + hashlib.sha256(data).digest() for data in encoded]
    return hashlib.sha256(b"".join(parts)).hexdigest()
