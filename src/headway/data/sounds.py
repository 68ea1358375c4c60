"""Sounds: what is wrong with a recording, and its samples.

Every file is decoded once, block by block, before anything is learned from it: what its header promises must be there.
Samples come as one channel of floats between −1 and 1, at the rate that is asked for.

Axes:  N samples
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from hashlib import blake2b
from io import BytesIO
from math import gcd
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headway.data.archives import Place
from headway.data.lines import What
from headway.data.looks import Flaw, Seen, contents
from headway.errors import UserError

if TYPE_CHECKING:
    from soundfile import SoundFile

Samples = NDArray[np.float32]

SUFFIXES = frozenset({".wav", ".flac", ".ogg", ".mp3"})
RATES = (1000, 384_000)  # samples a second that a recording may have
CHANNELS = 64
BLOCK = 2**16  # samples that are decoded at a time
BROKEN = (RuntimeError, ValueError, TypeError)  # what a decoder raises
UNKNOWN = 0xFFFFFFFF  # the length in a WAV that was written into a pipe


@dataclass(frozen=True)
class Sounds:
    """What a sound may be: so many seconds long, and recorded at `rate` samples a second, where that matters."""

    seconds: float = 900.0
    rate: int | None = None
    noun: str = "sound"
    suffixes: frozenset[str] = SUFFIXES

    def look(self, place: Place) -> Seen | Flaw:
        """The hash of a file, its samples and their rate; or why it cannot be learned from."""
        data = contents(place, What.SOUND)
        if isinstance(data, Flaw):
            return data
        if flaw := empty(data) or forged(data):
            return flaw
        try:
            with opened(data) as file:
                flaw = self.flaw(file) or unsound(file)
                seen = Seen(blake2b(data, digest_size=16).hexdigest(), (file.frames, file.samplerate))
        except BROKEN as error:
            return Flaw(What.SOUND, f"cannot be decoded ({told(error)})")
        return flaw or seen

    def flaw(self, file: SoundFile) -> Flaw | None:
        """What is wrong by the header."""
        if file.frames == 0:
            return Flaw(What.SOUND, "has no samples")
        if not RATES[0] <= file.samplerate <= RATES[1]:
            return Flaw(What.SOUND, f"has {file.samplerate:,} samples a second, which no recorder makes")
        if file.channels > CHANNELS:
            return Flaw(What.SOUND, f"has {file.channels} channels where {CHANNELS} are allowed")
        if file.frames > self.seconds * file.samplerate:
            said = f"lasts {file.frames / file.samplerate:,.0f} seconds where {self.seconds:,.0f} are allowed"
            return Flaw(What.LARGE, said)
        if self.rate and file.samplerate != self.rate:
            return Flaw(What.RATE, f"has {file.samplerate:,} samples a second where the others have {self.rate:,}")
        return None


def read_sound(place: Place, rate: int | None = None, seconds: float = Sounds.seconds) -> Samples:
    """The samples of a recording, N, as one channel; at another rate they are resampled."""
    data = place.read()
    flaw = empty(data) or forged(data)
    try:
        if flaw is None:
            with opened(data) as file:
                flaw = Sounds(seconds).flaw(file)
                if flaw is None:
                    return at_rate(file.read(dtype="float32", always_2d=True).mean(1), file.samplerate, rate)
    except BROKEN as error:
        flaw = Flaw(What.SOUND, f"cannot be decoded ({told(error)})")
    raise UserError(f"{place.path} {flaw.said}")


def sound_from(file: Path | str, rate: int | None = None) -> Samples:
    """The samples of a file that somebody names, N."""
    return read_sound(Place(Path(file)), rate)


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


def rate_of(place: Place) -> int | None:
    """The rate that a header tells; None where it cannot be read."""
    try:
        with place.file.open("rb") as file:
            file.seek(place.start)
            begin = file.read(min(place.bytes, BLOCK))
        with opened(begin) as sound:
            return sound.samplerate
    except (OSError, *BROKEN):
        return None


def unsound(file: SoundFile) -> Flaw | None:
    """What is wrong by the samples."""
    read = 0
    while len(block := file.read(BLOCK, dtype="float32", always_2d=True)):
        read += len(block)
        if not np.isfinite(block).all():
            return Flaw(What.SOUND, "has samples that are not numbers")
    if read != file.frames:
        return Flaw(What.SOUND, f"ends after {read:,} of {file.frames:,} samples")
    return None


def empty(data: bytes) -> Flaw | None:
    return None if data else Flaw(What.SOUND, "is an empty file")


def forged(data: bytes) -> Flaw | None:
    """What is wrong with the chunks of a WAV; decoders take what is there for what was promised."""
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        return None
    at = 12
    while at + 8 <= len(data):
        name, size = struct.unpack_from("<4sI", data, at)
        there = len(data) - at - 8
        if name == b"data":
            if size == UNKNOWN:
                return Flaw(What.SOUND, "has a header that does not say how long it is")
            if size > there:
                return Flaw(What.SOUND, f"has a header that promises {size:,} bytes of sound, and {there:,} are there")
            return None
        at += 8 + size + size % 2
    return Flaw(What.SOUND, "is a WAV without sound in it")


def told(error: Exception) -> str:
    return str(error).rpartition(": ")[2].rstrip(".") or type(error).__name__
