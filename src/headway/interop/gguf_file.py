"""GGUF, the file of llama.cpp: named values, then tensors in blocks; little-endian.

    "GGUF"  version u32  tensors u64  values u64
    value         key  type u32  content; a text is its length u64 and its bytes, an array its type u32 and length u64
    tensor        name  axes u32  sizes u64, fastest first  type of blocks u32  offset u64
    padding to the alignment, then the blocks of each tensor at its offset from there

Every length is compared with what is left of the file before anything is read or made of it.  The file is mapped; a
tensor is dequantised when it is asked for.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from headway.errors import UserError
from headway.interop.gguf_blocks import BLOCKS, BlockType
from headway.system import gibibytes, memory_limit, regular, write_whole

MAGIC, VERSIONS, ALIGNMENT = b"GGUF", (2, 3), 32
NUMBERS = {0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8"}
TEXT, ARRAY = 8, 9
MAX_VALUES, MAX_TENSORS, MAX_TEXTS, MAX_AXES = 10_000, 100_000, 2**21, 4
MAX_ALIGNMENT = 2**16
CHUNK = 2**16  # blocks that are dequantised at a time

Shape = tuple[int, ...]
T = TypeVar("T")


class StoredTensor(NamedTuple):
    """A tensor's blocks, as they lie in the file."""

    kind: BlockType
    shape: Shape
    data: np.ndarray[Any, np.dtype[np.uint8]]

    def load(self) -> Tensor:
        """F32, F16 and BF16 as they are, without a copy; all others dequantised to float32."""
        if self.kind.dtype is not None:
            return torch.from_numpy(self.data).view(self.kind.dtype).reshape(self.shape)
        assert self.kind.dequantise is not None
        blocks = self.data.reshape(-1, self.kind.bytes)
        found = np.empty((len(blocks), self.kind.size), np.float32)
        for start in range(0, len(blocks), CHUNK):
            found[start : start + CHUNK] = self.kind.dequantise(blocks[start : start + CHUNK])
        return torch.from_numpy(found).reshape(self.shape)


@dataclass(frozen=True)
class GGUF:
    """A file's values and tensors, by their names there."""

    values: Mapping[str, Any]
    tensors: Mapping[str, StoredTensor]

    def load_tensors(self) -> dict[str, Tensor]:
        """All tensors; refused where they do not fit into memory."""
        needed = sum(4 * prod(one.shape) for one in self.tensors.values() if one.kind.dtype is None)
        if (limit := memory_limit()) is not None and needed > limit:
            said = f"the weights of this model take {gibibytes(needed)} of memory, and there are {gibibytes(limit)}"
            raise UserError(said, do="use a smaller model")
        return {name: one.load() for name, one in self.tensors.items()}


def read_gguf(path: Path) -> GGUF:
    if regular(path).stat().st_size == 0:
        raise UserError(f"{path} is empty", do="fetch it again")
    mapped = np.memmap(path, np.uint8, mode="c")  # copied where written, which torch wants of what it is given
    reader = Reader(path, mapped.data)
    if (magic := bytes(reader.take(4))) != MAGIC:
        raise UserError(f"{path} is no GGUF: it begins with {magic!r}", allowed=repr(MAGIC))
    version = reader.number("<u4")
    if version not in VERSIONS:
        big = version in [int.from_bytes(one.to_bytes(4, "big"), "little") for one in VERSIONS]
        said = f"{path} is big-endian" if big else f"{path} is GGUF of version {version}"
        raise UserError(said, allowed="little-endian, version 2 or 3", do="convert the model anew with llama.cpp")
    tensors, values = reader.count(32, MAX_TENSORS, "tensors"), reader.count(13, MAX_VALUES, "values")
    named = reader.named(values, lambda: reader.value(reader.number("<u4")))
    infos = reader.named(tensors, reader.tensor)
    alignment = named.get("general.alignment", ALIGNMENT)
    if not isinstance(alignment, int) or alignment % 8 or not 0 < alignment <= MAX_ALIGNMENT:
        raise UserError(
            f"{path}: general.alignment is {alignment!r:.60}", allowed=f"a multiple of 8 to {MAX_ALIGNMENT}"
        )
    start = reader.at + -reader.at % alignment
    found = dict[str, StoredTensor]()
    for name, (kind, shape, offset) in infos.items():
        size = prod(shape) // kind.size * kind.bytes
        if offset % alignment or start + offset + size > len(mapped):
            said = f"{path}: the tensor {name!r:.80} of {size:,} bytes at {offset:,} does not lie within the file"
            raise UserError(said, do="fetch it again")
        found[name] = StoredTensor(kind, shape, mapped[start + offset : start + offset + size])
    return GGUF(named, found)


