"""Sounds as a Whisper hears them: window by window, the last one filled up with silence.

What its layers hold of a sound is the mean over the tokens of all its windows, but for those of that silence.

Axes:  N sounds   B windows   W frames of a window   M mels   T tokens of a window   C width
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from headway.app.inspect.reading import Reader, Samples, opened
from headway.checkpoint import Loaded
from headway.data.archives import Place
from headway.data.batched import batched
from headway.data.sounds import read_sound
from headway.generate.transcribe import Transcriber, embedding
from headway.inspect.layers import pooled_layers
from headway.nn.context import EMPTY, Context
from headway.nn.frames import first
from headway.nn.model import EncoderDecoder, Trunk
from headway.observer import Listener, place_of

FEW = 4  # windows at a time: each is 1,500 tokens of most Whispers


class Window(NamedTuple):
    frames: Tensor  # W M
    tokens: int  # that are no silence put behind the sound


@dataclass(frozen=True, eq=False)
class WindowReader:
    """A Whisper's encoder, which takes sounds of any length in."""

    listener: Listener
    noun: str = "sounds"

    @property
    def model(self) -> EncoderDecoder:
        return self.listener.model

    @property
    def trunk(self) -> Trunk:
        return self.model.encoder

    @cached_property
    def ear(self) -> Transcriber:
        return Transcriber.of(self.model, self.listener.words, self.listener.settings, self.listener.window)

    @property
    def tokens(self) -> int:
        """Those of a window."""
        return embedding(self.model).length(self.ear.window)

    def opened(self, samples: Samples) -> Sequence[str]:
        return opened(samples, self.noun, lambda given: place_of(given).spelled())

    def layers(self, samples: Samples) -> dict[str, Tensor]:
        """The mean over each sound's tokens after each layer, N C, by the layers' names."""
        told = self.opened(samples)
        sums, counts = dict[str, Tensor](), torch.zeros(len(told), 1)
        windows = ((owner, window) for owner, one in enumerate(told) for window in self.windows(one))
        for some in batched(windows, FEW):
            owners, real = (torch.tensor(column) for column in zip(*((at, w.tokens) for at, w in some), strict=True))
            keep = first(real, self.tokens)[:, None]  # B 1 T: silence is heard, and not counted
            frames = torch.stack([window.frames for _, window in some])
            counts.index_add_(0, owners, real[:, None].float())
            for name, mean in pooled_layers(self.model, self.trunk, frames, EMPTY, Context(keep=keep)).items():
                total = sums.setdefault(name, mean.new_zeros(len(told), mean.shape[1]))
                total.index_add_(0, owners, mean * real[:, None])
        return {name: total / counts for name, total in sums.items()}

    def windows(self, told: str) -> Iterator[Window]:
        """The windows of a sound, one after the other."""
        rate = self.ear.sound.rate
        frames, real = self.ear.frames(torch.from_numpy(read_sound(Place.parsed(told), rate)), rate)
        for at in range(0, real, self.ear.window):
            yield Window(self.ear.part(frames, at), embedding(self.model).length(min(self.ear.window, real - at)))


def reader_of(loaded: Loaded) -> Reader | WindowReader:
    """The part of a model that takes samples in."""
    answerer = loaded.answerer()
    return WindowReader(answerer) if isinstance(answerer, Listener) else Reader.of(answerer)
