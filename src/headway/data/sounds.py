"""Sounds: what is wrong with a recording, and its samples.

Every file is decoded once, block by block, before training: what its header promises must be there.  Samples come as
one channel of floats between −1 and 1, at the requested rate.

Axes:  N samples
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headway.data.media_sources import MediaError, Medium
from headway.data.text_lines import SOUND_SUFFIXES, Flaw, MediaLocation
from headway.system import regular

if TYPE_CHECKING:
    from soundfile import SoundFile


Samples = NDArray[np.float32]

SAMPLE_RATES = (1000, 384_000)  # samples a second that a recording may have
CHANNELS = 64
# 60 dB above full scale, which is 1: no recorder makes it, and floats never divided by 32,768 do
MAX_AMPLITUDE = 1000.0
BLOCK = 2**16  # samples that are decoded at a time
BROKEN = (RuntimeError, ValueError, TypeError)  # what a decoder raises
UNKNOWN = 0xFFFFFFFF  # the length in a WAV that was written into a pipe
UNTOLD = 2**63 - 1  # the frames of a FLAC that was, as libsndfile counts them
TAGS = (b"Xing", b"Info", b"VBRI")  # one of them begins the part of an MP3 that says how long it is,
TAGGED = 2**12  # among its first bytes
GUESSED = 0.9  # share of the length that a decoder guesses, without such a part, that must be there
LENGTHLESS = "has a header that does not say how long it is"


@dataclass(frozen=True)
class Sounds(Medium):
    """What a sound may be: so many seconds long.  Sounds of another rate than `rate` are resampled to that."""

    seconds: float = 900.0
    rate: int | None = None
    noun: str = "sound"
    suffixes: tuple[str, ...] = SOUND_SUFFIXES
    unreadable = Flaw.SOUND

    def extent(self, data: bytes) -> tuple[int, ...]:
        """Samples and their rate."""
        with self.opened(data) as file:
            read = 0
            while len(block := file.read(BLOCK, dtype="float32", always_2d=True)):
                read += len(block)
                check_values(block)
            check_length(read, file, data)
            return read, file.samplerate

    @contextmanager
    def opened(self, data: bytes) -> Generator[SoundFile]:
        """A file that may be decoded; a MediaError where something is wrong by its header, or while it is read."""
        if not data:
            raise MediaError(Flaw.SOUND, "is an empty file")
        check_chunks(data)
        try:
            sound = opened(data)
        except BROKEN:
            raise MediaError(Flaw.SOUND, "is no sound of a known format") from None
        try:
            with sound as file:
                self.check(file)
                yield file
        except BROKEN as error:
            text = str(error).rpartition(": ")[2].rstrip(".") or type(error).__name__
            raise MediaError(Flaw.SOUND, f"cannot be decoded ({text})") from None

    def check(self, file: SoundFile) -> None:
        if file.frames == 0:
            raise MediaError(Flaw.SOUND, "has no samples")
        if not SAMPLE_RATES[0] <= file.samplerate <= SAMPLE_RATES[1]:
            raise MediaError(Flaw.SOUND, f"has {file.samplerate:,} samples a second, which no recorder makes")
        if file.channels > CHANNELS:
            raise MediaError(Flaw.SOUND, f"has {file.channels} channels where {CHANNELS} are allowed")
        if file.frames == UNTOLD:
            raise MediaError(Flaw.SOUND, LENGTHLESS)
        if file.frames > self.seconds * file.samplerate:
            said = f"lasts {file.frames / file.samplerate:,.0f} seconds where {self.seconds:,.0f} are allowed"
            raise MediaError(Flaw.LARGE, said)


def read_sound(place: MediaLocation, rate: int | None = None, seconds: float = Sounds.seconds) -> Samples:
    """The samples of a recording, N, as one channel; at another rate they are resampled."""
    data = place.read()
    try:
        with Sounds(seconds).opened(data) as file:
            values = file.read(dtype="float32", always_2d=True)  # at once: an MP3 in blocks is rounded otherwise
            check_values(values)
            check_length(len(values), file, data)
            return at_rate(values.mean(1), file.samplerate, rate)
    except MediaError as flaw:
        raise flaw.error(place) from None


def at_rate(samples: Samples, own: int, rate: int | None) -> Samples:
    """Samples that were `own` a second, at `rate` a second where that is given."""
    if rate is None or own == rate:
        return samples
    import torch  # late: what only looks at files does not need it

    from headway.ops.resample import resample

    shared = gcd(own, rate)
    return resample(torch.from_numpy(np.ascontiguousarray(samples)), rate // shared, own // shared).numpy()


def opened(data: bytes) -> SoundFile:
    from soundfile import SoundFile  # late: it loads a library of the system, which texts do not need

    return SoundFile(BytesIO(data))


def commonest(rates: Iterable[int]) -> int | None:
    """The rate that most sounds have, to which the others are resampled; of several the highest."""
    counts = Counter(rates)
    return max(counts, key=lambda rate: (counts[rate], rate), default=None)


def rate_of(place: MediaLocation) -> int | None:
    """The rate that a header tells; None where it cannot be read."""
    try:
        with regular(place.file).open("rb") as file:
            file.seek(place.start)
            begin = file.read(min(place.bytes, BLOCK))
        with opened(begin) as sound:
            return sound.samplerate
    except (OSError, *BROKEN):
        return None


def check_values(values: NDArray[Any]) -> None:
    """A MediaError where some samples of any channel cannot be."""
    if not np.isfinite(values).all():
        raise MediaError(Flaw.SOUND, "has samples that are not numbers")
    if (peak := float(np.abs(values).max(initial=0.0))) > MAX_AMPLITUDE:
        said = f"has samples as large as {peak:,.6g}, where 1 is as loud as can be and {MAX_AMPLITUDE:,.0f} is let pass"
        raise MediaError(Flaw.SOUND, said)


def check_length(read: int, file: SoundFile, data: bytes) -> None:
    """A MediaError where fewer samples came than the file says, or than most of what a decoder guesses by its bytes."""
    begin = frames_at(data)
    guessed = file.format == "MP3" and not any(tag in data[begin : begin + TAGGED] for tag in TAGS)
    promised = max(1, int(file.frames * GUESSED)) if guessed else file.frames
    if read < promised:
        raise MediaError(Flaw.SOUND, f"ends after {read:,} of {promised:,} samples")


def frames_at(data: bytes) -> int:
    """Where the sound of an MP3 begins: behind words about it (ID3), whose length has 7 bits to a byte."""
    if data[:3] != b"ID3" or len(data) < 10:
        return 0
    a, b, c, d = data[6:10]
    return 10 + (a << 21 | b << 14 | c << 7 | d)


def check_chunks(data: bytes) -> None:
    """A MediaError where a WAV lacks what it promises; decoders take what is there for that."""
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        return
    at = 12
    while at + 8 <= len(data):
        name, size = struct.unpack_from("<4sI", data, at)
        if name == b"data":
            there = len(data) - at - 8
            if size == UNKNOWN:
                raise MediaError(Flaw.SOUND, LENGTHLESS)
            if size > there:
                said = f"has a header that promises {size:,} bytes of sound, and {there:,} are there"
                raise MediaError(Flaw.SOUND, said)
            return
        at += 8 + size + size % 2
    raise MediaError(Flaw.SOUND, "is a WAV without sound in it")
