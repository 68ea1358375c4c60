"""Tagging: one of several classes for each word of a text.

Axes:  N tokens of all rows   K classes
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from headway.data.records import Record
from headway.data.tokenizer import Tokenizer
from headway.metrics.baselines import frequent_tags
from headway.metrics.scores import Scores
from headway.metrics.scoring import entity_rates, has_spans, score_tags
from headway.nn.head import TokenClassifier
from headway.nn.trunk import device_of
from headway.tasks.batches import NO_TARGET, FittedRow, PackedBatch, Row, around, fitted, ids, some
from headway.tasks.generation import GREEDY_OPTIONS, GenerationOptions
from headway.tasks.results import CollectedAnswers, Sample, TaggedWords
from headway.tasks.text_classification import LabelBatch, OneLabelTask
from headway.tasks.text_tracing import fitting_ids, own_tokens, text_axes
from headway.tasks.tracing import Choices, TracedRun, TraceOptions


class Tagging(OneLabelTask):
    """Predict the class of each word, at its first piece.  Fields are words and tags, separated by spaces.

    The tokens that begin and end every text count, and it is cut between pieces.
    """

    name = "tagging"
    does = "names the class of each word"
    target = "word"
    head = "tokens"
    head_type = TokenClassifier
    max_epochs = 10.0  # after more, sentences are known by heart (docs/LOG.md)

    @property
    def lr_factor(self) -> float:
        return 1 / 3  # the words of a sentence are no independent targets (docs/LOG.md)

    @classmethod
    def labels_in(cls, text: str) -> list[str]:
        return text.split()

    def encode(self, fields: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        return [list(self.encoded(text.split(" "), tags.split(" "))) for text, tags in fields]

    def encoded(self, words: list[str], tags: list[str]) -> tuple[list[int], list[int]]:
        """Ids, and for each one more than its class, or 0 where it has none (files hold no negative numbers)."""
        _, after = around(self.tokenizer)
        read = split_words(words, self.tokenizer)
        told = [0] * len(read.ids)
        for first, tag in zip(read.firsts, tags, strict=True):
            told[first] = 1 + self.class_index(tag)
        row = self.fitted_words(read.ids).ids
        return row, [*told[: len(row) - len(after)], *[0] * len(after)]

    def fitted_words(self, row: list[int]) -> FittedRow:
        """Ids cut between pieces; all that ends a text stays."""
        [whole], (_, after) = fitted([row], self.max_length), around(self.tokenizer)
        end = min(self.max_length, len(row)) - len(after)
        return FittedRow([*row[:end], *after], whole.cut)

    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> LabelBatch:
        classes = ids(*(row[1] for row in rows)) - 1
        wanted = torch.from_numpy(np.where(classes < 0, NO_TARGET, classes))
        return LabelBatch(PackedBatch.of([row[0] for row in rows]), wanted, tuple(len(row[1]) for row in rows))

    def reference(self, record: Record, answer: str) -> str:
        return " ".join(record.fields[1].split()[: len(answer.split())])

    def scores(self, answers: CollectedAnswers) -> Scores:
        return replace(score_tags(answers.answers, answers.wanted, answers.words), unit="words")

    def details(self, answers: CollectedAnswers) -> Mapping[str, Any]:
        return {"entities": entity_rates(answers.answers, answers.wanted)} if has_spans(answers.wanted) else {}

    def simple_answers(self, train: Sequence[Sequence[str]], samples: Sequence[Sample]) -> dict[str, list[str]]:
        """As many tags as were wanted: a long text is cut."""
        tags, usual = frequent_tags((text.split(" "), given.split(" ")) for text, given in train)
        words = [one.source.split(" ")[: len(one.wanted.split())] for one in samples]
        return {
            "majority tag": [" ".join([usual] * len(row)) for row in words],
            "most frequent tag of each word": [" ".join(tags.get(word, usual) for word in row) for row in words],
        }

    @torch.inference_mode()
    def predict(
        self, model: nn.Module, inputs: Sequence[str], options: GenerationOptions = GREEDY_OPTIONS
    ) -> Iterator[TaggedWords]:
        """The class of each word that is read, where it was learned, at the word's first piece."""
        words = [text.split() for text in inputs]
        split = [split_words(one, self.tokenizer) for one in words]
        rows = [self.fitted_words(row.ids) for row in split]
        read = PackedBatch.of_texts(model, rows, self.tokenizer)
        picks = model(read.ids, read.context).argmax(-1).flatten().split(read.lengths)
        after = len(around(self.tokenizer)[1])
        for text, one, whole, row, pick in zip(inputs, words, split, rows, picks, strict=True):
            firsts = [first for first in whole.firsts if first < len(row.ids) - after]
            tags = [self.labels[k] for k in pick[firsts].tolist()]
            yield TaggedWords(text, tuple(zip(one, tags, strict=False)), cut=row.cut)  # the words behind are not read

    def trace(self, model: nn.Module, input: str, options: TraceOptions) -> TracedRun:
        read = fitting_ids(self.tokenizer.encode(input), model, self.tokenizer, self.settings, options)
        asked, inputs, label = (
            own_tokens(read, self.tokenizer),
            torch.tensor([read], device=device_of(model)),
            self.labels.__getitem__,
        )

        def whole(best: Sequence[int]) -> str:
            return " ".join(map(label, best))

        choices = Choices("tags", tuple(asked), None, label, whole)
        return TracedRun(model, lambda: model(inputs)[0, asked], choices, text_axes(read, self.tokenizer))


class SplitWords(NamedTuple):
    """Words as a model reads them, framed, and where each begins."""

    ids: list[int]
    firsts: list[int]


def split_words(words: Sequence[str], tokenizer: Tokenizer) -> SplitWords:
    # a space before each but the first, as it has in running text, which byte-level pieces spell
    pieces = tokenizer.plain_batch([word if at == 0 else f" {word}" for at, word in enumerate(words)])
    before, after = around(tokenizer)
    nothing = some(tokenizer.unk) or after or some(tokenizer.pad)
    found = [piece or nothing for piece in pieces]  # a word of signs that the tokenizer drops is a word all the same
    *firsts, _ = accumulate(map(len, found), initial=len(before))
    return SplitWords([*before, *chain(*found), *after], firsts)
