"""Sounds come as they were recorded, and headers that lie are found out."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
import pytest
import soundfile

from headway.data.media_sources import MediaError, MediaProbe
from headway.data.sounds import Sounds, rate_of, read_sound
from headway.data.text_lines import Flaw, MediaLocation
from headway.errors import UserError
from tests.data.files import wav

VALUES = np.random.default_rng(0).uniform(-0.5, 0.5, (400, 2)).astype(np.float32)


def at(tmp_path: Path, data: bytes, name: str = "a.wav") -> MediaLocation:
    (tmp_path / name).write_bytes(data)
    return MediaLocation(tmp_path / name)


def coded(values: np.ndarray, format: str, subtype: str, rate: int = 8000) -> bytes:
    out = io.BytesIO()
    soundfile.write(out, values, rate, format=format, subtype=subtype)
    return out.getvalue()


@pytest.mark.parametrize(
    ("format", "subtype", "tolerance"),
    [
        ("WAV", "PCM_16", 1e-4),
        ("WAV", "PCM_U8", 1e-2),
        ("WAV", "PCM_24", 1e-6),
        ("WAV", "FLOAT", 0),
        ("FLAC", "PCM_16", 1e-4),
    ],
)
def test_samples_are_those_that_were_written(tmp_path: Path, format: str, subtype: str, tolerance: float) -> None:
    for values in (VALUES[:, 0], VALUES):
        place = at(tmp_path, coded(values, format, subtype))
        assert Sounds().probe(place) == Sounds().probe(place)
        seen = Sounds().probe(place)
        assert isinstance(seen, MediaProbe)
        assert seen.extent == (400, 8000)
        found = read_sound(place)
        assert found.dtype == np.float32
        assert np.abs(found - values.reshape(400, -1).mean(1)).max() <= tolerance + 1e-7
        assert rate_of(place) == 8000


@pytest.mark.slow
def test_another_rate_is_resampled(tmp_path: Path) -> None:
    signal = pytest.importorskip("scipy.signal")
    place = at(tmp_path, coded(VALUES[:, 0], "WAV", "FLOAT"))
    assert np.allclose(read_sound(place, 16_000), signal.resample_poly(VALUES[:, 0], 2, 1), atol=1e-5)


def forged(at: int, value: int, size: int = 4) -> bytes:
    """A WAV whose header says something else: 24 the rate, 22 the channels, 40 the bytes of sound."""
    data = bytearray(wav())
    data[at : at + size] = struct.pack("<I", value)[:size]
    return bytes(data)


def not_numbers() -> bytes:
    values = VALUES[:, 0].copy()
    values[7] = np.nan
    return coded(values, "WAV", "FLOAT")


def untold() -> bytes:
    """A FLAC that was written into a pipe: 36 bits of its header, the count of samples, are zero."""
    data = bytearray(coded(VALUES, "FLAC", "PCM_16"))
    data[21:26] = bytes([data[21] & 0xF0, 0, 0, 0, 0])
    return bytes(data)


BAD = {
    "an empty file": (b"", Flaw.SOUND, "is an empty file"),
    "a text": (b"no sound at all, only words", Flaw.SOUND, "is no sound of a known format"),
    "no samples": (wav(length=0), Flaw.SOUND, "has no samples"),
    "a header that promises more": (
        forged(40, 2_000_000),
        Flaw.SOUND,
        "has a header that promises 2,000,000 bytes of sound, and 800 are there",
    ),
    "a cut file": (wav()[:-300], Flaw.SOUND, "has a header that promises 800 bytes of sound, and 500 are there"),
    "a length that is not known": (
        forged(40, 0xFFFFFFFF),
        Flaw.SOUND,
        "has a header that does not say how long it is",
    ),
    "no chunk of sound": (wav()[:36], Flaw.SOUND, "is a WAV without sound in it"),
    "a rate of nothing": (forged(24, 0), Flaw.SOUND, ""),
    "a mad rate": (forged(24, 10_000_000), Flaw.SOUND, "has 10,000,000 samples a second"),
    "no channels": (forged(22, 0, 2), Flaw.SOUND, ""),
    "a thousand channels": (forged(22, 1000, 2), Flaw.SOUND, ""),
    "not numbers": (not_numbers(), Flaw.SOUND, "has samples that are not numbers"),
    "numbers beyond those of float32": (
        coded(np.array([0.5, 1e300]), "WAV", "DOUBLE"),
        Flaw.SOUND,
        "has samples that are not numbers",
    ),
    "absurd numbers": (
        coded(np.array([0.5, -1e30]), "WAV", "FLOAT"),
        Flaw.SOUND,
        "has samples as large as 1e+30, where 1 is as loud as can be and 1,000 is let pass",
    ),
    "floats that were never divided by 32,768": (
        coded(VALUES * 32_768, "WAV", "FLOAT"),
        Flaw.SOUND,
        "has samples as large as 16,3",
    ),
    "a FLAC of unknown length": (untold(), Flaw.SOUND, "has a header that does not say how long it is"),
    "half an MP3": (coded(np.tile(VALUES, (60, 1)), "MP3", "MPEG_LAYER_III")[:3000], Flaw.SOUND, "ends after "),
    "too long": (wav(length=20_000, rate=1000), Flaw.LARGE, "lasts 20 seconds where 10 are allowed"),
    "half a FLAC": (coded(VALUES, "FLAC", "PCM_16")[:900], Flaw.SOUND, ""),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_read_says_why(tmp_path: Path, case: str) -> None:
    data, what, said = BAD[case]
    flaw = Sounds(seconds=10).probe(at(tmp_path, data))
    assert isinstance(flaw, MediaError)
    assert flaw.what is what
    assert flaw.said.startswith(said)
    assert " " in flaw.said


@pytest.mark.parametrize("case", BAD)
def test_a_reader_says_the_same_and_names_the_file(tmp_path: Path, case: str) -> None:
    place = at(tmp_path, BAD[case][0])
    flaw = Sounds(seconds=10).probe(place)
    assert isinstance(flaw, MediaError)
    with pytest.raises(UserError) as caught:
        read_sound(place, seconds=10)
    assert caught.value.said == f"{place.path} {flaw.said}"
    assert caught.value.do


@pytest.mark.slow
def test_an_mp3_that_does_not_tell_its_length_is_read(tmp_path: Path) -> None:
    """Many have no tag, and what a decoder guesses by their bytes is a little wrong."""
    out = io.BytesIO()
    even = {"bitrate_mode": "CONSTANT", "compression_level": 0.5}
    soundfile.write(out, np.tile(VALUES, (600, 1)), 44_100, format="MP3", **even)
    tagged = out.getvalue()
    data = tagged[tagged.index(tagged[:2], tagged.index(b"Info")) :]
    words = b"ID3\x03\x00\x00\x00\x00\x01\x48" + bytes(200)
    for one in (data, words + data):
        place = at(tmp_path, one, "a.mp3")
        seen = Sounds().probe(place)
        assert isinstance(seen, MediaProbe)
        assert seen.extent == (len(read_sound(place)), 44_100)
    assert isinstance(Sounds().probe(at(tmp_path, words + tagged[:-1500])), MediaError)


def test_a_loud_sound_is_no_absurd_one(tmp_path: Path) -> None:
    """Floats may go beyond full scale: by 20 dB in a recording that was mixed too loud."""
    place = at(tmp_path, coded(VALUES * 20, "WAV", "FLOAT"))
    assert isinstance(Sounds().probe(place), MediaProbe)
    assert np.allclose(read_sound(place), (VALUES * 20).mean(1))


def test_a_line_break_in_a_name_does_not_break_the_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        read_sound(at(tmp_path, b"", "ä\nb\u2028c\x1b.wav"))
    assert str(caught.value).startswith(rf"{tmp_path}/ä\nb\u2028c\x1b.wav is an empty file; allowed: ")


def test_another_rate_than_the_others(tmp_path: Path) -> None:
    """It is resampled when it is read."""
    place = at(tmp_path, wav(rate=8000))
    assert Sounds(rate=16_000).probe(place) == Sounds(rate=8000).probe(place) == Sounds().probe(place)


def test_no_cut_of_a_file_goes_unnoticed(tmp_path: Path) -> None:
    for data in (wav(), coded(VALUES, "FLAC", "PCM_16")):
        for end in range(0, len(data) - 2, max(1, len(data) // 12)):
            assert isinstance(Sounds().probe(at(tmp_path, data[:end])), MediaError), end
