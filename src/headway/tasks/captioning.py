"""Texts about media: a captioner writes them of images, an encoder–decoder writes down speech.

A row holds a sample and all texts about it, so that a sample is opened and encoded once for all of them.

Axes:  B texts   M tokens of all texts
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from headway.data.order import batched
from headway.data.records import Record
from headway.data.splits import DataSplits
from headway.data.tokenizer import Tokenizer
from headway.data.transforms.compose import generators
from headway.data.transforms.geometry import RandomResizedCrop
from headway.errors import UserError
from headway.generate.decoding import Job
from headway.generate.request import begin_of
from headway.generate.session import context_of
from headway.metrics.baselines import most_frequent
from headway.metrics.captions import score_captions
from headway.nn.image_words import Illustrated
from headway.nn.trunk import Captioner, EncoderDecoder
from headway.ops.losses import Baseline
from headway.recipe import Recipe
from headway.tasks.base import TaskSetup
from headway.tasks.batches import DataRow, Row, cut, some
from headway.tasks.caption_batches import (
    CaptionBatch,
    caption_batch,
    caption_predictions,
    hard_loss,
    has_hard_attention,
    has_soft_attention,
    soft_loss,
)
from headway.tasks.causal_decoder import CausalDecoder
from headway.tasks.ctc_speech import Transcribes, about_media
from headway.tasks.generation import (
    GREEDY_OPTIONS,
    PROMPT,
    WRITING,
    GenerationOptions,
    hypotheses,
    longest_target,
    stored_limit,
    token_limit,
    writing_job,
)
from headway.tasks.image_prompt import IllustratedDecoder, ImagePrompt
from headway.tasks.inputs import ImageInput, Input, ModelInput, input_of
from headway.tasks.media_tasks import (
    AUGMENTATIONS,
    SUBSAMPLING,
    Augmentations,
    InputSetup,
    MediaTask,
    batch_size,
    first_texts,
    image_setup,
    sound_setup,
    stored_sample,
    stored_text,
)
from headway.tasks.model_parts import ModelParts
from headway.tasks.results import (
    DEFAULT_EVALUATION,
    BaselineData,
    BaselineResult,
    EvalOptions,
    EvalResult,
    TextPrediction,
)
from headway.tasks.text_tasks import DEFAULT_CONTEXT, Framing, given, merged_settings, one_tokenizer
from headway.tasks.text_tracing import traced_writing, writing_of
from headway.tasks.tracing import TracedRun, TraceOptions, cells

CAPTION_TOKENS = 64  # of a caption, unless given
IMAGES_PER_BATCH = 32  # with all their captions
TOGETHER = 32  # samples at a time
# crops that leave most of what a caption tells of
CAPTION_CROPS: Augmentations = {
    **AUGMENTATIONS,
    "crop": lambda ready: RandomResizedCrop(*ready.size, (0.6, 1.0), mode=ready.mode),
}


class TextsAboutMedia(MediaTask):
    """Samples with texts: `tokenizer` frames a text as the model wants it, with an end, cut to `max_length`."""

    columns = 4  # where the sample is, its size, the ids of all texts, and how long each of these is

    tokenizer: Tokenizer | None
    max_length: int

    def encode(self, fields: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        return [[*stored_sample(self.input, place, extent), *self.written(texts)] for place, extent, *texts in fields]

    def written(self, texts: list[str]) -> tuple[list[int], list[int]]:
        rows = [cut(row, self.max_length) for row in self.framed(texts)]
        return [id for row in rows for id in row], [len(row) for row in rows]

    def framed(self, texts: list[str]) -> list[list[int]]:
        return self.words().encode_batch(texts)

    def words(self) -> Tokenizer:
        if self.tokenizer is None:
            raise UserError("this model's folder holds no tokenizer", do="add tokenizer.json")
        return self.tokenizer


@dataclass(frozen=True, eq=False)
class WritesAboutMedia(TextsAboutMedia):
    """Write each text about a sample, after `start_token`.

    A recurrent captioner learns besides where to look: with soft attention to look everywhere in the end (weighed by
    `evenness`), with hard attention by REINFORCE, where the baseline is how good its captions have been of late.
    """

    decoding = WRITING
    target = "token"
    beams = True
    reads: ClassVar[str]  # images or sounds

    input: Input
    tokenizer: Tokenizer | None
    max_length: int
    start_token: int
    label_smoothing: float = 0.1
    evenness: float = 1.0
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    prompt: ImagePrompt | None = None  # in the place of the start token, of a model that reads images among words

    # ---- from data, and from a model

    @classmethod
    def setup(
        cls,
        recipe: Recipe,
        splits: DataSplits,
        start: ModelParts | None,
        read: InputSetup[Any],
        level: str,
        head: str | None = None,
    ) -> TaskSetup:
        """The task for samples that are read so, with texts in tokens of a level."""
        input, chosen, config = read
        tokenizer, more = one_tokenizer(recipe, splits, start, level, Framing(eos=True))
        smoothing, longest = given(recipe.train.label_smoothing, 0.1), given(recipe.data.max_length, CAPTION_TOKENS)
        begin = begin_of(start.extra_config if start else {}, tokenizer.bos)
        texts = (text for record in splits.train() for text in record.fields[1:])
        limit = longest_target(tokenizer, texts, longest)
        prompt = prompt_of(start, input)
        task = cls(input, tokenizer, longest, begin, smoothing, settings=limit, prompt=prompt)
        task = replace(task, settings=merged_settings(start, task.extra_config()))
        chosen = {**chosen, **more, "train.label_smoothing": smoothing, "data.max_length": longest}
        config = {**config, "vocab": tokenizer.vocab}
        return TaskSetup(task, tokenizer, tokenizer, chosen, 0, config, head, input.preprocess)

    @classmethod
    def from_model(cls, parts: ModelParts) -> Self | None:
        found = input_of(parts) if isinstance(parts.model, EncoderDecoder) else None
        if found is None or found.noun != cls.reads:
            return None
        assert isinstance(parts.model, EncoderDecoder)
        tokenizer, settings = parts.target_tokenizer or parts.tokenizer, parts.extra_config
        start = 0 if tokenizer is None else begin_of(settings, tokenizer.bos)
        longest = context_of(parts.model.decoder) or DEFAULT_CONTEXT
        return cls(found, tokenizer, longest, start, 0.0, 0.0, settings, prompt_of(parts, found))

    def extra_config(self) -> Mapping[str, Any]:
        told: dict[str, Any] = {"decoder_start_token_id": self.start_token, "eos_token_id": self.words().eos}
        return told | stored_limit(self.settings)

    # ---- learning

    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> CaptionBatch:
        seen, owners = opened_once(self.input, rows, random)
        texts = [texts_of(row) for row in rows]
        each = [owner for owner, known in zip(owners, texts, strict=True) for _ in known]
        captions = [text for known in texts for text in known]
        return caption_batch(seen, each, captions, self.opening(), batch_size(rows))

    def opening(self, request: str | None = None) -> list[int]:
        """What a text is written after."""
        if self.prompt is not None:
            return self.prompt.ids(self.words(), request)
        if request is not None:
            raise UserError("the model writes about images and is asked nothing", do="leave prompt= out")
        return [self.start_token]

    def loss(self, model: nn.Module, batch: CaptionBatch) -> Tensor:
        if self.evenness and has_soft_attention(model):
            assert isinstance(model, Captioner)
            return soft_loss(model, batch, smoothing=self.label_smoothing, evenness=self.evenness)
        return caption_predictions(model, batch, self.label_smoothing).loss()

    def memory(self, model: nn.Module) -> Mapping[str, Tensor] | None:
        return baseline_tensors(Baseline()) if has_hard_attention(model) else None

    def loss_after(
        self, model: nn.Module, batch: CaptionBatch, memory: Mapping[str, Tensor]
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        assert isinstance(model, Captioner)
        before = Baseline(memory["value"].item(), batches=int(memory["batches"]))
        loss, after = hard_loss(model, batch, before, smoothing=self.label_smoothing)
        return loss, baseline_tensors(after)

    def without_augmentation(self) -> Self:
        return replace(self, input=self.input.without_augmentation(), label_smoothing=0.0, evenness=0.0)

    def has_loss(self, model: nn.Module, described: bool) -> bool:
        return described and self.tokenizer is not None

    def loss_rows(self, model: nn.Module, records: Iterable[Record]) -> Iterator[DataRow]:
        """Of several texts about one sample, the first."""
        return super().loss_rows(model, first_texts(records))

    def text_length(self, row: list[list[int]]) -> int:
        return len(row[2])

    def framed(self, texts: list[str]) -> list[list[int]]:
        """With an end, and a beginning that is not the tokenizer's where the model has its own: BLIP and LLaVA."""
        if self.prompt is not None:
            return [[*row, *some(self.words().eos)] for row in self.words().plain_batch(texts)]
        rows, first = super().framed(texts), self.words().bos
        if self.start_token == first or self.settings.get("bos_token_id") != self.start_token:
            return rows
        return [row[1:] if row[:1] == [first] else row for row in rows]

    # ---- use

    @torch.inference_mode()
    def predict(
        self, model: nn.Module, inputs: Sequence[str], options: GenerationOptions = GREEDY_OPTIONS
    ) -> Iterator[TextPrediction]:
        for batch in batched(inputs, TOGETHER):
            job = self.job(model, self.read(model, batch), options)
            for one, found in zip(batch, job.generate(options.decoding), strict=True):
                yield TextPrediction(one, hypotheses(found, [job.stop.text(each.tokens) for each in found]))

    def decoding_limits(self, options: GenerationOptions) -> dict[str, int]:
        return {"max_new_tokens": token_limit(self.settings, options, begun=len(self.opening(options.prompt)))}

    def causal_decoder(self, model: nn.Module) -> CausalDecoder | None:
        """Of a model that reads images among words: its texts and conversations may have any number of them."""
        if self.prompt is None or self.tokenizer is None:
            return None
        assert isinstance(model, Illustrated)
        assert isinstance(self.input, ImageInput)
        return IllustratedDecoder(model.decoder, model, self.prompt, self.input, self.tokenizer, self.settings)

    def job(self, model: nn.Module, read: ModelInput, options: GenerationOptions) -> Job:
        assert isinstance(model, EncoderDecoder)
        memory, rows = model.remember(*read), len(read.lengths)
        return writing_job(model, memory, rows, self.words(), self.settings, self.opening(options.prompt), options)

    def trace(self, model: nn.Module, input: str, options: TraceOptions) -> TracedRun:
        """A text for all of a sample."""
        assert isinstance(model, EncoderDecoder)
        shown, words = self.shown(model, input), self.words()
        memory = cells(model.grid(shown.read.inputs)) if isinstance(model, Captioner) else shown.axis
        assert memory is not None
        write = writing_of(lambda: self.job(model, shown.read, GREEDY_OPTIONS), options.prefix)
        run = traced_writing(model, shown.read, words, shown.axis, memory, options, write)
        return replace(run, picture=shown.picture, sound=shown.sound)


