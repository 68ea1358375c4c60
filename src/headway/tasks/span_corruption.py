"""Span corruption, as T5 does it: runs of tokens are taken out, and written in order by the decoder.

the quick brown fox jumps over  →  the <0> fox <1> over   and to write   <0> quick brown <1> jumps <2>

A run may also stand at either end.  (In T5's first code a row always ended with one: of a short row, which has but one
run, that would always be its end.)
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import nn

from headway.data.records import Record
from headway.data.splits import DataSplits
from headway.data.tokenizer import Tokenizer
from headway.errors import UserError
from headway.generate.request import begin_of
from headway.generate.sampling import RandomSampler
from headway.nn.trunk import EncoderDecoder
from headway.recipe import Recipe
from headway.tasks.base import TaskSetup
from headway.tasks.batches import Row, TokenPrediction, ids, some
from headway.tasks.generation import GREEDY_OPTIONS, WRITING, GenerationOptions
from headway.tasks.language_modelling import REPORT_TOKENS, TEMPERATURE, LanguageModelling, WindowBatch, own_random
from headway.tasks.model_parts import ModelParts
from headway.tasks.results import (
    SHOWN_SAMPLES,
    EvalResult,
    ReportDetails,
    Sample,
    TextPrediction,
    TracedInput,
    caption,
)
from headway.tasks.seq2seq import PairBatch, Seq2Seq, pair_batch, target_predictions
from headway.tasks.text_tasks import (
    DEFAULT_CONTEXT,
    SENTINELS,
    Framing,
    context_for,
    merged_settings,
    one_tokenizer,
    sentinels_of,
)
from headway.tasks.text_tracing import readable, special
from headway.tasks.tracing import TracedRun, TraceOptions


@dataclass(frozen=True, eq=False)
class SpanCorruption(LanguageModelling):
    """Write the runs that were taken out: a `share` of the tokens, in runs of `length` on average.

    `sentinels` are the ids of the tokens that stand for the runs, in their order.
    """

    decoding = WRITING
    name = "span-corruption"
    does = "writes what was taken out of texts"
    architectures = Seq2Seq.architectures
    presets_by_size = ("t5-tiny", "t5-mini", "t5-small")
    sampling: ClassVar[Mapping[str, float]] = {"temperature": TEMPERATURE}

    tokenizer: Tokenizer
    start_token: int
    sentinels: tuple[int, ...]
    share: float = 0.15
    length: float = 3.0
    max_length: int = DEFAULT_CONTEXT
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        if len(self.sentinels) < 2:
            said = f"{len(self.sentinels)} tokens to mark spans with"
            raise UserError(said, allowed="2 or more, such as <extra_id_0>")

    @classmethod
    def from_data(cls, splits: DataSplits, recipe: Recipe, start: ModelParts | None) -> TaskSetup:
        tokenizer, chosen = one_tokenizer(recipe, splits, start, "bpe", Framing(eos=True, sentinels=SENTINELS))
        begin = begin_of(start.extra_config if start else {}, tokenizer.bos)
        task = cls(tokenizer, begin, sentinels_of(tokenizer))
        task = replace(task, settings=merged_settings(start, task.extra_config()))
        return TaskSetup(task, tokenizer, tokenizer, chosen)

    @classmethod
    def from_model(cls, parts: ModelParts) -> Self | None:
        tokenizer, target = parts.tokenizer, parts.target_tokenizer
        sentinels = () if tokenizer is None else sentinels_of(tokenizer)
        if not isinstance(parts.model, EncoderDecoder) or tokenizer is None or len(sentinels) < 2:
            return None
        begin = begin_of(parts.extra_config, (target or tokenizer).bos)
        return cls(tokenizer, begin, sentinels, max_length=context_for(parts), settings=parts.extra_config)

    def extra_config(self) -> Mapping[str, Any]:
        return {"decoder_start_token_id": self.start_token, "eos_token_id": self.tokenizer.eos}

    # ---- learning

    def stride(self, context: int) -> int:
        return context - 1 - len(some(self.tokenizer.eos))  # sentinels are never more than the tokens they stand for

    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> PairBatch:
        whole = [row for (row,) in rows if len(row) > 1] or [rows[0][0]]
        return pair_batch([self.corrupted(row, random) for row in whole], self.start_token)

    def corrupted(self, row: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """What is left, and what was taken out, each with the sentinels of the runs and the end."""
        gone = round(min(max(len(row) * self.share, 1), len(row) - 1))
        runs = round(min(max(gone / self.length, 1), gone, len(row) - gone, len(self.sentinels) - 1))
        sizes = np.zeros(2 * runs + 1, dtype=np.int64)  # what is left, taken out, left …: at the ends perhaps nothing
        sizes[0::2], sizes[1::2] = parts(len(row) - gone + 2, runs + 1, random), parts(gone, runs, random)
        sizes[0] -= 1
        sizes[-1] -= 1
        pieces, marks = np.split(row, np.cumsum(sizes)[:-1]), self.sentinels[: runs + 1]
        left = [part for pair in zip(pieces[0::2], marks, strict=True) for part in pair][:-1]
        out = [part for pair in zip(marks, pieces[1::2], strict=False) for part in pair]
        end = some(self.tokenizer.eos)
        return ids(*left, end), ids(*out, marks[-1], end)

    @property
    def input_encoding(self) -> Mapping[str, object]:
        return {**super().input_encoding, "first token of a target": self.start_token}

    def predicted(self, model: nn.Module, batch: PairBatch) -> TokenPrediction:
        return target_predictions(model, batch)

    # ---- evaluation by windows

    def windows(self, rows: Sequence[np.ndarray]) -> WindowBatch:
        pairs = [self.corrupted(row, own_random(row)) for row in rows]
        return WindowBatch(pair_batch(pairs, self.start_token), [len(target) for _, target in pairs])

    @property
    def notes(self) -> tuple[str, ...]:
        return ("of spans that were taken out of the texts",)

    # ---- use: as any encoder–decoder

    @property
    def writer(self) -> Seq2Seq:
        """The same model as one that writes a text from a text."""
        return Seq2Seq(self.tokenizer, self.tokenizer, self.start_token, 0.0, self.max_length, settings=self.settings)

    def predict(
        self, model: nn.Module, inputs: Sequence[str], options: GenerationOptions = GREEDY_OPTIONS
    ) -> Iterator[TextPrediction]:
        return self.writer.predict(model, inputs, options)

    def stream(
        self, model: nn.Module, text: str, options: GenerationOptions = GREEDY_OPTIONS
    ) -> Generator[str, None, TextPrediction]:
        return self.writer.stream(model, text, options)

    def trace(self, model: nn.Module, input: str, options: TraceOptions) -> TracedRun:
        """Sentinels are read as such also where a tokenizer takes every text literally."""
        tokenizer = replace(self.tokenizer, literal=False)
        return replace(self, tokenizer=tokenizer).writer.trace(model, input, options)

    @torch.inference_mode()
    def report_details(
        self, model: nn.Module, batches: Sequence[PairBatch], records: Sequence[Record], found: EvalResult
    ) -> ReportDetails:
        """What the model writes for the spans that were taken out of some validation rows."""
        batch, tokenizer = batches[0], self.tokenizer
        sources = [row.tolist() for row in batch.source.split()[:SHOWN_SAMPLES]]
        wanted = batch.wanted.split(batch.read.lengths)
        options = GenerationOptions(RandomSampler(temperature=TEMPERATURE), max_new_tokens=REPORT_TOKENS)
        written = self.writer.job(model, sources, options).generate(options.decoding)
        samples = [
            Sample(*(readable(tokenizer, ids) for ids in (source, one.body, right.tolist()[:-1])))
            for source, [one], right in zip(sources, written, wanted, strict=False)
        ]
        how = f"at most {REPORT_TOKENS} tokens, sampled at temperature {TEMPERATURE}"
        note = f"What the model writes for the spans that were replaced by sentinels: {how}."
        ends = special(tokenizer) - set(self.sentinels)
        texts = [readable(tokenizer, [id for id in source if id not in ends]) for source in sources]
        traced = [TracedInput(caption(s, graded=False), text) for s, text in zip(samples, texts, strict=True)]
        return ReportDetails(found.scores, samples, note, traced)


def parts(total: int, count: int, random: np.random.Generator) -> np.ndarray:
    """`total` in `count` parts of 1 or more, every way equally likely."""
    if count == 0:
        return np.zeros(0, dtype=np.int64)
    cuts = np.sort(random.choice(total - 1, count - 1, replace=False)) + 1
    return np.diff(np.concatenate([[0], cuts, [total]]))