class Reader:
    """The header of a file, read from its beginning on."""

    def __init__(self, path: Path, data: memoryview):
        self.path, self.data, self.at = path, data, 0

    def take(self, size: int) -> memoryview:
        if size > len(self.data) - self.at:
            said = f"{self.path} ends early: {size:,} bytes are said to follow where {len(self.data) - self.at:,} do"
            raise UserError(said, do="fetch it again")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, kind: str) -> Any:
        return np.frombuffer(self.take(np.dtype(kind).itemsize), kind)[0].item()

    def count(self, least: int, most: int, what: str) -> int:
        """How many things follow, of `least` bytes or more each."""
        count = self.number("<u8")
        if count > min(most, (len(self.data) - self.at) // least):
            said = f"{self.path} says that it has {count:,} {what}, and is {len(self.data):,} bytes long"
            raise UserError(said, allowed=f"at most {most:,}, all within the file", do="fetch it again")
        return count

    def text(self) -> str:
        found = self.take(self.number("<u8"))
        try:
            return bytes(found).decode()
        except UnicodeDecodeError:
            raise UserError(f"{self.path}: {bytes(found[:40])!r} is no text in UTF-8") from None

    def named(self, count: int, read: Callable[[], T]) -> dict[str, T]:
        found = dict[str, T]()
        for _ in range(count):
            if (name := self.text()) in found:
                raise UserError(f"{self.path} has {name!r:.80} twice")
            found[name] = read()
        return found

    def value(self, kind: int) -> Any:
        if kind == TEXT:
            return self.text()
        if kind != ARRAY:
            return self.number(self.type_of(kind))
        inner = self.number("<u4")
        if inner == TEXT:
            return [self.text() for _ in range(self.count(8, MAX_TEXTS, "texts in one array"))]
        dtype = np.dtype(self.type_of(inner))
        return np.frombuffer(self.take(self.number("<u8") * dtype.itemsize), dtype)

    def type_of(self, kind: int) -> str:
        if kind not in NUMBERS:
            what = "an array within an array" if kind == ARRAY else f"a value of type {kind}"
            raise UserError(f"{self.path} holds {what}", allowed="numbers, texts and arrays of these")
        return NUMBERS[kind]

    def tensor(self) -> tuple[BlockType, Shape, int]:
        axes = self.number("<u4")
        if not 1 <= axes <= MAX_AXES:
            raise UserError(f"{self.path} has a tensor of {axes:,} axes", allowed=f"1 to {MAX_AXES}")
        shape = tuple(reversed([self.number("<u8") for _ in range(axes)]))
        kind = self.number("<u4")
        if kind not in BLOCKS:
            allowed = ", ".join(one.name for one in BLOCKS.values())
            do = "take a file of the same model in one of these"
            raise UserError(f"{self.path} holds tensors of ggml's type {kind}", allowed=allowed, do=do)
        if shape[-1] % BLOCKS[kind].size or not all(shape):
            said = f"{self.path} has a tensor of shape {shape} in {BLOCKS[kind].name}"
            raise UserError(said, allowed=f"rows of a multiple of {BLOCKS[kind].size}")
        return BLOCKS[kind], shape, self.number("<u8")


def write_gguf(path: Path, values: Mapping[str, object], tensors: Mapping[str, Tensor], matrices: BlockType) -> None:
    """A whole file or none.  Matrices are `matrices` where their rows are whole blocks; all else is float32."""
    kinds = {name: matrices if is_matrix(name, x, matrices) else BLOCKS[0] for name, x in tensors.items()}
    header = MAGIC + struct.pack("<IQQ", VERSIONS[-1], len(tensors), len(values))
    header += b"".join(text_bytes(name) + value_bytes(value) for name, value in values.items())
    offset = 0
    for name, x in tensors.items():
        sizes = struct.pack(f"<I{x.dim()}Q", x.dim(), *reversed(x.shape))
        header += text_bytes(name) + sizes + struct.pack("<IQ", kinds[name].number, offset)
        offset += padded(x.numel() // kinds[name].size * kinds[name].bytes)

    def write(part: Path) -> None:
        with part.open("wb") as file:
            file.write(header.ljust(padded(len(header)), b"\0"))
            for name, x in tensors.items():
                blocks = kinds[name].store(x)
                file.write(blocks.ljust(padded(len(blocks)), b"\0"))

    write_whole(path, write)


def is_matrix(name: str, x: Tensor, kind: BlockType) -> bool:
    """Whether a tensor is stored in `kind`; llama.cpp adds positions in float32."""
    return x.dim() > 1 and x.shape[-1] % kind.size == 0 and not name.startswith("position_embd")


def padded(size: int) -> int:
    return size + -size % ALIGNMENT


def text_bytes(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def value_bytes(value: object) -> bytes:
    """A value behind its type; whole numbers are u32 and others f32, as llama.cpp expects its own."""
    match value:
        case bool():
            return struct.pack("<I?", 7, value)
        case int():
            return struct.pack("<II", 4, value)
        case float():
            return struct.pack("<If", 6, value)
        case str():
            return struct.pack("<I", TEXT) + text_bytes(value)
        case np.ndarray():
            kind = next(number for number, name in NUMBERS.items() if np.dtype(name) == value.dtype)
            return struct.pack("<IIQ", ARRAY, kind, len(value)) + value.tobytes()
        case list():
            return struct.pack("<IIQ", ARRAY, TEXT, len(value)) + b"".join(text_bytes(str(one)) for one in value)
        case _:
            raise AssertionError(f"{value!r:.60} has no type in GGUF")
