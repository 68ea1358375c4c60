"""IDX files, as MNIST and its family use them: images of one size and their labels, each file optionally gzipped.

A header of big-endian numbers (two zeros, the type of the values, the number of axes, the length of each) stands before
the values.  They are memory-mapped; a gzipped file is unpacked once into the user's cache folder.  Images and labels
belong together by name: train-images-idx3-ubyte and train-labels-idx1-ubyte, t10k-… for the test set.

Axes:  N images   H height   W width   C channels
"""

from __future__ import annotations

import gzip
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from io import BufferedIOBase
from itertools import repeat
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headway.data.kinds import DataKind
from headway.data.records import DataQuery, RecognisedData, Record, RecordSource
from headway.data.text_lines import CUT, GZIP, MediaLocation, Problem
from headway.errors import UserError, counted, listed
from headway.system import write_whole

BYTES = 0x08  # the type of values that is read: unsigned bytes
MAX_BYTES = 2**34  # bytes of values that a header may promise
IMAGE_FILE = re.compile(r"images?[-_.]idx[34]")


@dataclass(frozen=True)
class Idx(RecordSource):
    """Images, numbered from 1, and their labels, where these are wanted."""

    images: Path
    labels: Path | None

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.images,) if self.labels is None else (self.images, self.labels)

    def read(self) -> Iterator[Record | Problem]:
        values = read_idx(self.images)
        shape, start = values.shape[1:], header(self.images).start
        for number, (image, said) in enumerate(zip(values, self.said(len(values)), strict=True), start=1):
            content = blake2b(image.tobytes(), digest_size=16).hexdigest()
            place = place_at(self.images, number, start, shape)
            yield Record((content, *said), self.images, number, place=place, extent=shape[:2])

    def said(self, count: int) -> Iterator[tuple[str, ...]]:
        """What is said about each of so many images."""
        if self.labels is None:
            return repeat((), count)
        return ((str(label),) for label in read_idx(self.labels).tolist())

    def field_name(self, field: int) -> str:
        return ("the image", "the label")[field]


def place_at(file: Path, number: int, start: int, shape: tuple[int, ...]) -> MediaLocation:
    """Where an image of a file is, counted from 1; people call it FILE/NUMBER."""
    size = int(np.prod(shape))
    return MediaLocation(file, str(number), start + (number - 1) * size, size, shape)


def numbered(path: Path) -> MediaLocation | None:
    """The image of an IDX file that FILE/NUMBER names; None for other paths."""
    if not (path.name.isdecimal() and path.parent.is_file()):
        return None
    values, number = read_idx(path.parent), int(path.name)
    if not 1 <= number <= len(values):
        raise UserError(f"{path.parent} has no image {number}", allowed=f"1 to {len(values):,}")
    return place_at(path.parent, number, header(path.parent).start, values.shape[1:])


@dataclass(frozen=True)
class IdxHeader:
    shape: tuple[int, ...]
    start: int  # of the values


def idx_source(images: Path, labels: Path | None) -> Idx:
    """Images, and labels that belong to them."""
    found = header(images).shape
    if len(found) not in (3, 4) or (len(found) == 4 and found[3] not in (1, 3)):
        raise UserError(
            f"{images} has axes of {shape_text(found)}", allowed="images of one or three channels: N H W or N H W C"
        )
    if 0 in found:
        raise UserError(f"{images} has no images")
    if labels is not None:
        check_labels(labels, images, found[0])
    return Idx(images, labels)


def check_labels(labels: Path, images: Path, count: int) -> None:
    named = header(labels).shape
    if len(named) != 1:
        raise UserError(f"{labels} has axes of {shape_text(named)}", allowed="one label for each image")
    if count != named[0]:
        raise UserError(f"{images} has {counted(count, 'image')} and {labels} {counted(named[0], 'label')}")


def pixels(place: MediaLocation) -> NDArray[np.uint8]:
    """The values at a place that has a shape."""
    start = place.start - 4 * (2 + len(place.shape))  # behind the header, which has one axis more
    return read_idx(place.file).reshape(-1)[start : start + (place.size or 0)].reshape(place.shape)


def read_idx(file: Path) -> NDArray[np.uint8]:
    """All values of a file, mapped."""
    stamp = file.stat()
    return mapped(file, stamp.st_size, stamp.st_mtime_ns)


