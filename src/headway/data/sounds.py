"""Sounds: what is wrong with a recording, and its samples.

Every file is decoded once, block by block, before training: what its header promises must be there.  Samples come as
one channel of floats between −1 and 1, at the rate that is asked for.

Axes:  N samples
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from hashlib import blake2b
from io import BytesIO
from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headway.data.media_sources import MediaFlaw, MediaProbe, contents, flaw_error
from headway.data.text_lines import SOUND_SUFFIXES, Flaw, MediaLocation

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
class Sounds:
    """What a sound may be: so many seconds long, and recorded at `rate` samples a second, where that matters."""

    seconds: float = 900.0
    rate: int | None = None
    noun: str = "sound"
    suffixes: tuple[str, ...] = SOUND_SUFFIXES

    def probe(self, place: MediaLocation) -> MediaProbe | MediaFlaw:
        """The hash of a file, its samples and their rate; or why it cannot be learned from."""
        data = contents(place, Flaw.SOUND)
        if isinstance(data, MediaFlaw):
            return data
        if flaw := empty(data) or forged(data):
            return flaw
        try:
            with opened(data) as file:
                if flaw := self.flaw(file):
                    return flaw
                read = samples_in(file, data)
                if isinstance(read, MediaFlaw):
                    return read
                return MediaProbe(blake2b(data, digest_size=16).hexdigest(), (read, file.samplerate))
        except BROKEN as error:
            return undecodable(error)

    def flaw(self, file: SoundFile) -> MediaFlaw | None:
        """What is wrong by the header."""
        if file.frames == 0:
            return MediaFlaw(Flaw.SOUND, "has no samples")
        if not SAMPLE_RATES[0] <= file.samplerate <= SAMPLE_RATES[1]:
            return MediaFlaw(Flaw.SOUND, f"has {file.samplerate:,} samples a second, which no recorder makes")
        if file.channels > CHANNELS:
            return MediaFlaw(Flaw.SOUND, f"has {file.channels} channels where {CHANNELS} are allowed")
        if file.frames == UNTOLD:
            return MediaFlaw(Flaw.SOUND, LENGTHLESS)
        if file.frames > self.seconds * file.samplerate:
            said = f"lasts {file.frames / file.samplerate:,.0f} seconds where {self.seconds:,.0f} are allowed"
            return MediaFlaw(Flaw.LARGE, said)
        if self.rate and file.samplerate != self.rate:
            return MediaFlaw(Flaw.RATE, f"has {file.samplerate:,} samples a second where the others have {self.rate:,}")
        return None


def read_sound(place: MediaLocation, rate: int | None = None, seconds: float = Sounds.seconds) -> Samples:
    """The samples of a recording, N, as one channel; at another rate they are resampled."""
    data = place.read()
    found = empty(data) or forged(data) or decoded(data, rate, Sounds(seconds))
    if isinstance(found, MediaFlaw):
        raise flaw_error(place, found)
    return found


def decoded(data: bytes, rate: int | None, allowed: Sounds) -> Samples | MediaFlaw:
    """The samples in the bytes of a file, N, or why they cannot be had."""
    try:
        with opened(data) as file:
            if flaw := allowed.flaw(file):
                return flaw
            values = file.read(dtype="float32", always_2d=True)  # at once: an MP3 in blocks is rounded otherwise
            flaw = wild(values) or short(len(values), promised(file, data))
            return flaw or at_rate(values.mean(1), file.samplerate, rate)
    except BROKEN as error:
        return undecodable(error)


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


def rate_of(place: MediaLocation) -> int | None:
    """The rate that a header tells; None where it cannot be read."""
    try:
        with place.file.open("rb") as file:
            file.seek(place.start)
            begin = file.read(min(place.bytes, BLOCK))
        with opened(begin) as sound:
            return sound.samplerate
    except (OSError, *BROKEN):
        return None


def samples_in(file: SoundFile, data: bytes) -> int | MediaFlaw:
    """How many samples each channel has, or what is wrong with them."""
    read = 0
    while len(block := file.read(BLOCK, dtype="float32", always_2d=True)):
        read += len(block)
        if flaw := wild(block):
            return flaw
    return short(read, promised(file, data)) or read


def wild(values: NDArray[Any]) -> MediaFlaw | None:
    """What is wrong with some samples of each channel."""
    if not np.isfinite(values).all():
        return MediaFlaw(Flaw.SOUND, "has samples that are not numbers")
    if (peak := float(np.abs(values).max(initial=0.0))) > MAX_AMPLITUDE:
        said = f"has samples as large as {peak:,.6g}, where 1 is as loud as can be and {MAX_AMPLITUDE:,.0f} is let pass"
        return MediaFlaw(Flaw.SOUND, said)
    return None


def short(read: int, least: int) -> MediaFlaw | None:
    return None if read >= least else MediaFlaw(Flaw.SOUND, f"ends after {read:,} of {least:,} samples")


def promised(file: SoundFile, data: bytes) -> int:
    """The samples that must be there: all that the file tells, or most of what a decoder guesses by its bytes."""
    begin = frames_at(data)
    guessed = file.format == "MP3" and not any(tag in data[begin : begin + TAGGED] for tag in TAGS)
    return max(1, int(file.frames * GUESSED)) if guessed else file.frames


def frames_at(data: bytes) -> int:
    """Where the sound of an MP3 begins: behind words about it (ID3), whose length has 7 bits to a byte."""
    if data[:3] != b"ID3" or len(data) < 10:
        return 0
    a, b, c, d = data[6:10]
    return 10 + (a << 21 | b << 14 | c << 7 | d)


def empty(data: bytes) -> MediaFlaw | None:
    return None if data else MediaFlaw(Flaw.SOUND, "is an empty file")


def forged(data: bytes) -> MediaFlaw | None:
    """What is wrong with the chunks of a WAV; decoders take what is there for what was promised."""
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        return None
    at = 12
    while at + 8 <= len(data):
        name, size = struct.unpack_from("<4sI", data, at)
        there = len(data) - at - 8
        if name == b"data":
            if size == UNKNOWN:
                return MediaFlaw(Flaw.SOUND, LENGTHLESS)
            if size > there:
                return MediaFlaw(
                    Flaw.SOUND, f"has a header that promises {size:,} bytes of sound, and {there:,} are there"
                )
            return None
        at += 8 + size + size % 2
    return MediaFlaw(Flaw.SOUND, "is a WAV without sound in it")


def undecodable(error: Exception) -> MediaFlaw:
    told = str(error).rpartition(": ")[2].rstrip(".") or type(error).__name__
    return MediaFlaw(Flaw.SOUND, f"cannot be decoded ({told})")
