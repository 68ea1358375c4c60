"""Something to look at before anybody has given anything: a text, a picture, a sound or some numbers of our own."""

from __future__ import annotations

import wave
from array import array
from math import pi, sin
from pathlib import Path

from headway.answer import Speaker
from headway.checkpoint import Loaded
from headway.observer import Observer
from headway.tasks.senses import Vectors

TEXT: str = "The cat sat on the mat."
SIDE = 224  # pixels
RATE, PITCH = 16_000, 440


def starter(model: Loaded, folder: Path) -> str:
    """An input that the model can read; what is a file is put into the folder."""
    answerer = model.answerer()
    if isinstance(answerer, Speaker):
        return text(answerer, getattr(model.config, "context", None))
    if isinstance(answerer, Observer) and isinstance(answerer.sense, Vectors):
        width = len(answerer.sense.ready.mean)
        return "; ".join(" ".join([str(at)] * width) for at in range(3))
    sees = isinstance(answerer, Observer) and answerer.sense.unit == "images"
    return str(picture(folder / "disc.png") if sees else sound(folder / "tone.wav"))


def reads_files(model: Loaded) -> bool:
    answerer = model.answerer()
    return not isinstance(answerer, Speaker) and not (
        isinstance(answerer, Observer) and isinstance(answerer.sense, Vectors)
    )


def text(speaker: Speaker, context: int | None) -> str:
    """Words, one of them masked where a model fills masks, and no more of them than it can read."""
    words = TEXT.split()
    mask = speaker.tokenizer.mask
    if mask is not None and speaker.way() == speaker.fill:
        words[1] = speaker.tokenizer.token(mask)
    while len(words) > 1 and context is not None and len(speaker.tokenizer.encode(" ".join(words))) > context:
        words.pop()
    return " ".join(words)


def picture(path: Path) -> Path:
    """A bright disc before a sky."""
    from PIL import Image, ImageDraw

    image = Image.linear_gradient("L").resize((SIDE, SIDE)).convert("RGB")
    ImageDraw.Draw(image).ellipse((SIDE // 4, SIDE // 4, 3 * SIDE // 4, 3 * SIDE // 4), fill=(230, 160, 40))
    image.save(path)
    return path


def sound(path: Path) -> Path:
    """A second of a tone that swells and fades."""
    samples = (8000 * sin(pi * at / RATE) * sin(2 * pi * PITCH * at / RATE) for at in range(RATE))
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(array("h", (round(sample) for sample in samples)).tobytes())
    return path
