"""How good a model is on data: `headway.evaluate(model, data)`, in the numbers of what the model is for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from headway.console import aligned
from headway.data.checks import checking
from headway.data.kinds import COMPOSED, HEARD, PICTURED, TEXTUAL, DataKind, are_alternatives
from headway.data.named_splits import named_splits
from headway.data.order import batched
from headway.data.recognise import recognise
from headway.data.records import BUILTIN, RecognisedData, Record, as_records, is_builtin, is_paths, records
from headway.data.splits import only_named
from headway.data.text_lines import Problem
from headway.dtype import FP32
from headway.errors import UserError, counted
from headway.metrics.scores import MEASURES
from headway.metrics.scoring import score_cosines
from headway.tasks.base import Task
from headway.tasks.generation import generation_options
from headway.tasks.registry import data_kind, sentence
from headway.tasks.results import DEFAULT_EVALUATION, EvalOptions, EvalResult
from headway.tasks.vectors import GivesVectors

DATES = 1000  # of the built-in set
# what a table may be, by what a model is for
TABLES = frozenset({DataKind.PAIRS, DataKind.LABELS, DataKind.TAGS}) | COMPOSED


class Evaluable(Protocol):
    """A model and what it is for; `headway.model.Model` is one."""

    @property
    def model(self) -> nn.Module: ...
    @property
    def task(self) -> Task: ...
    def task_for(self, data_kind: DataKind | None) -> Task: ...


@dataclass(frozen=True)
class EvalData:
    """Records to evaluate on, read as often as somebody asks; `unseen` are unlike any in training.

    `missing` is what is wrong with images without classes, where a task needs these.
    """

    kind: DataKind
    description: str
    read: Callable[[], Iterator[Record]]
    unseen: Callable[[], Iterator[Record]] | None = None
    missing: UserError | None = None

    def __iter__(self) -> Iterator[Record]:
        return self.read()


@dataclass(frozen=True)
class EvalQuery:
    """Files or folders, and what was said about them."""

    paths: tuple[Path, ...] = ()
    source: Path | None = None
    target: Path | None = None
    task: str | None = None
    columns: tuple[str | int, ...] = ()
    header: str | None = None
    label_from: str | None = None
    test_from: str | None = None
    trained_label_from: str | None = None  # the pattern of the model's recipe, where none is given

    @staticmethod
    def of(data: Any, **query: Any) -> EvalQuery:
        """From a path or several, and options; `columns` may be typed as one text: en,de."""
        several = isinstance(data, list | tuple)
        columns = query.pop("columns", None) or ()
        columns = tuple(columns.split(",")) if isinstance(columns, str) else tuple(columns)
        paths = tuple(map(Path, data if several else [data]))
        parts = named_splits(paths)  # of a folder of train.csv and test.csv, what was not trained on
        return EvalQuery(parts.held_back if parts else paths, columns=columns, **query)

    def read(self, kind: DataKind | None) -> EvalData:
        """The data, read as a kind or as it looks."""
        if is_builtin(self.paths):
            return dates()
        try:
            found, missing = self.recognise(kind), None
        except UserError as error:
            found, missing = self.unlabelled(kind), error
            if found is None:
                raise
        found = found if self.test_from is None else only_named(found, self.test_from, "data.test_from")
        return replace(recognised(found), missing=missing)

    def unlabelled(self, kind: DataKind | None) -> RecognisedData | None:
        """Images without classes, where that is what the files hold."""
        with suppress(UserError):
            found = recognise(self.paths, source=self.source, target=self.target, kind=kind, nameless=True)
            return found if found.unlabelled else None
        return None

    def recognise(self, kind: DataKind | None) -> RecognisedData:
        """What the files hold; the model's own pattern finds labels in names, unless it finds none."""
        query: dict[str, Any] = {"source": self.source, "target": self.target, "kind": kind}
        query |= {"columns": self.columns, "header": self.header}
        if self.label_from is None and self.trained_label_from is not None:
            with suppress(UserError):
                return recognise(self.paths, **query, label_from=self.trained_label_from)
        return recognise(self.paths, **query, label_from=self.label_from)

    @cached_property
    def first(self) -> EvalData:
        """The data as it was said to be, or as it looks, before a model is known."""
        return self.read(data_kind(self.task))

    def check(self) -> None:
        """Refuses data that cannot be read, before a model is loaded."""
        assert self.first

    def fitted(self, model: Evaluable, first: EvalData, named: str) -> tuple[Task, EvalData]:
        """What the model is for, and the data read for that; `named` is what an error calls the model.

        A table is what the model is for, unless somebody said what it is.
        """
        task = model.task_for(first.kind)
        if isinstance(task, GivesVectors) and task.data_kind is None:
            raise task.nothing_to_compare(named)
        if first.missing is not None and task.needs_labels:
            raise first.missing
        if first.kind is task.data_kind or task.data_kind is None:  # which no data can be for
            return task, first
        both = {first.kind, task.data_kind} <= TABLES or are_alternatives(first.kind, task.data_kind)
        again = self.read(task.data_kind) if both and self.task is None else first
        if again.kind is not task.data_kind:  # the built-in set is what it is
            said = f"{named} {task.does}, but {first.description}"
            raise UserError(said, do=f"give data for {task.kind}")
        return task, again


