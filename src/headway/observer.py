"""What a model that reads images, sounds or numbers says of them: a class, a text, or vectors.

Axes:  B batch   K classes   C width   M texts   P width of vectors that are compared
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.answer import PLAIN, Answer, Speaker, Wish
from headway.data.archives import Place, inside
from headway.data.batched import batched
from headway.data.given_numbers import numbers_of
from headway.data.idx import numbered
from headway.data.keyed import random_for
from headway.data.preprocess import ImagePreprocess, NumberPreprocess, Preprocess, SoundPreprocess
from headway.data.sounds import read_sound
from headway.data.tokenizer import Tokenizer
from headway.errors import UserError
from headway.generate.beam import Beam
from headway.generate.ctc import PrefixBeam, greedy
from headway.generate.feed import context_of
from headway.generate.transcribe import Listening, MeanBeam, Transcriber
from headway.nn.head import Classifier, CTCHead, MeanPool, main_of
from headway.nn.masked_image import MaskedAutoencoder, MaskedImageModel
from headway.nn.model import EncoderDecoder, Forecaster, Trunk
from headway.nn.towers import TwoTowers
from headway.tasks.senses import Hearing, Read, Sense, Sight, Vectors
from headway.tasks.spoken import first_word, heard
from headway.tasks.task import Ragged, cut, ids

TOGETHER = 32  # samples at a time
ROWS = 10  # that are foreseen, unless more are wished for


@dataclass(frozen=True, eq=False)
class Observer:
    """A model with its sense: `kept` is what its config says of classes, `labels` their names."""

    model: nn.Module
    sense: Sense
    kept: Mapping[str, Any] = field(default_factory=dict[str, Any])
    labels: Sequence[str] = ()
    words: Tokenizer | None = None  # of what it writes, if it writes

    def answer(self, inputs: Sequence[str], wish: Wish = PLAIN) -> list[Answer]:
        """The answer to each file (or text of numbers), as plain data with its name under `input`.

        A model of images and texts is given one image, and then the texts of which it names the nearest.
        """
        if isinstance(self.model, TwoTowers) and len(inputs) > 1:
            return [self.compare(inputs[0], inputs[1:])]
        found = list[Answer]()
        with torch.inference_mode():
            for some in batched(inputs, TOGETHER):
                answers = self.way()(self.read(some), wish)
                found += [{"input": one, **answer} for one, answer in zip(some, answers, strict=True)]
        return found

    def read(self, inputs: Sequence[str]) -> Read:
        return self.sensed([self.place(one) for one in inputs])

    def sensed(self, places: Sequence[str]) -> Read:
        never = random_for("unused")
        return self.sense.together([self.sense.look(place, never) for place in places])

    def place(self, given: str) -> str:
        """What the sense opens: numbers as they are, or those of a table, and files by their place."""
        if isinstance(self.sense, Vectors):
            return numbers_of(given, self.kept.get("columns"), len(self.sense.ready.mean))
        return place_of(given).spelled()

    def way(self) -> Callable[[Read, Wish], list[Answer]]:
        """What the model is for, by its shape."""
        if isinstance(self.model, EncoderDecoder):
            return self.write
        if isinstance(self.model, MaskedAutoencoder | MaskedImageModel | TwoTowers):
            return self.embed_each
        if not isinstance(self.model, Trunk):
            raise UserError(f"there is no way to run a {type(self.model).__name__} on files")
        if isinstance(self.model, Forecaster):
            return self.foresee
        head = main_of(self.model.head)
        ways = {Classifier: self.classify, CTCHead: self.transcribe}
        return next((way for kind, way in ways.items() if isinstance(head, kind)), self.embed_each)

    def write(self, read: Read, wish: Wish) -> list[Answer]:
        """Captions, or transcripts by a decoder."""
        assert isinstance(self.model, EncoderDecoder)
        assert self.words is not None
        speaker = Speaker(self.model, self.words, self.kept)
        rows = read.context.rows
        count = len(read.inputs) if rows is None else len(rows.lengths)
        return speaker.texts(speaker.writing_from(self.model.remember(*read), count, wish), wish)

    def transcribe(self, read: Read, wish: Wish) -> list[Answer]:
        """What a CTC head has heard, by the best path or, with beams, by all paths."""
        if self.words is None:
            raise UserError(
                "this model's folder holds no words for what it hears", do="add tokenizer.json or vocab.json"
            )
        log_probs, frames = heard(self.model, read)
        if isinstance(wish.how, Beam):
            found = [many[0] for many in PrefixBeam(wish.how.width)(log_probs, frames)]
        else:
            found = greedy(log_probs, frames)
        assert isinstance(self.model, Trunk)
        head = main_of(self.model.head)
        assert isinstance(head, CTCHead)
        first = first_word(self.words, head)
        return [{"output": self.words.decode([s - first for s in one.symbols]), "score": one.score} for one in found]

    def classify(self, read: Read, wish: Wish) -> list[Answer]:
        chances = self.model(*read).softmax(-1)  # B K
        names = [self.label(k) for k in range(chances.shape[1])]
        return [likeliest_first(names, row) for row in chances]

    def foresee(self, read: Read, wish: Wish) -> list[Answer]:
        """The rows that come next, as many as are wished for."""
        assert isinstance(self.model, Forecaster)
        assert isinstance(self.sense, Vectors)
        rows = read.context.rows
        series = read.inputs if rows is None else read.inputs[0].split(list(rows.lengths))
        count = ROWS if wish.most is None else wish.most
        found = [self.sense.unscaled(self.model.ahead(one[None], count)[0]) for one in series]  # each count F
        return [{"output": one.tolist(), "columns": list(self.kept.get("columns", ()))} for one in found]

    def row(self, numbers: Tensor) -> str:
        """A row of a forecaster's, F, with the names of its columns."""
        assert isinstance(self.sense, Vectors)
        values = self.sense.unscaled(numbers).tolist()
        names = self.kept.get("columns") or range(1, len(values) + 1)
        return ", ".join(f"{name} {value:.4g}" for name, value in zip(names, values, strict=True))

    @torch.inference_mode()
    def compare(self, image: str, texts: Sequence[str]) -> Answer:
        """How likely an image is to belong to each of some texts, the nearest first."""
        assert isinstance(self.model, TwoTowers)
        near = (self.model.scale * self.embed([image]) @ self.embed_texts(texts).mT)[0].softmax(-1)  # M
        return {"input": image, **likeliest_first(texts, near)}

    @torch.inference_mode()
    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """Vectors of length 1 to be compared with those of images, M P; long texts are cut to what the model reads."""
        assert isinstance(self.model, TwoTowers)
        if self.words is None:
            raise UserError("this model's folder holds no tokenizer", do="add tokenizer.json")
        longest = context_of(self.model.text)
        rows = [row if longest is None else cut(row, longest) for row in self.words.encode_batch(list(texts))]
        read = Ragged.of([ids(row) for row in rows])
        return F.normalize(self.model.text(read.ids, read.context), dim=-1)

    def embed_each(self, read: Read, wish: Wish) -> list[Answer]:
        return [{"output": vector.tolist()} for vector in self.pooled(read)]

    @torch.inference_mode()
    def embed(self, inputs: Sequence[str]) -> Tensor:
        """A vector of length 1 for each, B C."""
        return self.pooled(self.read(inputs))

    def pooled(self, read: Read) -> Tensor:
        """The mean of each sample's features, of length 1, B C; where a model compares, what it compares by."""
        if isinstance(self.model, TwoTowers):
            return F.normalize(self.model.image(*read), dim=-1)
        model = encoder_of(self.model)
        features = model.features(*read)
        features = features.flatten(1, 2) if features.dim() == 4 else features
        return F.normalize(MeanPool()(features, model.inner(read.context)), dim=-1)

    def label(self, k: int) -> str:
        return self.labels[k] if k < len(self.labels) else str(k)


