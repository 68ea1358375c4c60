"""Compressed files whose contents grow as texts and numbers do; what grows without measure is refused early."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from typing import BinaryIO, cast

from headway.errors import UserError

MAX_RATIO = 250  # bytes that a packed one may become, over WINDOW_BYTES; texts have 3 to 30
WINDOW_BYTES, PACKED_PIECE = 2**20, 2**12


class BoundedGzip(gzip.GzipFile):
    """Unpacks a file, as long as each part of it comes from enough packed bytes."""

    def __init__(self, file: BinaryIO, name: str):
        self.packed, self.seen, self.unpacked = SmallReads(file), 0, 0
        super().__init__(name, "rb", fileobj=cast(BinaryIO, self.packed))

    def readline(self, size: int | None = -1) -> bytes:
        return self.checked(super().readline(-1 if size is None else size))

    def read1(self, size: int = -1) -> bytes:
        return self.checked(super().read1(size))

    def read(self, size: int | None = -1) -> bytes:
        return self.checked(super().read(size))

    def close(self) -> None:
        super().close()
        self.packed.file.close()

    def checked(self, data: bytes) -> bytes:
        """The data, where what was unpacked lately came from enough packed bytes."""
        self.unpacked += len(data)
        if self.unpacked > WINDOW_BYTES:
            if self.unpacked > MAX_RATIO * (self.packed.count - self.seen):
                said = f"{self.name} is packed more than {MAX_RATIO} times, as no data is"
                raise UserError(said, do="unpack it with gunzip if you know what it holds")
            self.unpacked, self.seen = 0, self.packed.count
        return data


@dataclass
class SmallReads:
    """A file that is read by small pieces, whose bytes are counted."""

    file: BinaryIO
    count: int = 0

    def read(self, size: int) -> bytes:
        data = self.file.read(min(size, PACKED_PIECE))
        self.count += len(data)
        return data

    def seek(self, place: int, whence: int = 0) -> int:
        return self.file.seek(place, whence)

    def tell(self) -> int:
        return self.file.tell()

    def seekable(self) -> bool:
        return self.file.seekable()
