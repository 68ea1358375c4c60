"""Text classification: one of several classes for a text.

Axes:  B batch   N tokens of all rows   K classes
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.data.records import Record
from headway.data.shards import Shards
from headway.data.splits import DataSplits
from headway.data.tokenizer import Tokenizer
from headway.errors import UserError, listed, nearest
from headway.metrics.baselines import WordCounts, most_frequent, naive_bayes
from headway.metrics.scores import Scores
from headway.metrics.scoring import score_classes
from headway.nn.head import Classifier, TokenClassifier
from headway.nn.trunk import VotingTrunk, device_of
from headway.recipe import Recipe
from headway.tasks.base import VALIDATION_CLASSES, RecordTask, TaskSetup
from headway.tasks.batches import NO_TARGET, ClassPrediction, PackedBatch, Row, TextBatch, ids, to_device
from headway.tasks.distillation import PredictsTargets
from headway.tasks.generation import GREEDY_OPTIONS, GenerationOptions
from headway.tasks.model_parts import (
    ONE_LABEL,
    ModelParts,
    is_foreign,
    labels_of,
    named_classes,
    problem_of,
    reads_media,
    required_tokenizer,
)
from headway.tasks.results import (
    ClassProbabilities,
    CollectedAnswers,
    Sample,
)
from headway.tasks.text_rows import TextRows
from headway.tasks.text_tasks import MAX_LENGTH, Framing, context_for, given, one_tokenizer
from headway.tasks.tracing import Choices, TracedRun, TraceOptions
from headway.zoo.text_classifier import set_votes

COUNTED = 100_000  # texts at most whose words are counted for the first weights


class Classification(RecordTask):
    """Predict classes out of `labels`."""

    validation_records = VALIDATION_CLASSES
    min_labels: ClassVar[int] = 2  # without which there is nothing to tell apart
    head: ClassVar[str | None] = None  # what stands on an encoder that can have several heads

    labels: tuple[str, ...]

    @classmethod
    def labels_in(cls, text: str) -> list[str]:
        """The labels in what a record says of its sample."""
        return [text]

    @classmethod
    def all_labels(cls, recipe: Recipe, splits: DataSplits) -> tuple[str, ...]:
        """The labels of all records; those of a validation file are not among them, and must be known without it."""
        records = splits.train() if splits.validation_paths else chain(splits.train(), splits.validation())
        labels = sorted({label for record in records for label in cls.labels_in(record.fields[1])})
        if len(labels) < cls.min_labels:
            if not labels:
                raise UserError(f"no record of {splits.name} has a label", do="give records with labels")
            raise UserError(f"every label in {splits.name} is {labels[0]!r}", do="give data with two classes or more")
        return tuple(labels)

    @classmethod
    def weights(cls, recipe: Recipe, splits: DataSplits, labels: Sequence[str]) -> tuple[float, ...]:
        """What each class counts for in the loss: its share of the training data turned round; none, where all alike.

        The mean over the training data is 1.
        """
        if recipe.train.class_weights is None:
            return ()
        counts = Counter(label for record in splits.train() for label in cls.labels_in(record.fields[1]))
        mean = counts.total() / len(labels)
        return tuple(mean / counts[label] if counts[label] else 1.0 for label in labels)

    def extra_config(self) -> Mapping[str, Any]:
        return named_classes(self.labels)

    def class_index(self, label: str) -> int:
        if label not in self.labels:
            said = f"the class {label!r} is not one of the {len(self.labels)} that the model knows"
            raise UserError(said, allowed=listed(self.labels), meant=nearest(label, self.labels))
        return self.labels.index(label)

    def check(self, records: Sequence[Record]) -> None:
        for record in records:
            for label in self.labels_in(record.fields[1]):
                if label not in self.labels:
                    place, count = f"{record.file}:{record.line}", len(self.labels)
                    said = f"{place}: {label[:60]!r} is none of the model's {count} classes"
                    raise UserError(said, allowed=listed(self.labels), meant=nearest(label, self.labels))

    def class_choices(self) -> Choices:
        """The class of a whole sample, to be traced."""
        label = self.labels.__getitem__
        return Choices("classes", (None,), None, label, lambda best: label(best[0]))


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
        return self.read.output(model).flatten(0, -2)

    def likeliest(self, model: nn.Module) -> list[list[int]]:
        """The class that a model gives each thing that has one, row by row."""
        picks, wanted = self.logits(model).argmax(-1).split(self.lengths), self.wanted.split(self.lengths)
        return [row[known != NO_TARGET].tolist() for row, known in zip(picks, wanted, strict=True)]


@dataclass(frozen=True, eq=False)
class TextLabelTask(Classification, TextRows):
    """Predict classes of a text, or of its words; texts are cut to `max_length` tokens."""

    architectures = ("bert", "albert", "deberta", "longformer", "modernbert", "xlnet")
    presets_by_size = ("bert-tiny", "bert-mini", "bert-small", "bert-medium")
    head_type: ClassVar[type[Classifier] | type[TokenClassifier]]
    problem: ClassVar[str | None] = None  # what the logits of a whole text are
    min_vocab: ClassVar[int] = 0  # tokens of a vocabulary that is trained, if the texts have as many
    reads_held_out: ClassVar[bool] = False  # whether the vocabulary is that of held-out texts too, without their labels

    tokenizer: Tokenizer
    labels: tuple[str, ...]
    label_smoothing: float = 0.0
    max_length: int = MAX_LENGTH
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    may_read_pairs: bool = False
    class_weights: tuple[float, ...] = ()

    @classmethod
    def from_data(cls, splits: DataSplits, recipe: Recipe, start: ModelParts | None) -> TaskSetup:
        labels = cls.all_labels(recipe, splits)
        framing = Framing(bos=True, eos=True)
        texts = splits.rejoined if cls.reads_held_out else splits
        tokenizer, chosen = one_tokenizer(recipe, texts, start, "wordpiece", framing, cls.min_vocab)
        smoothing, longest = given(recipe.train.label_smoothing, 0.0), given(recipe.data.max_length, MAX_LENGTH)
        weights = cls.weights(recipe, splits, labels)
        task = cls(tokenizer, labels, smoothing, longest, class_weights=weights)
        chosen = {**chosen, "train.label_smoothing": smoothing, "data.max_length": longest}
        chosen |= {"train.class_weights": recipe.train.class_weights} if weights else {}
        return TaskSetup(task, tokenizer, tokenizer, chosen, len(labels), head=cls.head)

    @classmethod
    def from_model(cls, parts: ModelParts) -> Self | None:
        labels = labels_of(parts, cls.head_type)
        if labels is None or reads_media(parts) or cls.problem not in (None, problem_of(parts, len(labels))):
            return None
        tokenizer, longest, foreign = required_tokenizer(parts), context_for(parts), is_foreign(parts)
        return cls(tokenizer, labels, max_length=longest, settings=parts.extra_config, may_read_pairs=foreign)

    def without_augmentation(self) -> Self:
        return replace(self, label_smoothing=0.0, class_weights=())


class OneLabelTask(TextLabelTask, PredictsTargets):
    """Predict the one class of a text, or of each of its words."""

    def predicted(self, model: nn.Module, batch: LabelBatch) -> ClassPrediction:
        return ClassPrediction(batch.logits(model), batch.wanted, self.class_weights, self.label_smoothing)

    def answers_of(self, model: nn.Module, records: Sequence[Record]) -> list[str]:
        self.check(records)
        return [" ".join(self.labels[pick] for pick in row) for row in self.batch(model, records).likeliest(model)]


class TextClassification(OneLabelTask):
    """Predict the class of a text.  The tokenizer frames it as the model wants it."""

    name = "text-classification"
    does = "names the class of a text"
    target = "text"
    head = "rows"
    head_type = Classifier
    problem = ONE_LABEL
    max_epochs = 8.0  # one label for a whole text is learned by heart soon
    architectures = ("text_classifier", *TextLabelTask.architectures)
    presets_by_size = tuple(f"text-classifier-{size}" for size in ("tiny", "mini", "small", "medium"))
    min_vocab = 32_000  # few texts have fewer words, and whole words tell classes apart better than pieces
    reads_held_out = True  # counts that are kept are counted anew with them

    def can_count(self, model: nn.Module) -> bool:
        return isinstance(model, VotingTrunk)

    def count_weights(self, model: nn.Module, rows: Shards, held: Shards | None = None) -> None:
        """Logits become those of naive Bayes, scaled so that those of each text by counts of the others fit best."""
        assert isinstance(model, VotingTrunk)
        read = [part.row(at) for part in (rows, held) if part is not None for at in range(min(len(part), COUNTED))]
        texts, labels = [row[0] for row in read], [int(row[1][0]) for row in read]
        counted = WordCounts.of(texts, labels, len(self.labels), self.tokenizer.vocab)
        votes, bias, scale = counted.likelihoods(), counted.prior(), counted.temperature()
        votes -= votes.mean(1, keepdims=True)  # what words say for all classes alike changes no probability
        set_votes(model, torch.from_numpy(scale * votes), torch.from_numpy(scale * bias))

    @torch.inference_mode()
    def loss_error(self, model: nn.Module, batches: Sequence[LabelBatch]) -> float:
        """By the losses of the texts; infinite for a single one, which tells nothing of others."""
        read = (to_device(batch, device_of(model)) for batch in batches)
        losses = torch.cat([F.cross_entropy(one.logits(model), one.wanted, reduction="none") for one in read])
        return losses.std().item() / math.sqrt(len(losses)) if len(losses) > 1 else math.inf

    def encode(self, fields: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        return self.targeted([text for text, _ in fields], [[self.class_index(label)] for _, label in fields])

    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> LabelBatch:
        return LabelBatch(self.packed(rows), torch.from_numpy(ids(*(row[1] for row in rows))), (1,) * len(rows))

    def scores(self, answers: CollectedAnswers) -> Scores:
        return replace(score_classes(answers.answers, answers.wanted, answers.words), unit="words")

    def simple_answers(self, train: Sequence[Sequence[str]], samples: Sequence[Sample]) -> dict[str, list[str]]:
        texts, labels = zip(*train, strict=True)
        return {
            "majority class": [most_frequent(labels)] * len(samples),
            "naive Bayes": naive_bayes(texts, labels, [one.source for one in samples]),
        }

    @torch.inference_mode()
    def predict(
        self, model: nn.Module, inputs: Sequence[str], options: GenerationOptions = GREEDY_OPTIONS
    ) -> Iterator[ClassProbabilities]:
        rows = self.input_rows(inputs)
        logits = PackedBatch.of_texts(model, rows, self.tokenizer).output(model)
        for text, known, row in zip(inputs, rows, logits.softmax(-1), strict=True):  # K
            probabilities = dict(zip(self.labels, row.tolist(), strict=True))
            yield ClassProbabilities(text, self.labels[int(row.argmax())], probabilities, cut=known.cut)

    def trace(self, model: nn.Module, input: str, options: TraceOptions) -> TracedRun:
        return self.traced_row(model, input, options, self.class_choices())
