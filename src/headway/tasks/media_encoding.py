"""Images and sounds written as files: what a model takes in, for a page, and samples for a model that was given none.

Axes:  Ch channels   H height   W width   N samples   T frames   M mels
"""

from __future__ import annotations

import wave
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw
from torch import Tensor

from headway.tasks.tracing import InputImage, InputSound

if TYPE_CHECKING:
    from headway.data.preprocess import ImagePreprocess

SIDE = 224  # pixels of the sample image
RATE, PITCH = 16_000, 440  # hertz, of the sample sound


def picture_of(image: Tensor, ready: ImagePreprocess) -> InputImage:
    """An image as a model reads it, Ch H W."""
    return InputImage(png(image, ready), image.shape[2], image.shape[1])


def png(image: Tensor, ready: ImagePreprocess) -> bytes:
    """An image as a model reads it, Ch H W, as a file."""
    image = image.cpu()
    mean, std = (image.new_tensor(of)[:, None, None] for of in (ready.mean, ready.std))
    pixels = ((image * std + mean).clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()
    return encoded(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels)


def sound_of(samples: Tensor, rate: int, frames: Tensor) -> InputSound:
    """A clip, N, of samples between −1 and 1, with the frames that are made of it, T M."""
    whole = (samples.clamp(-1, 1) * 32767).round().numpy()
    return InputSound(wav(whole, rate), len(samples) / rate, spectrogram(frames))


def wav(samples: np.ndarray, rate: int) -> bytes:
    """Samples of 16 bits each."""
    file = BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(samples.astype("<i2").tobytes())
    return file.getvalue()


def spectrogram(frames: Tensor) -> bytes:
    """Frames T M as an image, time along and pitch up, from the softest (black) to the loudest (white)."""
    frames = frames.cpu()
    low, high = frames.min(), frames.max()
    grey = ((frames - low) / (high - low).clamp(min=1e-9) * 255).round().byte()
    return encoded(grey.mT.flip(0).numpy())


def encoded(pixels: np.ndarray) -> bytes:
    file = BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(file, "PNG")
    return file.getvalue()


def sample_image(path: Path) -> Path:
    """An orange disc on a grey gradient."""
    image = Image.linear_gradient("L").resize((SIDE, SIDE)).convert("RGB")
    ImageDraw.Draw(image).ellipse((SIDE // 4, SIDE // 4, 3 * SIDE // 4, 3 * SIDE // 4), fill=(230, 160, 40))
    image.save(path)
    return path


def sample_sound(path: Path) -> Path:
    """One second of a tone with a fade-in and a fade-out."""
    at = np.arange(RATE) / RATE
    path.write_bytes(wav((8000 * np.sin(np.pi * at) * np.sin(2 * np.pi * PITCH * at)).round(), RATE))
    return path
