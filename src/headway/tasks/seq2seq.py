"""Sequence to sequence: translation, spelling to sound, text to text.  Any encoder–decoder learns it.

Axes:  N tokens of all sources   M tokens of all targets   C width
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from headway.data.order import batched
from headway.data.tokenizer import Tokenizer
from headway.distributed.sharing import shared
from headway.errors import UserError
from headway.generate.request import begin_of
from headway.generate.session import context_of, encode_sources
from headway.nn.context import EMPTY
from headway.nn.head import word_head
from headway.nn.trunk import EncoderDecoder, device_of
from headway.tasks.base import TaskSetup
from headway.tasks.batches import Batch, PackedBatch, Row, TokenPrediction, cut, ids
from headway.tasks.distillation import PredictsTargets
from headway.tasks.generation import (
    GREEDY_OPTIONS,
    LANGUAGES,
    WRITING,
    GenerationOptions,
    hypotheses,
    longest_target,
    source_draft,
    stored_limit,
    streamed,
    token_limit,
    writing_job,
)
from headway.tasks.model_parts import ModelParts, reads_media, required_tokenizer
from headway.tasks.results import (
    DEFAULT_EVALUATION,
    BaselineData,
    BaselineResult,
    CollectedAnswers,
    EvalOptions,
    EvalResult,
    Sample,
    TextPrediction,
    stop_notes,
)
from headway.tasks.text_tasks import (
    MAX_LENGTH,
    TokenRows,
    context_for,
    given,
    merged_settings,
    side,
    started,
    two_tokenizers,
)
from headway.zoo.build import vocabulary_of

if TYPE_CHECKING:
    from headway.data.records import Record
    from headway.data.splits import DataSplits
    from headway.metrics.scores import Scores
    from headway.recipe import Recipe
    from headway.tasks.tracing import TracedRun, TraceOptions

ANSWERED_TOGETHER = 64  # texts
READ_TOGETHER = 1000  # records
MANY_WORDS = 1.5  # words of a target on average; one of fewer is right or wrong, not more or less fluent
FEW_WORDS = 4  # words of a source on average; of fewer, characters tell more
MAX_SYMBOLS, SYMBOL_USES = 300, 8  # a notation, such as phonemes, has few symbols, and each is used often


@dataclass(frozen=True, eq=False)
class PairBatch(Batch):
    source: PackedBatch
    read: PackedBatch  # by the decoder: the start token, then the target without its end
    wanted: Tensor  # M, the token after each of these

    @property
    def tokens(self) -> int:
        return len(self.source) + len(self.read)

    def tokens_at(self, site: str) -> Tensor:
        return self.read.ids if site.startswith("decoder.") else self.source.ids


def pair_batch(pairs: Sequence[tuple[np.ndarray, np.ndarray]], start: int) -> PairBatch:
    """Sources and the targets that are to be written from them, after `start`."""
    read = PackedBatch.of([ids(start, target[:-1]) for _, target in pairs])
    wanted = torch.from_numpy(ids(*(target for _, target in pairs)))
    return PairBatch(PackedBatch.of([source for source, _ in pairs]), read, wanted)


def target_predictions(model: nn.Module, batch: PairBatch, smoothing: float = 0.0) -> TokenPrediction:
    """What the decoder is to predict, with the encoded source as its memory."""
    assert isinstance(model, EncoderDecoder)
    ctx = model.remember(batch.source.ids, batch.source.context, batch.read.context)
    features = model.decoder.features(batch.read.ids, ctx)
    return TokenPrediction(word_head(model.decoder.head), features.flatten(0, 1), batch.wanted, smoothing)


@dataclass(frozen=True, eq=False)
class Seq2Seq(TokenRows, PredictsTargets):
    """Write the target from the source; `prefix` stands before each source and says what is to be done, as in T5.

    The tokenizers frame a text as the model wants it: with an end, at least.  Longer sides are cut to `max_length`.
    `settings` are what the model's config says of the tokens that it writes.
    """

    decoding = (*WRITING, *LANGUAGES)
    name = "seq2seq"
    does = "writes a text from a text"
    target = "token"
    beams = True
    architectures = ("transformer", "rnn", "seq2seq", "t5", "t5gemma", "bart", "led", "marian", "mbart")
    presets_by_size = ("transformer-nano", "transformer-tiny", "transformer-small", "transformer-base")

    tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    start_token: int
    label_smoothing: float = 0.1
    max_length: int = MAX_LENGTH
    prefix: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])

    # ---- from data, and from a model

    @classmethod
    def from_data(cls, splits: DataSplits, recipe: Recipe, start: ModelParts | None) -> TaskSetup:
        data = recipe.data
        if start is None:
            source, target, chosen, note = two_tokenizers(recipe, splits, joint=joint_preset(recipe))
        else:
            (source, target), chosen, note = started(start), {}, ""
        smoothing, longest = given(recipe.train.label_smoothing, 0.1), given(data.max_length, MAX_LENGTH)
        begin = begin_of(start.extra_config if start else {}, target.bos)
        task = cls(
            source, target, begin, smoothing, longest, data.prefix, longest_target(target, side(splits, 1), longest)
        )
        task = replace(task, settings=merged_settings(start, task.extra_config()))
        chosen = {**chosen, "train.label_smoothing": smoothing, "data.max_length": longest}
        return TaskSetup(task, source, target, chosen, note=note)

    @classmethod
    def from_model(cls, parts: ModelParts) -> Self | None:
        if not isinstance(parts.model, EncoderDecoder) or reads_media(parts):
            return None
        source = required_tokenizer(parts)
        target, settings = parts.target_tokenizer or source, parts.extra_config
        begin, prefix = begin_of(settings, target.bos), settings.get("prefix") or ""
        return cls(source, target, begin, 0.0, context_for(parts), prefix, settings)

    def extra_config(self) -> Mapping[str, Any]:
        told: dict[str, Any] = {"decoder_start_token_id": self.start_token, "eos_token_id": self.target_tokenizer.eos}
        return told | stored_limit(self.settings) | ({"prefix": self.prefix} if self.prefix else {})

    # ---- learning

    def encode(self, fields: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        sources = self.sources([source for source, _ in fields])
        targets = self.target_tokenizer.encode_batch([target for _, target in fields])
        return [[cut(side, self.max_length) for side in pair] for pair in zip(sources, targets, strict=True)]

    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> PairBatch:
        return pair_batch([(row[0], row[1]) for row in rows], self.start_token)

    @property
    def input_encoding(self) -> Mapping[str, object]:
        target = self.target_tokenizer.backend.get_vocab()
        return {**super().input_encoding, "target tokenizer": target, "first token of a target": self.start_token}

    def predicted(self, model: nn.Module, batch: PairBatch) -> TokenPrediction:
        return target_predictions(model, batch, self.label_smoothing)

    def without_augmentation(self) -> Self:
        return replace(self, label_smoothing=0.0)

    # ---- use

    def sources(self, texts: Sequence[str]) -> list[list[int]]:
        """What the encoder reads: texts behind the prefix that it was trained with, where there was one."""
        return self.tokenizer.encode_batch([self.prefix + text for text in texts])

    @torch.inference_mode()
    def predict(
        self, model: nn.Module, inputs: Sequence[str], options: GenerationOptions = GREEDY_OPTIONS
    ) -> Iterator[TextPrediction]:
        rows = self.fitted(model, inputs)
        job = self.job(model, [row.ids for row in rows], options)
        for text, row, found in zip(inputs, rows, job.generate(options.decoding), strict=True):
            texts = [job.stop.text(one.tokens) for one in found]
            yield TextPrediction(text, hypotheses(found, texts), cut=row.cut)

    def stream(
        self, model: nn.Module, text: str, options: GenerationOptions = GREEDY_OPTIONS
    ) -> Generator[str, None, TextPrediction]:
        """The answer to one text, piece by piece as it is written."""
        [(row, cut, _)] = self.fitted(model, [text])
        found = yield from streamed(self.job(model, [row], options), self.target_tokenizer.stream(), options)
        return TextPrediction(text, (found,), cut=cut)

    def job(self, model: nn.Module, sources: list[list[int]], options: GenerationOptions) -> Any:
        """The decoding of answers to sources."""
        assert isinstance(model, EncoderDecoder)
        settings, start, (source, target) = self.settings, self.start_token, options.languages
        if source is not None:
            sources = self.tokenizer.in_language(sources, source)
        if target is not None:
            settings = {**settings, "forced_bos_token_id": self.target_tokenizer.language(target)}
        draft = source_draft(options, sources, same_tokens=self.tokenizer is self.target_tokenizer)
        memory = encode_sources(model, sources)
        return writing_job(model, memory, len(sources), self.target_tokenizer, settings, [start], options, draft)

    def evaluate(
        self, model: nn.Module, records: Iterable[Record], options: EvalOptions = DEFAULT_EVALUATION
    ) -> EvalResult:
        """By what `predict` writes, whatever the targets are."""
        by = options.metrics or metrics_for(records)
        answers, stops = CollectedAnswers(), Counter[str | None]()
        for part in batched(records, READ_TOGETHER):
            self.check_lengths(model, part)
            sources = [record.fields[0] for record in part]
            found = self.answers(model, sources, options.generation)
            stops.update(stopped_at for _, stopped_at in found)
            told = zip(sources, found, part, strict=True)
            answers.add(Sample(source, output, record.fields[1]) for source, (output, _), record in told)
        extra = {"max_new_tokens": token_limit(self.settings, options.generation, begun=1)}
        return EvalResult(text_scores(answers, by), answers.samples, stop_notes(stops), extra)

    def answers(
        self, model: nn.Module, sources: Sequence[str], options: GenerationOptions
    ) -> list[tuple[str, str | None]]:
        """What a model writes for each source, and what ended it; those of like length are answered together."""

        def answered(some: Sequence[int]) -> list[tuple[str, str | None]]:
            return [(one.output, one.stopped_at) for one in self.predict(model, [sources[at] for at in some], options)]

        order = sorted(range(len(sources)), key=lambda at: len(sources[at]))
        found = dict[int, tuple[str, str | None]]()
        for some, answers in shared(answered, batched(order, ANSWERED_TOGETHER)):
            found |= dict(zip(some, answers, strict=True))
        return [found[at] for at in range(len(sources))]

    def baselines(self, model: nn.Module, data: BaselineData, found: EvalResult) -> Iterator[BaselineResult]:
        from headway.metrics.baselines import most_frequent

        usual = most_frequent(record.fields[1] for record in data.train)
        simple: dict[str, Callable[[Sample], str]] = {
            "the most frequent target": lambda one: usual,
            "copying the source": lambda one: one.source,
        }
        for name, answer in simple.items():
            answers = CollectedAnswers()
            answers.add(one._replace(answer=answer(one)) for one in found.samples)
            yield BaselineResult(name, text_scores(answers, tuple(found.scores.numbers)))

    def check_lengths(self, model: nn.Module, records: Sequence[Record]) -> None:
        """Refuses sources that the model has no positions for; a cut source could not be translated whole."""
        assert isinstance(model, EncoderDecoder)
        context = context_of(model.encoder)
        if context is None:
            return
        for record, row in zip(records, self.sources([record.fields[0] for record in records]), strict=True):
            if len(row) > context:
                place = f"{record.file}:{record.line}"
                said = f"{place}: the source has {len(row):,} tokens and the model reads {context:,}"
                raise UserError(said, do="shorten it, or leave it out")

    def trace(self, model: nn.Module, input: str, options: TraceOptions) -> TracedRun:
        """A source and what is written for it."""
        from headway.tasks.text_tracing import check_length, tokens, traced_writing, writing_of

        assert isinstance(model, EncoderDecoder)
        [source] = self.sources([input])
        check_length(len(source), context_of(model.encoder))
        axis, target = tokens("source", source, self.tokenizer), self.target_tokenizer
        read = torch.tensor([source], device=device_of(model)), EMPTY
        write = writing_of(lambda: self.job(model, [source], GREEDY_OPTIONS), options.prefix)
        return traced_writing(model, read, target, axis, axis, options, write)


def joint_preset(recipe: Recipe) -> bool:
    """Whether the preset that was asked for reads and writes with one table of tokens."""
    from headway.zoo.presets import preset

    return recipe.model.preset is not None and vocabulary_of(preset(recipe.model.preset).architecture).joint_only


def metrics_for(records: Iterable[Record]) -> tuple[str, ...]:
    """What targets are measured by, the decisive metric first."""
    count, words, symbols = 0, 0, set[str]()
    for record in records:
        found = record.fields[1].split()
        count, words = count + 1, words + len(found)
        if len(symbols) <= MAX_SYMBOLS:
            symbols.update(found)
    if words <= MANY_WORDS * count:
        return ("exact", "character_error_rate")
    notation = len(symbols) <= min(MAX_SYMBOLS, words / SYMBOL_USES)
    return ("word_error_rate", "exact") if notation else ("bleu", "chrf", "exact")


def text_scores(answers: CollectedAnswers, by: Sequence[str]) -> Scores:
    """By the length of sources: in characters where they have few words, else in words."""
    from headway.metrics.scoring import score_pairs

    few = sum(answers.words) <= FEW_WORDS * len(answers.words)
    lengths, unit = (answers.characters, "characters") if few else (answers.words, "words")
    return replace(score_pairs(answers.answers, answers.wanted, lengths, by=by), unit=unit)
