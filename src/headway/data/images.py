"""Images: what is wrong with one, and its pixels.

Every file is decoded before training: its size is checked first, then all of its bytes.  Pixels come upright (EXIF), as
8-bit grey or RGB; transparency shows white.

Axes:  H height   W width   C channels, 1 or 3
"""

from __future__ import annotations

import struct
import warnings
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from headway.data.idx import pixels
from headway.data.media_sources import MediaError, Medium
from headway.data.text_lines import IMAGE_SUFFIXES, Flaw, MediaLocation

Pixels = NDArray[np.uint8]

# no more: some of Pillow's other readers run other programs
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM")
MAX_ASPECT = 100  # times the shorter side that the longer one may be: a strip whose height is made 224 fills the memory
WIDE = ("I", "F")  # Pillow's names for 32-bit numbers, whose white is not known
ORIENTATION = 0x0112  # the EXIF tag
LYING = (5, 6, 7, 8)  # its values that swap height and width
SIGNATURE = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True)
class Images(Medium):
    """What an image may be: so many pixels, and so many frames, of which the first is read."""

    pixels: int = 100_000_000
    frames: int = 1
    noun: str = "image"
    suffixes: tuple[str, ...] = IMAGE_SUFFIXES
    unreadable = Flaw.IMAGE

    def extent(self, data: bytes) -> tuple[int, ...]:
        """Height and width."""
        with decoding(self.pixels), opened(data) as image:
            self.check(image, data)
            extent = upright(image)
            image.draft(None, (image.width // 8, image.height // 8))  # an eighth is made of all bytes of a JPEG
            image.load()
            return extent

    def check(self, image: Image.Image, data: bytes) -> None:
        """A MediaError where something is wrong by the header, or the end is missing."""
        width, height = image.size
        size = f"has {width:,} × {height:,} pixels where"
        if width * height > self.pixels:
            raise MediaError(Flaw.LARGE, f"{size} {self.pixels:,} are allowed")
        if width * height == 0:
            raise MediaError(Flaw.IMAGE, f"has {width} × {height} pixels")
        if max(width, height) > MAX_ASPECT * min(width, height):
            raise MediaError(Flaw.LARGE, f"{size} one side may be {MAX_ASPECT} times as long as the other")
        if (frames := frames_of(image)) > self.frames:
            raise MediaError(Flaw.ANIMATED, f"is animated: {frames} frames where one is expected")
        if image.mode in WIDE and not has_16_bits(image):
            raise MediaError(Flaw.IMAGE, "has pixels of 32 bits, and nothing says which is white")
        if data.startswith(SIGNATURE) and not has_end(data):  # Pillow lets it pass
            raise MediaError(Flaw.IMAGE, "is truncated (the end of the PNG is missing)")


def read_image(place: MediaLocation, channels: int = 3, most: int = Images.pixels) -> Pixels:
    """The pixels of an image, H W C."""
    if place.shape:
        return shaped(pixels(place), channels)
    data = place.read()
    try:
        with decoding(most), opened(data) as image:
            Images(most, frames_of(image)).check(image, data)
            return shaped(decoded(image), channels)
    except MediaError as flaw:
        raise flaw.error(place) from None


@contextmanager
def decoding(most: int) -> Generator[None]:
    """Errors of Pillow on an image that may have so many pixels, for a person."""
    try:
        yield
    except MediaError:
        raise
    except Image.DecompressionBombError:
        raise MediaError(Flaw.LARGE, f"has more pixels than the {most:,} that are allowed") from None
    except Image.UnidentifiedImageError:
        raise MediaError(Flaw.IMAGE, "is no image of a known format") from None
    except Exception as error:  # Pillow's readers raise errors of any type
        text = str(error) or type(error).__name__
        cut = "truncated" in text.lower() or isinstance(error, EOFError)
        raise MediaError(Flaw.IMAGE, f"is truncated ({text})" if cut else f"cannot be decoded ({text})") from None


def is_grey(place: MediaLocation) -> bool:
    """Whether an image shows no colour, however it is stored."""
    pixels = read_image(place)
    return bool((pixels == pixels[..., :1]).all())


def mean_and_std(places: Iterable[MediaLocation], channels: int = 3) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The mean and the standard deviation of each channel over all pixels of these images, of values from 0 to 1."""
    count, total, squares = 0, np.zeros(channels), np.zeros(channels)
    for place in places:
        values = read_image(place, channels).reshape(-1, channels) / 255.0
        count, total, squares = count + len(values), total + values.sum(0), squares + (values**2).sum(0)
    assert count > 0
    mean = total / count
    # an even picture has no spread to divide by
    std = np.sqrt(np.maximum(squares / count - mean**2, (1 / 255) ** 2))
    return tuple(float(value) for value in mean.round(6)), tuple(float(value) for value in std.round(6))


def decoded(image: Image.Image) -> Pixels:
    """Upright 8-bit pixels, H W for grey or H W 3."""
    wide = has_16_bits(image)
    image = ImageOps.exif_transpose(image)
    if wide:
        return np.round(np.asarray(image).astype(np.uint16) / 257).astype(np.uint8)
    if image.has_transparency_data:
        coloured = image.convert("RGBA")
        white = Image.new("RGBA", coloured.size, (255, 255, 255, 255))
        image = Image.alpha_composite(white, coloured).convert("L" if image.mode in ("LA", "La") else "RGB")
    return np.asarray(image.convert("L" if image.mode in ("1", "L") else "RGB"))


def shaped(values: Pixels, channels: int) -> Pixels:
    """H W or H W 3 with this many channels."""
    values = values if values.ndim == 3 else values[..., None]
    if values.shape[-1] == channels:
        return values
    if channels == 3:
        return np.repeat(values, 3, axis=-1)
    assert channels == 1, channels
    return np.asarray(Image.fromarray(values).convert("L"))[..., None]


def opened(data: bytes) -> Image.Image:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns of many pixels and of odd EXIF data; we count the pixels
        Image.init()  # all readers are known to Pillow, of which it may use ours
        return Image.open(BytesIO(data), formats=FORMATS)


def upright(image: Image.Image) -> tuple[int, int]:
    """Height and width as an image is shown."""
    if image.format == "TIFF":
        image.load()  # turns it; the size before that differs among versions of Pillow
        return image.height, image.width
    lying = image.getexif().get(ORIENTATION) in LYING
    return (image.width, image.height) if lying else (image.height, image.width)


def has_16_bits(image: Image.Image) -> bool:
    """Whether white is 65,535; Pillow calls that 32 bits in a .pgm, and means the same."""
    return image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PPM")


def frames_of(image: Image.Image) -> int:
    # cameras put a second, smaller view into some JPEGs (MPO): these are no films
    return 1 if image.format == "MPO" else cast("int", getattr(image, "n_frames", 1))


def has_end(data: bytes) -> bool:
    """Whether the last chunk of a PNG is there."""
    at = len(SIGNATURE)
    while at + 12 <= len(data):
        size, name = struct.unpack_from(">I4s", data, at)
        if name == b"IEND":
            return True
        at += 12 + size
    return False
