"""A sample input for a model that was given none: a text, an image, a sound or some numbers."""

from __future__ import annotations

import wave
from array import array
from math import pi, sin
from pathlib import Path

from headway.data.tokenizer import Tokenizer

TEXT: str = "The cat sat on the mat."
SIDE = 224  # pixels
RATE, PITCH = 16_000, 440


def sample_text(tokenizer: Tokenizer, context: int | None, mask: str | None = None) -> str:
    """A short sentence within a model's context; with a `mask` in the place of a word."""
    words = TEXT.split()
    if mask is not None:
        words[1] = mask
    while len(words) > 1 and context is not None and len(tokenizer.encode(" ".join(words))) > context:
        words.pop()
    return " ".join(words)


def sample_image(path: Path) -> Path:
    """An orange disc on a grey gradient."""
    from PIL import Image, ImageDraw

    image = Image.linear_gradient("L").resize((SIDE, SIDE)).convert("RGB")
    ImageDraw.Draw(image).ellipse((SIDE // 4, SIDE // 4, 3 * SIDE // 4, 3 * SIDE // 4), fill=(230, 160, 40))
    image.save(path)
    return path


def sample_sound(path: Path) -> Path:
    """One second of a tone with a fade-in and a fade-out."""
    samples = (8000 * sin(pi * at / RATE) * sin(2 * pi * PITCH * at / RATE) for at in range(RATE))
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(array("h", (round(sample) for sample in samples)).tobytes())
    return path