def header(file: Path) -> IdxHeader:
    """What a file says that it holds; a UserError where it is no IDX file of bytes."""
    with bytes_of(file) as stream:
        begin = read_some(stream, 4)
        if len(begin) < 4 or begin[:2] != b"\0\0" or begin[3] == 0:
            raise UserError(f"{file} is no IDX file")
        if begin[2] != BYTES:
            raise UserError(f"{file} holds values of type 0x{begin[2]:02X}", allowed="0x08, unsigned bytes")
        rest = read_some(stream, 4 * begin[3])
        if len(rest) < 4 * begin[3]:
            raise UserError(f"{file} ends within its header")
    shape = struct.unpack(f">{begin[3]}I", rest)
    if int(np.prod([float(length) for length in shape])) > MAX_BYTES:
        raise UserError(f"{file} promises {shape_text(shape)} values", allowed=f"{MAX_BYTES:,} at most")
    return IdxHeader(shape, 4 + 4 * begin[3])


@lru_cache(16)
def mapped(file: Path, size: int, changed: int) -> NDArray[np.uint8]:
    """The values of a file of this size that was last changed then."""
    head = header(file)
    promised = int(np.prod(head.shape, dtype=np.int64))
    plain = unpacked(file, head.start + promised) if is_packed(file) else file
    held = plain.stat().st_size - head.start
    if held != promised:
        raise UserError(f"{file} holds {held:,} bytes where its header promises {promised:,}", do="get the file again")
    if not promised:
        return np.empty(head.shape, np.uint8)
    return np.memmap(plain, np.uint8, "r", head.start).view(np.ndarray).reshape(head.shape)


def unpacked(file: Path, size: int) -> Path:
    """A packed file as a plain one in the cache; no more than one byte beyond `size` is ever written."""
    from headway.data.shards import cache_folder, digest

    folder = cache_folder() / "unpacked"
    plain = folder / digest((file,), "idx")
    if plain.exists() and plain.stat().st_size >= size:
        return plain
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(plain, lambda part: unpack(file, part, size))
    return plain


def unpack(file: Path, part: Path, size: int) -> None:
    """Writes what is packed into `part`, and refuses an archive that is not whole."""
    done = 0
    with bytes_of(file) as stream, part.open("wb") as out:
        try:
            # read1: read(n) of a damaged archive gives nothing of the last n bytes
            while done <= size and (data := stream.read1(min(size + 1 - done, 2**20))):
                done += out.write(data)
        except CUT:
            said = f"{file} is cut off or damaged after {done:,} of {size:,} bytes"
            raise UserError(said, do="get the file again") from None


def bytes_of(file: Path) -> BufferedIOBase:
    if not file.is_file():
        raise UserError(f"{file} does not exist")
    return gzip.GzipFile(file) if is_packed(file) else file.open("rb")


def read_some(stream: BufferedIOBase, most: int) -> bytes:
    """At most so many bytes; fewer at the end, also where that comes too early: the length tells it."""
    try:
        return stream.read(most)
    except CUT:
        return b""


def is_packed(file: Path) -> bool:
    with file.open("rb") as raw:
        return raw.read(2) == GZIP


def shape_text(shape: Sequence[int]) -> str:
    return " × ".join(f"{length:,}" for length in shape)


def recognise_idx(asked: DataQuery) -> RecognisedData | None:
    """Images of one size and, unless they are learned from without, their labels; None for other files."""
    if asked.kind not in (None, DataKind.IMAGES):
        return None
    files = [file for path in asked.paths for file in (idx_files(path) if path.is_dir() else [path])]
    images = [file for file in files if IMAGE_FILE.search(file.name) and file.is_file()]
    if not images:
        return None
    chosen, left = [one for one in images if "train" in one.name.lower()] or images, ""
    if len(images) > 1 and len(asked.paths) == 1:
        if len(chosen) != 1:
            raise UserError(
                f"{asked.paths[0]} has several sets of images: {listed(f.name for f in images)}", do="name one"
            )
        others = [file for file in images if file not in chosen]
        left = f" ({listed(str(file) for file in others)} is left for --validation)"
    images = chosen if len(asked.paths) == 1 else images
    sources = tuple(idx_source(file, None if asked.nameless else labels_for(file)) for file in images)
    size = header(images[0]).shape[1:]
    total = sum(header(file).shape[0] for file in images)
    labels = "" if asked.nameless else " and labels"
    why = f"{listed(map(str, images), 3)}: {total:,} images of {shape_text(size)} pixels{labels}{left}"
    return RecognisedData(DataKind.IMAGES, sources, why, asked.paths, unlabelled=asked.nameless)


def idx_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if IMAGE_FILE.search(file.name))


def labels_for(images: Path) -> Path:
    """The labels that belong to images, packed or not."""
    name = re.sub(r"idx[34]", "idx1", images.name.replace("images", "labels").replace("image", "label"))
    for other in (name, f"{name}.gz", name.removesuffix(".gz")):
        if (found := images.with_name(other)).is_file():
            return found
    do = f"put {name} into its folder, or learn without classes, as in data.objective masked"
    raise UserError(f"{images} has no labels beside it", do=do)