class Captioning(WritesAboutMedia):
    """Write what is on an image.

    `--from` a model of images (a classifier, MAE, SimCLR, CLIP) makes its encoder that of a new captioner, whose
    decoder `--preset` chooses; `--freeze encoder` trains the decoder alone.
    """

    name = "captioning"
    does = "writes what is on an image"
    reads = "images"
    architectures = ("captioner", "vit_captioner", "trocr", "blip", "llava")
    decoding = (*WRITING, PROMPT)
    encoder_place = "encoder."
    presets_by_size = ("captioner-small", "captioner")
    sample_names = ("image", "the model", "people")
    graded = False

    @classmethod
    def from_data(cls, splits: DataSplits, recipe: Recipe, start: ModelParts | None) -> TaskSetup:
        found = image_setup(recipe, splits, start, CAPTION_CROPS, ("crop",))  # a caption may say left and right
        found.chosen["train.batch"] = given(recipe.train.batch, IMAGES_PER_BATCH)
        return cls.setup(recipe, splits, start, found, "bpe")

    def evaluate(
        self, model: nn.Module, records: Iterable[Record], options: EvalOptions = DEFAULT_EVALUATION
    ) -> EvalResult:
        """By all captions of each image."""
        known = list(records)
        samples, notes = about_media(self, model, known, options.generation)
        scores = score_captions([sample.answer for sample in samples], [record.fields[1:] for record in known])
        return EvalResult(scores, samples, notes, self.decoding_limits(options.generation))

    def baselines(self, model: nn.Module, data: BaselineData, found: EvalResult) -> Iterator[BaselineResult]:
        usual = most_frequent(text for record in data.train for text in record.fields[1:])
        known = [record.fields[1:] for record in data.validation]
        yield BaselineResult("the most frequent caption", score_captions([usual] * len(known), known))


