"""Speech recognition by CTC: predict what was said in a recording, where nobody has said when.

The symbols are the tokens of a text, each counted one higher: symbol 0 is the blank.

Axes:  B batch   T tokens of frames   U symbols of a text   V symbols
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor, nn

from headway.data.order import batched
from headway.data.records import Record
from headway.data.splits import DataSplits
from headway.data.tokenizer import Tokenizer
from headway.distributed.sharing import shared
from headway.errors import UserError
from headway.generate.beam import Beam
from headway.generate.ctc_decoding import PrefixBeam, ctc_greedy, first_symbol
from headway.metrics.baselines import most_frequent
from headway.metrics.scores import Scores
from headway.metrics.scoring import score_pairs
from headway.nn.context import padded
from headway.nn.frames import Shortening
from headway.nn.head import CTCHead, main_head
from headway.nn.trunk import Trunk
from headway.ops.ctc import BLANK, collapse, ctc_loss, frames_needed
from headway.recipe import Recipe
from headway.tasks.base import Task, TaskSetup
from headway.tasks.batches import Batch, DataRow, Row
from headway.tasks.generation import GREEDY_OPTIONS, GenerationOptions
from headway.tasks.inputs import Input, MelInput, ModelInput, input_of
from headway.tasks.media_tasks import SUBSAMPLING, MediaTask, batch_size, first_texts, sound_setup, stored_sample
from headway.tasks.model_parts import ModelParts
from headway.tasks.results import (
    DEFAULT_EVALUATION,
    BaselineData,
    BaselineResult,
    EvalOptions,
    EvalResult,
    Sample,
    TranscriptPrediction,
    stop_notes,
)
from headway.tasks.text_tasks import Framing, one_tokenizer
from headway.tasks.text_tracing import piece
from headway.tasks.tracing import Choices, TracedRun, TraceOptions

FACTORS = (8, 4, 2, 1)  # frames to a token that models are made for
TOGETHER = 32  # sounds at a time
BLANK_LABEL = "∅"
TRANSCRIPT_METRICS = ("word_error_rate", "character_error_rate", "exact")


class Transcribes(Task):
    """A task whose models write what is said in a sound."""

    does = "writes what is said in a sound"
    beams = True

    def evaluate(
        self, model: nn.Module, records: Iterable[Record], options: EvalOptions = DEFAULT_EVALUATION
    ) -> EvalResult:
        samples, notes = about_media(self, model, records, options.generation)
        return EvalResult(transcript_scores(samples), samples, notes, self.decoding_limits(options.generation))

    def decoding_limits(self, options: GenerationOptions) -> dict[str, int]:
        """What limits the length of answers, besides the sound."""
        return {}

    def baselines(self, model: nn.Module, data: BaselineData, found: EvalResult) -> Iterator[BaselineResult]:
        usual = most_frequent(record.fields[1] for record in data.train)
        answers = [one._replace(answer=usual) for one in found.samples]
        yield BaselineResult("the most frequent transcript", transcript_scores(answers))


@dataclass(frozen=True, eq=False)
class CTCBatch(Batch):
    read: ModelInput
    wanted: Tensor  # B U, padded
    lengths: Tensor  # B
    tokens: int

    @property
    def targets(self) -> int:
        return int(self.lengths.sum())


@dataclass(frozen=True, eq=False)
class CTC(Transcribes, MediaTask):
    """Write the transcript of a sound; `factor` frames are one token of the model."""

    decoding = ("beam",)
    name = "ctc"
    target = "symbol"
    architectures = ("conformer",)
    presets_by_size = ("conformer-nano", "conformer-s")
    columns = 3

    input: Input
    tokenizer: Tokenizer | None
    factor: int

    # ---- from data, and from a model

    @classmethod
    def from_data(cls, splits: DataSplits, recipe: Recipe, start: ModelParts | None) -> TaskSetup:
        """Character by character unless another level is asked for."""
        input, chosen, config = sound_setup(recipe, splits, start)
        tokenizer, more = one_tokenizer(recipe, splits, start, "characters", Framing())
        factor = recipe.model.sizes.get("factor", SUBSAMPLING)
        task = cls(input, tokenizer, int(cast(int, factor)))
        config = {**config, "vocab": tokenizer.vocab + 1, "factor": factor}
        return TaskSetup(task, tokenizer, tokenizer, {**chosen, **more}, 0, config, "ctc", input.preprocess)

    @classmethod
    def from_model(cls, parts: ModelParts) -> Self | None:
        model = parts.model
        if not isinstance(model, Trunk) or not isinstance(main_head(model.head), CTCHead):
            return None
        found = input_of(parts)
        assert found is not None
        factor = model.embed.factor if isinstance(model.embed, Shortening) else 1
        return cls(found, parts.target_tokenizer or parts.tokenizer, factor)

    # ---- learning

    def encode(self, fields: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        sounds = [(stored_sample(self.input, *sample), text) for *sample, text in fields]
        return [[*sound, self.symbols(text, sound.size[0])] for sound, text in sounds]

    def symbols(self, text: str, frames: int) -> list[int]:
        """The symbols of a text, which must have room in the frames of its sound."""
        found = [1 + id for id in self.words().plain(text)]
        if frames_needed(found) > (room := tokens_of(frames, self.factor)):
            said = f"{text[:60]!r} has {len(found)} symbols, and its sound is {room} tokens long"
            raise UserError(said, do=self.advice(frames_needed(found), frames))
        return found

    def advice(self, needed: int, frames: int) -> str:
        """What helps where a sound of so many frames has fewer tokens than its transcript needs."""
        fits = [factor for factor in FACTORS if factor < self.factor and tokens_of(frames, factor) >= needed]
        if fits and isinstance(self.input, MelInput):  # models of bare samples have a factor of their own
            return f"check the transcript, or let fewer frames be a token with model.factor {fits[0]}"
        return "shorten the transcript, or leave the recording out"

    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> CTCBatch:
        read = self.loaded(rows, random)
        wanted = [torch.from_numpy(row[2]) for row in rows]
        lengths = torch.tensor([len(row) for row in wanted])
        padded_rows = nn.utils.rnn.pad_sequence(wanted, batch_first=True)
        return CTCBatch(read, padded_rows, lengths, batch_size(rows))

    def loss(self, model: nn.Module, batch: CTCBatch) -> Tensor:
        log_probs, frames = symbol_log_probs(model, batch.read)
        return ctc_loss(log_probs, batch.lengths.new_tensor(frames), batch.wanted, batch.lengths).sum()

    def has_loss(self, model: nn.Module, described: bool) -> bool:
        """Vocabularies that count the blank among their words have other symbols than `encode`."""
        head = main_head(model.head) if isinstance(model, Trunk) else None
        known = isinstance(head, CTCHead) and self.tokenizer and head.out_features == self.tokenizer.vocab + 1
        return described and bool(known)

    def loss_rows(self, model: nn.Module, records: Iterable[Record]) -> Iterator[DataRow]:
        """Of several transcripts of one sound, the first."""
        return super().loss_rows(model, first_texts(records))

    # ---- use

    def words(self) -> Tokenizer:
        if self.tokenizer is None:
            said = "this model's folder holds no words for what it hears"
            raise UserError(said, do="add tokenizer.json or vocab.json")
        return self.tokenizer

    @torch.inference_mode()
    def predict(
        self, model: nn.Module, inputs: Sequence[str], options: GenerationOptions = GREEDY_OPTIONS
    ) -> Iterator[TranscriptPrediction]:
        """By the best path or, with beams, by all paths."""
        assert isinstance(model, Trunk)
        words, head = self.words(), main_head(model.head)
        assert isinstance(head, CTCHead)
        first = first_symbol(words, head)
        for some in batched(inputs, TOGETHER):
            options.interrupt()
            log_probs, frames = symbol_log_probs(model, self.read(model, some))
            if isinstance(options.decoding, Beam):
                beam = PrefixBeam(options.decoding.width, interrupt=options.interrupt)
                found = [many[0] for many in beam(log_probs, frames)]
            else:
                found = ctc_greedy(log_probs, frames)
            for one, heard in zip(some, found, strict=True):
                text = words.decode([symbol - first for symbol in heard.symbols])
                yield TranscriptPrediction(one, text, {"score": heard.score})

    def trace(self, model: nn.Module, input: str, options: TraceOptions) -> TracedRun:
        """A symbol, or the blank, for each token of a sound."""
        assert isinstance(model, Trunk)
        shown, symbols = self.shown(model, input), SymbolLabels(self.tokenizer, model.head)
        places = tuple(range(len(shown.axis or ())))
        choices = Choices("heard", places, None, symbols.label, symbols.text)
        return shown.run(model, lambda: model(*shown.read)[0], choices)


class SymbolLabels:
    """What the symbols of CTC are called: 0 is the blank, and the words follow it or count it among them."""

    def __init__(self, words: Tokenizer | None, head: nn.Module):
        assert isinstance(head, nn.Linear)
        self.words, self.first = words, 1 if words is None else first_symbol(words, head)

    def label(self, symbol: int) -> str:
        if symbol == BLANK:
            return BLANK_LABEL
        return f"#{symbol}" if self.words is None else piece(self.words, symbol - self.first)

    def text(self, path: Sequence[int]) -> str:
        found = collapse(path)
        if self.words is None:
            return " ".join(self.label(symbol) for symbol in found)
        return self.words.decode([symbol - self.first for symbol in found])


def about_media(
    task: Task, model: nn.Module, records: Iterable[Record], options: GenerationOptions
) -> tuple[list[Sample], tuple[str, ...]]:
    """What a model writes for each image or sound, and which limits ended that."""

    def answered(some: Sequence[Record]) -> list[tuple[str, str | None]]:
        found: list[Any] = list(task.predict(model, [record.name for record in some], options))
        return [(answer.output, answer.stopped_at) for answer in found]

    samples, stops = list[Sample](), Counter[str | None]()
    for some, answers in shared(answered, batched(records, TOGETHER)):
        for record, (output, stopped_at) in zip(some, answers, strict=True):
            samples.append(Sample(record.name, output, " / ".join(record.fields[1:])))
            stops[stopped_at] += 1
    return samples, stop_notes(stops)


def transcript_scores(samples: Sequence[Sample]) -> Scores:
    answers, wanted = [sample.answer for sample in samples], [sample.wanted for sample in samples]
    return replace(score_pairs(answers, wanted, by=TRANSCRIPT_METRICS), things="sounds")


def tokens_of(frames: int, factor: int) -> int:
    """How many tokens so many frames are."""
    return -(-frames // factor)


def symbol_log_probs(model: nn.Module, read: ModelInput) -> tuple[Tensor, list[int]]:
    """The logarithm of each symbol's probability, B T V, and how many of T are real in each row."""
    assert isinstance(model, Trunk)
    found, inner = model(*read), model.inner(read.context)
    if inner.rows is None:
        return found, [found.shape[1]] * found.shape[0]
    return padded(found, inner.rows), list(inner.rows.lengths)