def evaluate(
    model: Evaluable,
    data: Any,
    options: EvalOptions = DEFAULT_EVALUATION,
    *,
    beam: int | None = None,
    max_new_tokens: int | None = None,
    named: str = "the model",
    **query: Any,
) -> EvalResult:
    """Scores of a model on data: a path, several, or an iterable of records (tuples of texts).

    `query` says more about files: source and target, task, columns, header, label_from, test_from.  With `beam` a model
    that writes searches with so many beams, and writes at most `max_new_tokens`; by default as `predict` does.
    """
    decoding = {"beam": beam, "max_new_tokens": max_new_tokens}
    if asked_for := [name for name, value in decoding.items() if value is not None]:
        task = model.task if not isinstance(data, EvalQuery) else model.task_for(data.first.kind)
        if not task.beams:
            raise UserError(f"{named} {task.does} and has no use for {asked_for[0]}=", do="leave it out")
        options = replace(options, generation=generation_options(beam=beam, max_new_tokens=max_new_tokens))
    if not isinstance(data, str | Path | EvalQuery) and not is_paths(data):
        return model.task.evaluate(model.model, as_records(data), options)
    asked = data if isinstance(data, EvalQuery) else EvalQuery.of(data, **query)
    task, found = asked.fitted(model, asked.first, named)
    result = task.evaluate(model.model, found, options)
    extra = {"data": found.description, "task": task.kind, **result.extra}
    result = replace(result, extra=extra)
    if found.unseen is None:
        return result
    other = task.evaluate(model.model, list(found.unseen()), replace(options, metrics=tuple(result.scores.numbers)))
    note = f"in ways of writing never seen in training: exact {other.scores.told('exact')}"
    return replace(result, notes=(*result.notes, note), extra={**extra, "unseen": other.scores.plain()})


@dataclass(frozen=True)
class DtypeComparison:
    """What a dtype costs: scores in it beside those in fp32, or how near its vectors are to those in fp32."""

    dtype: str
    low: EvalResult
    full: EvalResult | None  # None: the score is a cosine

    def rows(self) -> list[tuple[str, ...]]:
        """A table; the first row has the columns' names."""
        numbers, full = self.low.scores.numbers, self.full and self.full.scores.numbers
        if full is None:
            return [("", self.dtype), *((MEASURES[name].title, self.shown(name)) for name in numbers)]
        found = [("", FP32, self.dtype, "difference")]
        for name, number in numbers.items():
            measure = MEASURES[name]
            difference = measure.shown_difference(full[name], number)
            found.append((measure.title, measure.shown(full[name]), measure.shown(number), difference))
        return found

    def shown(self, name: str) -> str:
        return MEASURES[name].shown(self.low.scores.numbers[name])

    @property
    def basis(self) -> str:
        scores = self.low.scores
        return f"n = {counted(scores.count, scores.things.removesuffix('s'))}"

    def to_text(self) -> str:
        return f"{self.dtype} against {FP32} ({self.basis})\n\n{aligned(self.rows())}"

    def to_dict(self) -> dict[str, Any]:
        found = {"dtype": self.dtype, **self.low.to_dict()}
        return found if self.full is None else {**found, FP32: self.full.to_dict()}


def compare_dtypes(
    low: Evaluable, full: Evaluable, dtype: str, query: EvalQuery, *, named: str = "the model", **decoding: Any
) -> DtypeComparison:
    """Evaluates a model in a dtype and in fp32 on the same data; `decoding` is beam and max_new_tokens."""
    task = low.task_for(query.first.kind)
    if isinstance(task, GivesVectors):
        inputs = inputs_of(query.first, task.noun, named)
        ours, theirs = (torch.cat([task.embed(one.model, some) for some in batched(inputs, 32)]) for one in (low, full))
        result = EvalResult(score_cosines((ours * theirs).sum(-1).tolist()), extra={"data": query.first.description})
        return DtypeComparison(dtype, result, None)
    ours, theirs = (evaluate(one, query, named=named, **decoding) for one in (low, full))
    return DtypeComparison(dtype, ours, theirs)


def inputs_of(data: EvalData, noun: str, named: str) -> list[str]:
    """What a model that gives vectors reads of data: files, or texts, of a document its lines."""
    if data.kind not in {"texts": TEXTUAL, "images": PICTURED, "sounds": HEARD}.get(noun, ()):
        raise UserError(f"{named} gives vectors of {noun}, but {data.description}", do="give other data")
    lines = (record.name.splitlines() if data.kind is DataKind.TEXTS else [record.name] for record in data)
    return [line for several in lines for line in several if line.strip()]


def dates() -> EvalData:
    """The built-in set."""
    from headway.data.builtin import DateSplit, date_records

    def part(which: DateSplit) -> Callable[[], Iterator[Record]]:
        return lambda: date_records(0, DATES, which)

    description = f"{BUILTIN}: {DATES:,} dates that are kept from every training, so translation"
    return EvalData(DataKind.PAIRS, description, part(DateSplit.VALIDATION), part(DateSplit.UNSEEN))


def recognised(given: RecognisedData) -> EvalData:
    def strict() -> Iterator[Record]:
        for found in records(given):
            if isinstance(found, Problem):
                raise found.error(f"see {checking(given, found)}")
            yield found

    return EvalData(given.kind, sentence(given), strict)
