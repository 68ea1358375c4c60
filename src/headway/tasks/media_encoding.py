"""Images and sounds as a model takes them in, written as files that a page can show and play.

Axes:  Ch channels   H height   W width   N samples   T frames   M mels
"""

from __future__ import annotations

import wave
from io import BytesIO

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from headway.data.preprocess import ImagePreprocess
from headway.tasks.tracing import InputImage, InputSound


def picture_of(image: Tensor, ready: ImagePreprocess) -> InputImage:
    """An image as a model reads it, Ch H W."""
    return InputImage(png(image, ready), image.shape[2], image.shape[1])


def png(image: Tensor, ready: ImagePreprocess) -> bytes:
    """An image as a model reads it, Ch H W, as a file."""
    mean, std = (image.new_tensor(of)[:, None, None] for of in (ready.mean, ready.std))
    pixels = ((image * std + mean).clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()
    return encoded(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels)


def sound_of(samples: Tensor, rate: int, frames: Tensor) -> InputSound:
    """A clip, N, with the frames that are made of it, T M."""
    return InputSound(wav(samples, rate), len(samples) / rate, spectrogram(frames))


def wav(samples: Tensor, rate: int) -> bytes:
    """Samples between −1 and 1 as 16 bits each."""
    file = BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes((samples.clamp(-1, 1) * 32767).round().to(torch.int16).numpy().astype("<i2").tobytes())
    return file.getvalue()


def spectrogram(frames: Tensor) -> bytes:
    """Frames T M as an image, time along and pitch up, from the softest (black) to the loudest (white)."""
    low, high = frames.min(), frames.max()
    grey = ((frames - low) / (high - low).clamp(min=1e-9) * 255).round().byte()
    return encoded(grey.mT.flip(0).numpy())


def encoded(pixels: np.ndarray) -> bytes:
    file = BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(file, "PNG")
    return file.getvalue()