@dataclass(frozen=True, eq=False)
class Listener:
    """A Whisper, which hears sounds of any length window by window; `settings` are its generation_config.json's."""

    model: EncoderDecoder
    words: Tokenizer
    settings: Mapping[str, Any]
    window: int  # frames

    def answer(self, inputs: Sequence[str], wish: Wish = PLAIN) -> list[Answer]:
        """What is said in each file, in which language and when."""
        ear = Transcriber.of(self.model, self.words, self.settings, self.window)
        how = MeanBeam(wish.how.width) if isinstance(wish.how, Beam) else wish.how
        found = list[Answer]()
        for one in inputs:
            wave = torch.from_numpy(read_sound(place_of(one), ear.sound.rate))
            told = ear.transcribe(wave, ear.sound.rate, Listening(how=how, most=wish.most)).plain()
            found.append({"input": one, "output": told.pop("text"), **told})
        return found

    def embed(self, inputs: Sequence[str]) -> Tensor:
        raise UserError("a Whisper gives texts and no vectors", do="leave --embed out")


def encoder_of(model: nn.Module) -> Trunk:
    """The part of a model that takes in the sample."""
    match model:
        case EncoderDecoder() | MaskedAutoencoder() | MaskedImageModel():
            return model.encoder
        case TwoTowers():
            return model.image
        case Trunk():
            return model
        case _:
            raise UserError(f"there is no way to look into a {type(model).__name__}")


def likeliest_first(names: Sequence[str], chances: Tensor) -> Answer:
    order = chances.argsort(descending=True).tolist()
    return {"output": names[order[0]], "probabilities": {names[at]: chances[at].item() for at in order}}


def place_of(given: str) -> Place:
    """The file, or the member of an archive, that a person names."""
    path = Path(given)
    return inside(path) or numbered(path) or Place(path)


def sense_of(preprocess: Preprocess) -> Sense:
    """How a model senses what it is given, by what its folder says."""
    match preprocess:
        case ImagePreprocess():
            return Sight(preprocess)
        case SoundPreprocess():
            return Hearing(preprocess)
        case NumberPreprocess():
            return Vectors(preprocess)
