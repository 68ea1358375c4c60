"""Tasks with one row for each input, a text or two: how it is read, answered, measured and traced.

What a model says of an input, and what is right, are texts as the second field of a record has them.

Axes:  B batch
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from headway.data.composed import PAIR, halves
from headway.data.order import batched
from headway.data.records import Record
from headway.data.text_pair import pair_rows
from headway.data.tokenizer import Tokenizer
from headway.distributed.sharing import shared
from headway.nn.trunk import RereadingClassifier
from headway.tasks.batches import FittedRow, PackedBatch, Row, cut_to, fitted
from headway.tasks.results import (
    DEFAULT_EVALUATION,
    BaselineData,
    BaselineResult,
    CollectedAnswers,
    EvalOptions,
    EvalResult,
    Sample,
    cut_notes,
)
from headway.tasks.text_tasks import TokenRows
from headway.tasks.text_tracing import fitting_ids, reread_axes, text_axes
from headway.tasks.tracing import OutcomeReader, TracedRun, TraceOptions

if TYPE_CHECKING:
    from headway.metrics.scores import Scores

ANSWERED_TOGETHER = 64  # texts
UNCUT = 2**30  # tokens: more than any text has


def paired_rows(tokenizer: Tokenizer, texts: Sequence[str], max_length: int) -> list[FittedRow]:
    """What a model reads of inputs that are two texts each."""
    rows = pair_rows(tokenizer, [halves(text) for text in texts], max_length)
    return [FittedRow(row.ids, cut_to(max_length) if row.cut else None, row.second) for row in rows]


class TextRows(TokenRows):
    """A task whose models read one text, or two that belong together, cut to `max_length` tokens."""

    max_length: int
    settings: Mapping[str, Any]
    may_read_pairs: bool = False  # whether nothing says that a model was trained on single texts

    def input_rows(self, texts: Sequence[str]) -> list[FittedRow]:
        """What a model reads of each input.  One of another library may be for two texts: ` ||| ` separates these."""
        rows = fitted(self.tokenizer.encode_batch(texts), self.max_length)
        pairs = [at for at, text in enumerate(texts) if PAIR in text] if self.may_read_pairs else []
        for at, row in zip(
            pairs, paired_rows(self.tokenizer, [texts[at] for at in pairs], self.max_length), strict=True
        ):
            rows[at] = row
        return rows

    def targeted(self, texts: Sequence[str], targets: Sequence[list[int]]) -> list[list[list[int]]]:
        """Rows of texts with what is to be said of each; those of two texts say where the second begins."""
        rows = zip(self.input_rows(texts), targets, strict=True)
        return [[row.ids, told, *([] if row.second is None else [[row.second]])] for row, told in rows]

    def packed(self, rows: Sequence[Row]) -> PackedBatch:
        """The texts of rows."""
        seconds = [int(row[2][0]) for row in rows] if self.columns > 2 else None
        return PackedBatch.of([row[0] for row in rows], seconds, apart=self.tokenizer.ends_apart)

    def traced_row(self, model: nn.Module, input: str, options: TraceOptions, reader: OutcomeReader) -> TracedRun:
        """One input with the call that answers it."""
        [row] = replace(cast(Any, self), max_length=UNCUT).input_rows([input])
        read = fitting_ids(row.ids, model, self.tokenizer, self.settings, options)
        batch = PackedBatch.of_texts(model, [row._replace(ids=read)], self.tokenizer)
        axes = text_axes(read, self.tokenizer)
        if isinstance(model, RereadingClassifier):
            axes = reread_axes(read, model.shifted(batch.ids)[0].tolist(), self.tokenizer)
        return TracedRun(model, lambda: batch.output(model), reader, axes)

    @torch.inference_mode()
    def evaluate(
        self, model: nn.Module, records: Iterable[Record], options: EvalOptions = DEFAULT_EVALUATION
    ) -> EvalResult:
        """What is longer than the model can read is cut, as it is in training."""
        answers, cuts = CollectedAnswers(), Counter[str | None]()
        for some, found in shared(partial(self.answers_of, model), batched(records, ANSWERED_TOGETHER)):
            cuts.update(row.cut for row in self.input_rows([record.fields[0] for record in some]))
            pairs = zip(some, found, strict=True)
            answers.add(Sample(record.name, answer, self.reference(record, answer)) for record, answer in pairs)
        extra = {"cut": cuts.total() - cuts[None], **self.details(answers)}
        return EvalResult(self.scores(answers), list(map(self.shown, answers.samples)), cut_notes(cuts), extra)

    def shown(self, sample: Sample) -> Sample:
        """A sample as a report shows it."""
        return sample

    @abstractmethod
    def answers_of(self, model: nn.Module, records: Sequence[Record]) -> list[str]:
        """What a model says of records, as their second field says it."""

    def reference(self, record: Record, answer: str) -> str:
        """What is right; tags of words that were not read are left out."""
        return record.fields[1]

    @abstractmethod
    def scores(self, answers: CollectedAnswers) -> Scores: ...

    def details(self, answers: CollectedAnswers) -> Mapping[str, Any]:
        """What else there is to say of answers, for programs."""
        return {}

    def baselines(self, model: nn.Module, data: BaselineData, found: EvalResult) -> Iterator[BaselineResult]:
        samples, train = found.samples, [record.fields for record in data.train]
        if not samples or not train:
            return
        for name, answers in self.simple_answers(train, samples).items():
            collected = CollectedAnswers()
            collected.add(one._replace(answer=answer) for one, answer in zip(samples, answers, strict=True))
            yield BaselineResult(name, self.scores(collected))

    @abstractmethod
    def simple_answers(self, train: Sequence[Sequence[str]], samples: Sequence[Sample]) -> dict[str, list[str]]:
        """The answers of simple methods that have learned from fields of records."""