class SpeechSeq2Seq(WritesAboutMedia, Transcribes):
    """Write what is said in a sound, by a decoder."""

    name = "speech-seq2seq"
    reads = "sounds"
    architectures = ("conformer",)
    presets_by_size = ("conformer-nano", "conformer-s")

    @classmethod
    def from_data(cls, splits: DataSplits, recipe: Recipe, start: ModelParts | None) -> TaskSetup:
        found = sound_setup(recipe, splits, start)
        found.config["factor"] = recipe.model.sizes.get("factor", SUBSAMPLING)
        return cls.setup(recipe, splits, start, found, "characters", head="decoder")


def prompt_of(parts: ModelParts | None, input: Input) -> ImagePrompt | None:
    """That of a model that reads images among words, for images as they are read."""
    return ImagePrompt.of(parts.model, input.preprocess.size) if parts and isinstance(input, ImageInput) else None


def baseline_tensors(baseline: Baseline) -> dict[str, Tensor]:
    """A baseline as tensors, every bit of it."""
    return {"value": torch.tensor(baseline.value, dtype=torch.float64), "batches": torch.tensor(baseline.batches)}


def opened_once(input: Input, rows: Sequence[Row], random: np.random.Generator) -> tuple[ModelInput, list[int]]:
    """The samples of some rows, each opened once, and the number of each row's."""
    places = [stored_text(row[0]) for row in rows]
    numbers = {place: at for at, place in enumerate(dict.fromkeys(places))}
    draws = generators(random, len(numbers))
    samples = [input.load(place, draw) for place, draw in zip(numbers, draws, strict=True)]
    return input.collate(samples), [numbers[place] for place in places]


def texts_of(row: Row) -> list[np.ndarray]:
    """The ids of each text about a sample."""
    return np.split(row[2], np.cumsum(row[3])[:-1])
