"""Small images, sounds and archives for tests."""

from __future__ import annotations

import io
import struct
import tarfile
import wave
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


def picture(seed: int = 0, height: int = 12, width: int = 16, channels: int = 3) -> Image.Image:
    """Smooth noise, which JPEG keeps well."""
    coarse = np.random.default_rng(seed).integers(0, 256, (3, 4, 3), np.uint8)
    image = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    return image if channels == 3 else image.convert("L")


def coded(image: Image.Image, format: str = "PNG", **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, format, **options)
    return out.getvalue()


def png(seed: int = 0) -> bytes:
    return coded(picture(seed))


def jpg(seed: int = 0) -> bytes:
    return coded(picture(seed), "JPEG", quality=95)


def wav(seed: int = 0, length: int = 400, rate: int = 8000, channels: int = 1) -> bytes:
    values = np.random.default_rng(seed).normal(0, 3000, length * channels).astype("<i2")
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(values.tobytes())
    return out.getvalue()


def idx(values: np.ndarray) -> bytes:
    return struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.astype(np.uint8).tobytes()


def put(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def tarred(file: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(file, "w") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return file
