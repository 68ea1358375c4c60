"""IDX files, as MNIST and its family use them: images of one size and their labels, each file optionally gzipped.

A header of big-endian numbers (two zeros, the type of the values, the number of axes, the length of each) stands before
the values.  They are memory-mapped; a gzipped file is unpacked once into the user's cache folder.  Images and labels
belong together by name: train-images-idx3-ubyte and train-labels-idx1-ubyte, t10k-… for the test set.

Axes:  N images   H height   W width   C channels
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from io import BufferedIOBase
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headway.data.bounded_gzip import BoundedGzip
from headway.data.kinds import DataKind
from headway.data.records import DataQuery, RecognisedData, Record, RecordSource
from headway.data.text_lines import CUT, GZIP, MediaLocation, Problem
from headway.errors import UserError, counted, listed
from headway.system import write_whole

BYTES = 0x08  # the type of values that is read: unsigned bytes
MAX_BYTES = 2**34  # bytes of values that a header may promise
AGAIN = "get the file again"
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
        labels = None if self.labels is None else read_idx(self.labels).tolist()
        for at, image in enumerate(values):
            content = blake2b(image.tobytes(), digest_size=16).hexdigest()
            fields = (content,) if labels is None else (content, str(labels[at]))
            place = image_location(self.images, at + 1, values.shape[1:])
            yield Record(fields, self.images, at + 1, place=place, extent=values.shape[1:3])

    def field_name(self, field: int) -> str:
        return ("the image", "the label")[field]


def image_location(file: Path, number: int, shape: tuple[int, ...]) -> MediaLocation:
    """Where an image of a file is, counted from 1; people call it FILE/NUMBER."""
    size = int(np.prod(shape))
    return MediaLocation(file, str(number), header_size(len(shape) + 1) + (number - 1) * size, size, shape)


def numbered(path: Path) -> MediaLocation | None:
    """The image of an IDX file that FILE/NUMBER names; None for other paths."""
    if not (path.name.isdecimal() and path.parent.is_file()):
        return None
    values, number = read_idx(path.parent), int(path.name)
    if not 1 <= number <= len(values):
        raise UserError(f"{path.parent} has no image {number}", allowed=f"1 to {len(values):,}")
    return image_location(path.parent, number, values.shape[1:])


def pixels(place: MediaLocation) -> NDArray[np.uint8]:
    """The values at a place that has a shape."""
    start = place.start - header_size(len(place.shape) + 1)
    return read_idx(place.file).reshape(-1)[start : start + (place.size or 0)].reshape(place.shape)


def header_size(axes: int) -> int:
    return 4 + 4 * axes


def read_idx(file: Path) -> NDArray[np.uint8]:
    """All values of a file, mapped."""
    stamp = file.stat()
    return mapped(file, stamp.st_size, stamp.st_mtime_ns)


@lru_cache(16)
def mapped(file: Path, size: int, changed: int) -> NDArray[np.uint8]:
    """The values of a file of this size that was last changed then."""
    shape = read_shape(file)
    start, promised = header_size(len(shape)), int(np.prod(shape, dtype=np.int64))
    plain = unpacked(file, start + promised) if is_packed(file) else file
    found = plain.stat().st_size - start
    if found != promised:
        raise UserError(f"{file} holds {found:,} bytes where its header promises {promised:,}", do=AGAIN)
    if not promised:
        return np.empty(shape, np.uint8)
    return np.memmap(plain, np.uint8, "r", start).view(np.ndarray).reshape(shape)


def read_shape(file: Path) -> tuple[int, ...]:
    """The axes that a header promises; a UserError where it is no IDX file of bytes."""
    with open_idx(file) as stream:
        begin = read_some(stream, 4)
        if len(begin) < 4 or begin[:2] != b"\0\0" or begin[3] == 0:
            raise UserError(f"{file} is no IDX file", do=AGAIN)
        if begin[2] != BYTES:
            raise UserError(
                f"{file} holds values of type 0x{begin[2]:02X}", allowed="0x08, unsigned bytes", do="convert it"
            )
        rest = read_some(stream, 4 * begin[3])
        if len(rest) < 4 * begin[3]:
            raise UserError(f"{file} ends within its header", do=AGAIN)
    shape = struct.unpack(f">{begin[3]}I", rest)
    if int(np.prod([float(length) for length in shape])) > MAX_BYTES:
        raise UserError(f"{file} promises {shape_text(shape)} values", allowed=f"{MAX_BYTES:,} at most", do=AGAIN)
    return shape


def unpacked(file: Path, size: int) -> Path:
    """A packed file as a plain one in the cache; no more than one byte beyond `size` is ever written."""
    from headway.data.shard_cache import cache_folder
    from headway.data.shards import digest

    def unpack(part: Path) -> None:
        done = 0
        with open_idx(file) as stream, part.open("wb") as out:
            try:
                # read1: read(n) of a damaged archive gives nothing of the last n bytes
                while done <= size and (data := stream.read1(min(size + 1 - done, 2**20))):
                    done += out.write(data)
            except CUT:
                said = f"{file} is cut off or damaged after {done:,} of {size:,} bytes"
                raise UserError(said, do="get the file again") from None

    folder = cache_folder() / "unpacked"
    plain = folder / digest((file,), "idx")
    if not plain.exists() or plain.stat().st_size < size:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(plain, unpack)
    return plain


def open_idx(file: Path) -> BufferedIOBase:
    if not file.is_file():
        raise UserError(f"{file} does not exist", do="check the name")
    return BoundedGzip(file.open("rb"), str(file)) if is_packed(file) else file.open("rb")


def is_packed(file: Path) -> bool:
    with file.open("rb") as raw:
        return raw.read(2) == GZIP


def read_some(stream: BufferedIOBase, count: int) -> bytes:
    """At most so many bytes; fewer at the end, also where that comes too early: the length tells it."""
    try:
        return stream.read(count)
    except CUT:
        return b""


def shape_text(shape: Sequence[int]) -> str:
    return " × ".join(f"{length:,}" for length in shape)


def recognise_idx(query: DataQuery) -> RecognisedData | None:
    """Images of one size and, unless they are learned from without, their labels; None for other files."""
    if query.kind not in (None, DataKind.IMAGES, DataKind.SCORED_IMAGES):
        return None
    images, others = image_files(query.paths)
    if not images:
        return None
    left = f" ({listed(map(str, others))} is left for --validation)" if others else ""
    sources = tuple(idx_source(file, None if query.nameless else labels_for(file)) for file in images)
    shapes = [read_shape(file) for file in images]
    labels = "" if query.nameless else " and labels"
    said = f"{sum(shape[0] for shape in shapes):,} images of {shape_text(shapes[0][1:])} pixels{labels}{left}"
    why = f"{listed(map(str, images), 3)}: {said}"
    return RecognisedData(query.kind or DataKind.IMAGES, sources, why, query.paths, unlabelled=query.nameless)


def image_files(paths: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """The IDX files of images: given, or in folders; and those of one folder that are not for training."""
    files = [file for path in paths for file in (sorted(path.iterdir()) if path.is_dir() else [path])]
    images = [file for file in files if IMAGE_FILE.search(file.name) and file.is_file()]
    if len(images) < 2 or len(paths) > 1:
        return images, []
    training = [file for file in images if "train" in file.name.lower()] or images
    if len(training) != 1:
        raise UserError(f"{paths[0]} has several sets of images: {listed(f.name for f in images)}", do="name one")
    return training, [file for file in images if file not in training]


def idx_inputs(path: Path) -> list[str]:
    """The images of an IDX file, or of the one in a folder that is for training, as FILE/NUMBER; none of others."""
    images, _ = image_files([path])
    return [f"{file}/{number}" for file in images for number in range(1, read_shape(file)[0] + 1)]


def idx_source(images: Path, labels: Path | None) -> Idx:
    """Images, and labels that belong to them."""
    shape = read_shape(images)
    if len(shape) not in (3, 4) or (len(shape) == 4 and shape[3] not in (1, 3)):
        allowed = "images of one or three channels: N H W or N H W C"
        raise UserError(f"{images} has axes of {shape_text(shape)}", allowed=allowed, do="convert it")
    if 0 in shape:
        raise UserError(f"{images} has no images", do=AGAIN)
    if labels is not None:
        counts = read_shape(labels)
        if len(counts) != 1:
            raise UserError(f"{labels} has axes of {shape_text(counts)}", allowed="one label for each image", do=AGAIN)
        if shape[0] != counts[0]:
            said = f"{images} has {counted(shape[0], 'image')} and {labels} {counted(counts[0], 'label')}"
            raise UserError(said, do="put files that belong together into one folder")
    return Idx(images, labels)


def labels_for(images: Path) -> Path:
    """The labels that belong to images, packed or not."""
    name = re.sub(r"idx[34]", "idx1", images.name.replace("images", "labels").replace("image", "label"))
    for other in (name, f"{name}.gz", name.removesuffix(".gz")):
        if (found := images.with_name(other)).is_file():
            return found
    do = f"put {name} into its folder, or learn without classes, as in data.objective masked"
    raise UserError(f"{images} has no labels beside it", do=do)
