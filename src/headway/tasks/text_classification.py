"""Text classification: one of several classes for a text.

Axes:  B batch   N tokens of all rows   K classes
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.data.order import batched
from headway.data.records import Record
from headway.data.splits import DataSplits
from headway.data.tokenizer import Tokenizer
from headway.errors import UserError, counted, listed, nearest
from headway.metrics.scores import Scores
from headway.metrics.scoring import score_classes
from headway.nn.head import Classifier
from headway.recipe import Recipe
from headway.tasks.base import VALIDATION_CLASSES, TaskSetup
from headway.tasks.batches import PackedBatch, Row, TextBatch, cut, ids
from headway.tasks.generation import GREEDY_OPTIONS, GenerationOptions
from headway.tasks.model_parts import ModelParts, labels_of, named_classes, reads_media, required_tokenizer
from headway.tasks.results import (
    DEFAULT_EVALUATION,
    ClassProbabilities,
    CollectedAnswers,
    EvalOptions,
    EvalResult,
    Sample,
)
from headway.tasks.text_tracing import fitting_ids, same, text_axes
from headway.tasks.token_rows import MAX_LENGTH, Framing, ReadsText, TokenRows, context_for, given, one_tokenizer
from headway.tasks.tracing import Choices, TracedRun, TraceOptions

NO_TARGET = -100  # the number that torch's cross-entropy leaves out
ANSWERED_TOGETHER = 64  # texts
READ_TOGETHER = 1000  # records


@dataclass(frozen=True, eq=False)
class LabelBatch(TextBatch):
    read: PackedBatch
    wanted: Tensor  # B, or N with NO_TARGET where a token has no class of its own
    lengths: tuple[int, ...]  # of each row's share of these

    @property
    def targets(self) -> int:
        return int((self.wanted != NO_TARGET).sum())

    def logits(self, model: nn.Module) -> Tensor:
        """B K, or N K where tokens have classes."""
        return model(self.read.ids, self.read.context).flatten(0, -2)

    def likeliest(self, model: nn.Module) -> list[list[int]]:
        """The class that a model gives each thing that has one, row by row."""
        picks, wanted = self.logits(model).argmax(-1).split(self.lengths), self.wanted.split(self.lengths)
        return [row[known != NO_TARGET].tolist() for row, known in zip(picks, wanted, strict=True)]


@dataclass(frozen=True, eq=False)
class TextLabelTask(TokenRows, ReadsText):
    """Predict classes out of `labels`; texts are cut to `max_length` tokens."""

    architectures = ("bert", "albert")
    presets_by_size = ("bert-tiny", "bert-mini", "bert-small", "bert-medium")
    validation_records = VALIDATION_CLASSES
    head: ClassVar[str]  # what stands on the encoder

    tokenizer: Tokenizer
    labels: tuple[str, ...]
    label_smoothing: float = 0.0
    max_length: int = MAX_LENGTH
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def from_data(cls, splits: DataSplits, recipe: Recipe, start: ModelParts | None) -> TaskSetup:
        labels = sorted({label for text in known_labels(recipe, splits) for label in cls.labels_in(text)})
        check_classes(splits, labels)
        tokenizer, chosen = one_tokenizer(recipe, splits, start, "wordpiece", Framing(bos=True, eos=True))
        smoothing, longest = given(recipe.train.label_smoothing, 0.0), given(recipe.data.max_length, MAX_LENGTH)
        task = cls(tokenizer, tuple(labels), smoothing, longest)
        chosen = {**chosen, "train.label_smoothing": smoothing, "data.max_length": longest}
        return TaskSetup(task, tokenizer, tokenizer, chosen, len(labels), head=cls.head)

    @classmethod
    @abstractmethod
    def labels_in(cls, text: str) -> list[str]:
        """The labels in what a record says of its text."""

    def extra_config(self) -> Mapping[str, Any]:
        return named_classes(self.labels)

    def loss(self, model: nn.Module, batch: LabelBatch) -> Tensor:
        smoothing, logits = self.label_smoothing, batch.logits(model)
        return F.cross_entropy(logits, batch.wanted, reduction="sum", label_smoothing=smoothing, ignore_index=NO_TARGET)

    def without_augmentation(self) -> Self:
        return replace(self, label_smoothing=0.0)

    def evaluate(
        self, model: nn.Module, records: Iterable[Record], options: EvalOptions = DEFAULT_EVALUATION
    ) -> EvalResult:
        """What is longer than the model can read is cut, as it is in training."""
        answers, long = CollectedAnswers(), 0
        for part in batched(records, READ_TOGETHER):
            self.check(part)
            rows = self.tokenizer.encode_batch([record.fields[0] for record in part])
            long += sum(len(row) > self.max_length for row in rows)
            answers.add(self.answers(model, part))
        note = f"{counted(long, 'text')} of more than {self.max_length:,} tokens cut to that"
        return EvalResult(self.scores(answers), answers.samples, (note,) if long else (), {"cut": long})

    def check(self, records: Sequence[Record]) -> None:
        for record in records:
            check_known(self.labels, record, self.labels_in(record.fields[1]))

    @torch.inference_mode()
    def answers(self, model: nn.Module, records: Sequence[Record]) -> list[Sample]:
        """The classes that a model gives to each record, or to its words."""
        found = list[Sample]()
        for some in batched(records, ANSWERED_TOGETHER):
            for record, row in zip(some, self.batch(some).likeliest(model), strict=True):
                wanted = self.labels_in(record.fields[1])[: len(row)]  # cut too
                found.append(Sample(record.name, " ".join(self.labels[pick] for pick in row), " ".join(wanted)))
        return found

    @abstractmethod
    def scores(self, answers: CollectedAnswers) -> Scores: ...


class TextClassification(TextLabelTask):
    """Predict the class of a text.  The tokenizer frames it as the model wants it."""

    name = "text-classification"
    does = "names the class of a text"
    target = "text"
    head = "rows"

    @classmethod
    def from_model(cls, parts: ModelParts) -> Self | None:
        labels, settings = labels_of(parts, Classifier), parts.extra_config
        if labels is None or reads_media(parts):
            return None
        return cls(required_tokenizer(parts), labels, max_length=context_for(parts), settings=settings)

    @classmethod
    def labels_in(cls, text: str) -> list[str]:
        return [text]

    def encode(self, fields: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        rows = self.tokenizer.encode_batch([text for text, _ in fields])
        classes = [class_index(label, self.labels) for _, label in fields]
        return [[cut(row, self.max_length), [label]] for row, label in zip(rows, classes, strict=True)]

    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> LabelBatch:
        read, wanted = PackedBatch.of([row[0] for row in rows]), torch.from_numpy(ids(*(row[1] for row in rows)))
        return LabelBatch(read, wanted, (1,) * len(rows))

    def scores(self, answers: CollectedAnswers) -> Scores:
        return replace(score_classes(answers.answers, answers.wanted, answers.words), unit="words")

    @torch.inference_mode()
    def predict(
        self, model: nn.Module, inputs: Sequence[str], options: GenerationOptions = GREEDY_OPTIONS
    ) -> Iterator[ClassProbabilities]:
        read = PackedBatch.of_texts(inputs, self.tokenizer)
        for text, row in zip(inputs, model(read.ids, read.context).softmax(-1), strict=True):  # K
            probabilities = dict(zip(self.labels, row.tolist(), strict=True))
            yield ClassProbabilities(text, self.labels[int(row.argmax())], probabilities)

    def trace(self, model: nn.Module, input: str, options: TraceOptions) -> TracedRun:
        read = fitting_ids(self.tokenizer.encode(input), model, self.tokenizer, self.settings, options)
        label, inputs = self.labels.__getitem__, torch.tensor([read])
        choices = Choices("classes", (None,), None, label, lambda best: label(best[0]), same)
        return TracedRun(model, lambda: model(inputs), choices, text_axes(read, self.tokenizer))


def known_labels(recipe: Recipe, splits: DataSplits) -> Iterator[str]:
    """The labels of all records; those of a validation file are not among them, and must be known without it."""
    yield from (record.fields[1] for record in splits.train())
    if not recipe.data.validation:
        yield from (record.fields[1] for record in splits.validation())


def check_classes(splits: DataSplits, labels: Sequence[str]) -> None:
    if len(labels) < 2:
        raise UserError(f"every label in {splits.name} is {labels[0]!r}", do="give data with two classes or more")


def check_known(labels: Sequence[str], record: Record, found: Sequence[str]) -> None:
    """Refuses a record with a label that is none of the model's."""
    for label in found:
        if label not in labels:
            said = f"{record.file}:{record.line}: {label[:60]!r} is none of the model's {len(labels)} classes"
            raise UserError(said, allowed=listed(labels), meant=nearest(label, labels))


def class_index(label: str, labels: Sequence[str]) -> int:
    if label not in labels:
        said = f"the class {label!r} is not one of the {len(labels)} that the model knows"
        raise UserError(said, allowed=listed(labels), meant=nearest(label, labels))
    return labels.index(label)
