"""How models of images, sounds and numbers read one of them: a scene for each thing that such a model is for.

Axes:  Ch channels   H height   W width   T frames or vectors   F features   C width   N steps
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from headway.answer import Answer, Speaker, Wish
from headway.data.preprocess import ImagePreprocess
from headway.data.sounds import read_sound
from headway.data.tokenizer import Tokenizer
from headway.errors import UserError
from headway.look.axis import Axis, Frames, Items, cells, frames
from headway.look.media import picture_of, sound_of
from headway.look.outcome import Choices, Next, Picture, Sound, Vector
from headway.look.said import Said
from headway.look.scene import Axes, Scene
from headway.look.speaking import Writing, same
from headway.look.words import piece
from headway.nn.captioner import Captioner
from headway.nn.embed import ClassToken
from headway.nn.frames import Shortening
from headway.nn.image import ImageEmbed
from headway.nn.model import EncoderDecoder, Trunk
from headway.observer import Observer, encoder_of, place_of
from headway.ops.ctc import BLANK, collapsed
from headway.ops.mel import LogMel
from headway.ops.patches import patch_grid
from headway.tasks.senses import Hearing, Read, Vectors, Waves
from headway.tasks.spoken import first_word

SILENT = "∅"  # CTC's blank: nothing is said here
LETTERS = 24  # of a vector's numbers, in its label


class Sensed(NamedTuple):
    """What a model was given, as it takes it in; `axis` are the tokens that its encoder makes of it, if any."""

    read: Read
    axis: Axis | None
    picture: Picture | None = None
    sound: Sound | None = None


def observing(observer: Observer, given: str, said: Said | None) -> Scene:
    """What the model is for, done with one file, or one text of numbers.

    A model that writes reads what another `said`, if that is given, in place of its own words.
    """
    sensed = sense(observer, given)
    ways: dict[Callable[[Read, Wish], list[Answer]], Callable[[Observer, Sensed], Scene]] = {
        observer.write: partial(telling, said=said),
        observer.classify: naming,
        observer.transcribe: hearing,
        observer.foresee: foreseeing,
        observer.embed_each: placing,
    }
    scene = ways[observer.way()](observer, sensed)
    return replace(scene, picture=sensed.picture, sound=sensed.sound)


def naming(observer: Observer, sensed: Sensed) -> Scene:
    """One class for all of it."""
    told = Choices("classes", (None,), None, observer.label, lambda best: observer.label(best[0]), same)
    return Scene(observer.model, lambda: observer.model(*sensed.read), told, along(sensed.axis))


def foreseeing(observer: Observer, sensed: Sensed) -> Scene:
    """The row that comes next."""
    return Scene(observer.model, lambda: observer.model(*sensed.read)[0, -1], Next(observer.row), along(sensed.axis))


def placing(observer: Observer, sensed: Sensed) -> Scene:
    """A vector for all of it."""
    return Scene(observer.model, lambda: observer.pooled(sensed.read)[0], Vector(), along(sensed.axis))


def hearing(observer: Observer, sensed: Sensed) -> Scene:
    """A symbol, or none, for each stretch of a sound."""
    model, words = observer.model, observer.words
    assert isinstance(model, Trunk)
    symbols = Symbols(words, model.head)
    count = len(sensed.axis or ())
    told = Choices("heard", tuple(range(count)), None, symbols.label, symbols.text, same)
    return Scene(model, lambda: model(*sensed.read)[0], told, along(sensed.axis))


class Symbols:
    """What the symbols of CTC are called: 0 is the blank, and the words follow it or count it among them."""

    def __init__(self, words: Tokenizer | None, head: nn.Module):
        assert isinstance(head, nn.Linear)
        self.words, self.first = words, 1 if words is None else first_word(words, head)

    def label(self, symbol: int) -> str:
        if symbol == BLANK:
            return SILENT
        return f"#{symbol}" if self.words is None else piece(self.words, symbol - self.first)

    def text(self, path: Sequence[int]) -> str:
        found = collapsed(path)
        if self.words is None:
            return " ".join(self.label(symbol) for symbol in found)
        return self.words.decode([symbol - self.first for symbol in found])


def telling(observer: Observer, sensed: Sensed, said: Said | None) -> Scene:
    """A text for all of it: a caption, or what was said."""
    model, words = observer.model, observer.words
    assert isinstance(model, EncoderDecoder)
    if words is None:
        raise UserError("this model's folder holds no tokenizer", do="add tokenizer.json")
    speaker = Speaker(model, words, observer.kept)
    inputs, context = sensed.read
    memory = cells(model.grid(inputs)) if isinstance(model, Captioner) else sensed.axis
    assert memory is not None
    writing = Writing(model, inputs, context, words, sensed.axis, memory, said)
    return writing.by(lambda: speaker.writing_from(model.remember(inputs, context), 1, Wish()))


def sense(observer: Observer, given: str) -> Sensed:
    """A sample opened, and what the model's encoder makes of it."""
    if isinstance(observer.sense, Vectors):
        return numbered(observer, given)
    read, trunk = observer.read([given]), encoder_of(observer.model)
    if isinstance(observer.sense.ready, ImagePreprocess):
        return Sensed(read, patches(trunk, read.inputs), picture_of(read.inputs[0], observer.sense.ready))
    assert isinstance(observer.sense, Hearing | Waves)
    mel = observer.sense.ready.mel
    samples = torch.from_numpy(read_sound(place_of(given), mel.rate))
    apart, drawn = (mel.hop, read.inputs[0]) if isinstance(observer.sense, Hearing) else (1, drawing(samples, mel.rate))
    axis = stretches(trunk, read.inputs.shape[1], apart / mel.rate)
    return Sensed(read, axis, sound=sound_of(samples, mel.rate, drawn))


def numbered(observer: Observer, given: str) -> Sensed:
    """Vectors by their numbers."""
    told = observer.place(given)
    return Sensed(observer.sensed([told]), Items("items", tuple(row.strip()[:LETTERS] for row in told.split(";"))))


def along(axis: Axis | None) -> Axes:
    """All that runs is the encoder, whose tokens these are; without them, every layer has a grid of its own."""
    return Axes({} if axis is None else {"": axis})


def patches(trunk: Trunk, images: Tensor) -> Axis | None:
    """The patches of images (1 Ch H W) as tokens; None for an encoder whose every layer has a grid of its own."""
    if not isinstance(trunk.embed, ImageEmbed):
        return None
    first = ("[CLS]",) if isinstance(trunk.embed.token, ClassToken) else ()
    return cells(patch_grid(images, trunk.embed.patches.patch), first)


def drawing(samples: Tensor, rate: int) -> Tensor:
    """Frames of a clip (N) that a model reads sample by sample, to be seen by a person: T M."""
    return LogMel.speech(rate)(samples[None])[0]


def stretches(trunk: Trunk, count: int, seconds: float) -> Frames:
    """The tokens that so many frames or samples become, each of so many seconds."""
    if not isinstance(trunk.embed, Shortening):
        return frames(count, seconds)
    return frames(trunk.embed.length(count), seconds * trunk.embed.factor)
