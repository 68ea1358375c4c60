"""Multi-label classification: which of several labels a text has, each for itself; it may have none.

Axes:  B batch   K labels
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.data.composed import LABEL_MARK, labels_in
from headway.data.records import Record
from headway.data.splits import DataSplits
from headway.metrics.baselines import most_frequent, naive_bayes
from headway.metrics.scores import Scores
from headway.metrics.structured import label_rates, score_label_sets
from headway.nn.head import Classifier
from headway.recipe import Recipe
from headway.tasks.batches import PackedBatch, Row, TextBatch
from headway.tasks.generation import GREEDY_OPTIONS, GenerationOptions
from headway.tasks.model_parts import PROBLEM, SEVERAL_LABELS
from headway.tasks.results import (
    MAX_CLASSES,
    CollectedAnswers,
    Prediction,
    Sample,
)
from headway.tasks.text_classification import TextClassification, TextLabelTask
from headway.tasks.tracing import NumericOutcome, TracedRun, TraceOptions

THRESHOLD = 0.5  # of the probability of a label that a text is said to have


@dataclass(frozen=True)
class LabelSet(Prediction):
    """The labels that a text has, and the probability of each label."""

    output: tuple[str, ...]
    probabilities: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        return {"input": self.input, "output": list(self.output), "probabilities": dict(self.probabilities)}

    def to_text(self) -> str:
        shown = sorted(self.probabilities.items(), key=lambda item: -item[1])[:MAX_CLASSES]
        return "  ".join([", ".join(self.output) or "none", *(f"{label} {p:.3f}" for label, p in shown)])


@dataclass(frozen=True, eq=False)
class LabelSetBatch(TextBatch):
    read: PackedBatch
    wanted: Tensor  # B K: 1 where a text has a label


class MultiLabelClassification(TextLabelTask):
    """Predict the labels of a text, of which it may have any number."""

    name = "multi-label-classification"
    does = "names the labels of a text"
    target = "text"
    min_labels = 1  # which a text has or not
    head = "rows"
    head_type = Classifier
    problem = SEVERAL_LABELS
    max_epochs = TextClassification.max_epochs
    architectures = TextClassification.architectures
    presets_by_size = TextClassification.presets_by_size
    min_vocab = TextClassification.min_vocab

    @classmethod
    def weights(cls, recipe: Recipe, splits: DataSplits, labels: Sequence[str]) -> tuple[float, ...]:
        """What a text that has a label counts for in its loss: as many as there are texts without it for each with it.

        So a label counts for as much as its absence; 1 where all texts have it, or none.
        """
        if recipe.train.class_weights is None:
            return ()
        sets = [cls.labels_in(record.fields[1]) for record in splits.train()]
        counts = Counter(label for one in sets for label in one)
        return tuple(len(sets) / counts[one] - 1 if 0 < counts[one] < len(sets) else 1.0 for one in labels)

    @classmethod
    def labels_in(cls, text: str) -> list[str]:
        return labels_in(text)

    def extra_config(self) -> Mapping[str, Any]:
        return {**super().extra_config(), PROBLEM: SEVERAL_LABELS}

    def encode(self, fields: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        sets = [{self.class_index(label) for label in labels_in(labels)} for _, labels in fields]
        return self.targeted(
            [text for text, _ in fields], [[int(k in one) for k in range(len(self.labels))] for one in sets]
        )

    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> LabelSetBatch:
        wanted = torch.from_numpy(np.stack([row[1] for row in rows]).astype(np.float32))
        return LabelSetBatch(self.packed(rows), wanted)

    def loss(self, model: nn.Module, batch: LabelSetBatch) -> Tensor:
        """The binary cross-entropy of each text, averaged over labels, as in transformers."""
        logits, wanted = batch.read.output(model).float(), batch.wanted.float()
        smoothed = wanted * (1 - self.label_smoothing) + self.label_smoothing / 2
        weight = logits.new_tensor(self.class_weights) if self.class_weights else None
        total = F.binary_cross_entropy_with_logits(logits, smoothed, reduction="sum", pos_weight=weight)
        return total / len(self.labels)

    def chances(self, model: nn.Module, texts: Sequence[str]) -> list[list[float]]:
        """The probability of each label for each text."""
        read = PackedBatch.of_texts(model, self.input_rows(texts), self.tokenizer)
        return read.output(model).float().sigmoid().tolist()

    def named(self, chances: Sequence[float]) -> list[str]:
        return [label for label, chance in zip(self.labels, chances, strict=True) if chance > THRESHOLD]

    def answers_of(self, model: nn.Module, records: Sequence[Record]) -> list[str]:
        self.check(records)
        found = self.chances(model, [record.fields[0] for record in records])
        return [LABEL_MARK.join(self.named(chances)) for chances in found]

    def scores(self, answers: CollectedAnswers) -> Scores:
        return replace(score_label_sets(*self.sets(answers), self.labels, answers.words), unit="words")

    def details(self, answers: CollectedAnswers) -> Mapping[str, Any]:
        return {"labels": label_rates(*self.sets(answers), self.labels)}

    def sets(self, answers: CollectedAnswers) -> tuple[list[frozenset[str]], list[frozenset[str]]]:
        found, wanted = ([frozenset(labels_in(one)) for one in some] for some in (answers.answers, answers.wanted))
        return found, wanted

    def simple_answers(self, train: Sequence[Sequence[str]], samples: Sequence[Sample]) -> dict[str, list[str]]:
        texts, sets = [text for text, _ in train], [frozenset(labels_in(labels)) for _, labels in train]
        asked = [one.source for one in samples]
        has = {label: ["yes" if label in one else "no" for one in sets] for label in self.labels}
        # of each label for itself, whether a text has it
        found = {label: naive_bayes(texts, known, asked) for label, known in has.items()}
        both = [
            LABEL_MARK.join(label for label in self.labels if found[label][at] == "yes") for at in range(len(asked))
        ]
        most = Counter(label for one in sets for label in one).most_common(1)
        return {
            "most frequent set of labels": [most_frequent(labels for _, labels in train)] * len(samples),
            "most frequent label": [most[0][0] if most else ""] * len(samples),
            "naive Bayes of each label": both,
        }

    @torch.inference_mode()
    def predict(
        self, model: nn.Module, inputs: Sequence[str], options: GenerationOptions = GREEDY_OPTIONS
    ) -> Iterator[LabelSet]:
        rows = self.input_rows(inputs)
        for text, row, chances in zip(inputs, rows, self.chances(model, inputs), strict=True):
            probabilities = dict(zip(self.labels, chances, strict=True))
            yield LabelSet(text, tuple(self.named(chances)), probabilities, cut=row.cut)

    def trace(self, model: nn.Module, input: str, options: TraceOptions) -> TracedRun:
        def describe(found: Tensor) -> str:
            return ", ".join(self.named(found.flatten().float().sigmoid().tolist())) or "none"

        return self.traced_row(model, input, options, NumericOutcome(describe))
