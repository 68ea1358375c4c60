"""Extractive question answering: the part of a context that answers a question, or none.

An input is typed as `question ||| context`.  The model says of each token how well an answer begins and ends there; the
best begin and end of all windows of the context are the answer, and the first token stands for no answer (Devlin et al.
2018, section 4.2 and 4.3).

Axes:  B windows   T tokens of a window
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.data.composed import PAIR, answers_in, halves
from headway.data.order import batched
from headway.data.records import Record
from headway.data.splits import DataSplits
from headway.data.text_windows import ContextWindow, WindowReader
from headway.data.tokenizer import Tokenizer
from headway.distributed.sharing import shared
from headway.errors import UserError
from headway.metrics.baselines import most_frequent, sentence_like
from headway.metrics.structured import score_answers
from headway.nn.head import TokenClassifier, main_head
from headway.nn.trunk import Trunk, device_of
from headway.recipe import Recipe
from headway.tasks.base import TaskSetup
from headway.tasks.batches import DataRow, EncoderInput, PackedBatch, Row, TextBatch, ids, to_device
from headway.tasks.generation import GREEDY_OPTIONS, GenerationOptions
from headway.tasks.model_parts import SPANS, ModelParts, required_tokenizer
from headway.tasks.results import (
    DEFAULT_EVALUATION,
    BaselineData,
    BaselineResult,
    EvalOptions,
    EvalResult,
    Prediction,
    Sample,
    example_of,
)
from headway.tasks.text_classification import TextLabelTask
from headway.tasks.text_tasks import Framing, TokenRows, context_for, given, one_tokenizer, sample_text
from headway.tasks.text_tracing import check_length, text_axes
from headway.tasks.tracing import Choices, TracedRun, TraceOptions

MAX_WINDOW, STRIDE = 384, 128  # tokens of a window, and of a context that two windows have in common: as in BERT
MAX_ANSWER_TOKENS = 30
MAX_PLACE = 2**16 - 1  # the largest place of a token that is kept in two bytes
ASKED_TOGETHER = 16  # questions
NO_ANSWER = ""


@dataclass(frozen=True)
class ExtractedAnswer(Prediction):
    """A part of a context, and the characters where it stands; `score` is by how much it beats no answer."""

    output: str
    score: float
    start: int
    end: int

    def to_dict(self) -> dict[str, Any]:
        return {
            "input": self.input,
            "output": self.output,
            "score": self.score,
            "start": self.start,
            "end": self.end,
        }

    def to_text(self) -> str:
        return self.output or "no answer"


class BestSpan(NamedTuple):
    """The best answer of one window or of several: the sum of two logits, and its characters."""

    score: float
    begin: int
    end: int


@dataclass(frozen=True, eq=False)
class SpanBatch(TextBatch):
    read: PackedBatch
    wanted: Tensor  # B 2: the tokens where the answer begins and ends; 0 where a window has none

    def logits(self, model: nn.Module) -> Tensor:
        """B T 2, of padding the least number there is."""
        return span_logits(model, self.read)


def span_logits(model: nn.Module, read: PackedBatch) -> Tensor:
    """How well an answer begins and ends at each token, B T 2; never at padding."""
    found = read.output(model).float()
    if read.rows is None:
        return found
    keep = read.rows.keep[:, 0, :, None]  # B T 1
    return read.rows.pad(found).masked_fill(~keep, torch.finfo(found.dtype).min)


@dataclass(frozen=True, eq=False)
class QuestionAnswering(TokenRows):
    """Find the answer to a question in a context, which is read in windows of `max_length` tokens.

    With `answerable` every context holds an answer.
    """

    name = "question-answering"
    does = "finds answers in a context"
    target = "window"
    architectures = ("bert", "albert", "deberta")
    presets_by_size = TextLabelTask.presets_by_size
    columns = 4  # ids of all windows of a question, their lengths, where their contexts begin, and begin and end
    max_id = MAX_PLACE
    max_epochs = 8.0
    validation_records = 500

    tokenizer: Tokenizer
    answerable: bool = True
    max_length: int = MAX_WINDOW
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def from_data(cls, splits: DataSplits, recipe: Recipe, start: ModelParts | None) -> TaskSetup:
        tokenizer, chosen = one_tokenizer(recipe, splits, start, "wordpiece", Framing(bos=True, eos=True))
        longest = given(recipe.data.max_length, MAX_WINDOW)
        answerable = all(answers_in(record.fields[1]) for record in splits.train())
        task = cls(tokenizer, answerable, min(longest, MAX_PLACE))
        return TaskSetup(task, tokenizer, tokenizer, {**chosen, "data.max_length": longest}, 2, head=SPANS)

    @classmethod
    def from_model(cls, parts: ModelParts) -> Self | None:
        if not isinstance(parts.model, Trunk) or getattr(parts.config, "top", None) != SPANS:
            return None
        if not isinstance(main_head(parts.model.head), TokenClassifier):
            return None
        answerable = bool(parts.extra_config.get(ANSWERABLE, False))
        longest = min(context_for(parts), int(parts.extra_config.get(WINDOW, MAX_WINDOW)))
        return cls(required_tokenizer(parts), answerable, longest, parts.extra_config)

    def extra_config(self) -> Mapping[str, Any]:
        return {ANSWERABLE: self.answerable, WINDOW: self.max_length}

    @property
    def reader(self) -> WindowReader:
        return WindowReader(self.tokenizer, self.max_length, STRIDE)

    # ---- learning

    def encode(self, fields: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        found = self.reader.windows([halves(text) for text, _ in fields])
        return [self.encoded(windows, answers) for windows, (_, answers) in zip(found, fields, strict=True)]

    def encoded(self, windows: Sequence[ContextWindow], answers: str) -> list[list[int]]:
        """The first answer is learned; the first token stands for none, in windows that do not hold it all."""
        spans = list[int]()
        first = next(iter(answers_in(answers)), None)
        for one in windows:
            begin = 0 if first is None else first["answer_start"]
            place = None if first is None else one.tokens_of(begin, begin + len(first["text"]))
            spans += place or (0, 0)
        whole = list(chain.from_iterable(one.ids for one in windows))
        return [whole, [len(one.ids) for one in windows], [one.second for one in windows], spans]

    def sizes(self, rows: Any) -> np.ndarray:
        return rows.lengths(0)

    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> SpanBatch:
        windows = [part for row in rows for part in np.split(row[0], list(accumulate(row[1].tolist()))[:-1])]
        seconds = ids(*(row[2] for row in rows)).tolist()
        wanted = torch.from_numpy(ids(*(row[3] for row in rows)).reshape(-1, 2))
        return SpanBatch(PackedBatch.of(windows, seconds), wanted)

    def loss(self, model: nn.Module, batch: SpanBatch) -> Tensor:
        """The mean of the cross-entropies of begin and end, as in transformers."""
        logits = batch.logits(model)  # B T 2
        losses = [F.cross_entropy(logits[..., at], batch.wanted[:, at], reduction="sum") for at in (0, 1)]
        return torch.stack(losses).sum() / 2

    # ---- use

    def answers(self, model: nn.Module, inputs: Sequence[str]) -> list[ExtractedAnswer]:
        """The best span of all windows of each input; none where the first token of a window is better."""
        pairs = [halves(text) for text in inputs]
        several = list(self.reader.windows(pairs))
        windows = [one for some in several for one in some]
        if not windows:
            return []
        read = PackedBatch.of([np.array(one.ids) for one in windows], [one.second for one in windows])
        logits = span_logits(model, to_device(read, device_of(model))).cpu()
        found, at = list[ExtractedAnswer](), 0
        for text, (_, context), some in zip(inputs, pairs, several, strict=True):
            rows = logits[at : at + len(some)]
            at += len(some)
            best = max(map(best_span, some, rows), key=lambda one: one.score)
            nothing = min(float(row[0].sum()) for row in rows)
            score = best.score - nothing
            if best.begin == best.end or (score <= 0 and not self.answerable):
                found.append(ExtractedAnswer(text, NO_ANSWER, score, 0, 0))
            else:
                answer = context[best.begin : best.end]
                found.append(ExtractedAnswer(text, answer, score, best.begin, best.end))
        return found

    @torch.inference_mode()
    def predict(
        self, model: nn.Module, inputs: Sequence[str], options: GenerationOptions = GREEDY_OPTIONS
    ) -> Iterator[ExtractedAnswer]:
        for some in batched(inputs, ASKED_TOGETHER):
            yield from self.answers(model, some)

    @torch.inference_mode()
    def evaluate(
        self, model: nn.Module, records: Iterable[Record], options: EvalOptions = DEFAULT_EVALUATION
    ) -> EvalResult:
        answers, wanted, samples = list[str](), list[list[str]](), list[Sample]()
        for some, found in shared(partial(self.answered, model), batched(records, ASKED_TOGETHER)):
            for record, answer in zip(some, found, strict=True):
                right = [one["text"] for one in answers_in(record.fields[1])]
                answers.append(answer)
                wanted.append(right)
                if len(samples) < MAX_KEPT:
                    samples.append(sample_of(record, answer, right))
        without = sum(not one for one in wanted)
        notes = (f"{without:,} of {len(wanted):,} questions have no answer in their context",) if without else ()
        return EvalResult(score_answers(answers, wanted), samples, notes, {"without_answer": without})

    def answered(self, model: nn.Module, records: Sequence[Record]) -> list[str]:
        return [one.output for one in self.answers(model, [record.fields[0] for record in records])]

    def baselines(self, model: nn.Module, data: BaselineData, found: EvalResult) -> Iterator[BaselineResult]:
        """On all records that were answered."""
        train = [answers_in(record.fields[1]) for record in data.train]
        if not train or not data.validation:
            return
        usual = most_frequent(one[0]["text"] if one else NO_ANSWER for one in train)
        pairs = [halves(record.fields[0]) for record in data.validation]
        wanted = [[one["text"] for one in answers_in(record.fields[1])] for record in data.validation]
        yield BaselineResult("most frequent answer", score_answers([usual] * len(pairs), wanted))
        yield BaselineResult(
            "sentence most like the question",
            score_answers([*map(sentence_like, *zip(*pairs, strict=True))], wanted),
        )

    def trace(self, model: nn.Module, input: str, options: TraceOptions) -> TracedRun:
        """The first window; where the answer begins and ends is chosen among all its tokens."""
        pair = halves(input)
        [[window, *_]] = self.reader.windows([pair])
        check_length(len(window.ids), options.context)
        read = PackedBatch.of([np.array(window.ids)], [window.second])
        read = to_device(read, device_of(model))

        def label(at: int) -> str:
            return self.tokenizer.token(window.ids[at])

        def whole(best: Sequence[int]) -> str:
            first, last = best
            if first not in window.places or last not in window.places or first > last:
                return "no answer"
            begin, end = window.characters(first, last)
            return pair[1][begin:end]

        choices = Choices("classes", (None, None), None, label, whole)
        return TracedRun(model, lambda: span_logits(model, read)[0].T, choices, text_axes(window.ids, self.tokenizer))

    def embed(self, model: nn.Module, inputs: Sequence[str]) -> Tensor:
        raise UserError("a model that finds answers in a context gives no vectors", do="leave out embed=")

    def encoder_input(self, model: nn.Module, rows: Sequence[DataRow]) -> EncoderInput:
        raise UserError("a model that reads two texts together has no encoder of one to look into")

    def example(self, splits: DataSplits, samples: Sequence[Sample]) -> str:
        return example_of(samples) or f"a question{PAIR}the context that answers it"

    def sample_input(self, folder: Path, context: int | None) -> str:
        text = sample_text(self.tokenizer, None if context is None else max(1, context // 2 - 1))
        return f"{text}{PAIR}{text}"


ANSWERABLE, WINDOW = "answerable", "max_window"  # in config.json
MAX_KEPT = 2000  # samples


def sample_of(record: Record, answer: str, right: Sequence[str]) -> Sample:
    """The answer with the reference that it is, if it is one, else with the one that most people gave."""
    usual = Counter(right).most_common(1)[0][0] if right else NO_ANSWER
    return Sample(record.name, answer, answer if answer in right else usual)


def best_span(window: ContextWindow, logits: Tensor) -> BestSpan:
    """The begin and end with the largest sum of logits, within the context and in order; T 2."""
    if not window.spans:
        return BestSpan(-torch.inf, 0, 0)
    inside = logits[window.start : window.start + len(window.spans)].double()
    both = inside[:, :1] + inside[:, 1]  # begins by ends
    allowed = torch.ones_like(both, dtype=torch.bool).triu().tril(MAX_ANSWER_TOKENS - 1)
    best = int(both.masked_fill(~allowed, -torch.inf).argmax())
    first, last = divmod(best, len(window.spans))
    begin, end = window.characters(window.start + first, window.start + last)
    return BestSpan(float(both[first, last]), begin, end)
