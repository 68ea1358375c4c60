"""Forecasting: predict each row of numbers from those before it.

A table is one long stream with a column for each of its numbers, and is cut into spans as texts are.  Numbers are
kept on disk by their bits, and scaled when a batch is made.  Errors are in standard deviations, so that columns of any
units weigh alike, and column by column in its own unit; beside them stands the error of repeating the last row.

Axes:  T rows of a span   F numbers of a row   M rows that are asked for
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from headway.console import aligned
from headway.data.numbers import is_number_table, table_row_names, vectors
from headway.data.order import batched
from headway.data.records import Record, by_document
from headway.data.splits import DataSplits
from headway.distributed.sharing import shared
from headway.errors import UserError, counted
from headway.metrics.intervals import Sums, columns
from headway.metrics.scores import Scores
from headway.metrics.scoring import mean_of, scores_of
from headway.nn.trunk import Forecaster, device_of
from headway.recipe import Recipe
from headway.tasks.base import VALIDATION_ANSWERS, StreamTask, TaskSetup, validation_loss
from headway.tasks.batches import Batch, Row, to_device
from headway.tasks.generation import GREEDY_OPTIONS, GenerationOptions
from headway.tasks.inputs import ModelInput, SeriesInput, ShownInput, input_of
from headway.tasks.media_tasks import MediaReader, series_setup
from headway.tasks.model_parts import ModelParts
from headway.tasks.results import (
    DEFAULT_EVALUATION,
    BaselineData,
    BaselineResult,
    EvalOptions,
    EvalResult,
    Prediction,
    ReportDetails,
    Sample,
    TracedInput,
)
from headway.tasks.text_tasks import given
from headway.tasks.tracing import InputSeries, ItemAxis, NumericOutcome, TracedRun, TraceOptions

ColumnName = str | int  # its number from 1, where a table has no names
ROWS = 10  # that are predicted, unless more are asked for
SPANS, CONTEXT = 16, (8, 128)  # a series is so many spans at least, of so many rows at least and at most
TOGETHER = 32  # tables at a time
DRAWN_ROWS = 150  # the last validation rows, whose predictions a report draws
TRACED_ROWS = 24  # the last of these, whose attention it draws


@dataclass(frozen=True)
class ForecastRows(Prediction):
    """The rows that come next, with the names of their columns."""

    rows: Sequence[Sequence[float]]
    columns: tuple[ColumnName, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {"input": self.input, "output": [list(row) for row in self.rows], "columns": list(self.columns)}

    def to_text(self) -> str:
        """As a CSV table, with as many digits as a float32 has."""
        rows = [self.columns, *([f"{value:.6g}" for value in row] for row in self.rows)]
        return "\n".join(",".join(map(str, row)) for row in rows)


@dataclass(frozen=True, eq=False)
class ForecastBatch(Batch):
    read: ModelInput
    asked: Tensor  # M, places among all rows that are read
    wanted: Tensor  # M F, the row after each

    @property
    def tokens(self) -> int:
        return self.read.inputs.shape[:2].numel()

    def predicted(self, model: nn.Module) -> Tensor:
        """What a model predicts in the place of the wanted rows, M F."""
        return model(*self.read).flatten(0, 1)[self.asked]

    def before(self) -> Tensor:
        """The row before each wanted one, M F."""
        return self.read.inputs.flatten(0, 1)[self.asked]


class PredictedRow(NamedTuple):
    """A row, F numbers as a model reads them: the one before it, what the model predicted, and what came."""

    before: Tensor
    predicted: Tensor
    came: Tensor


@dataclass(frozen=True, eq=False)
class Forecasting(MediaReader, StreamTask):
    """Predict the next row; the loss of a row is the mean of its squared errors, in standard deviations."""

    decoding = ("max_new_tokens",)
    name = "forecasting"
    does = "foresees the next row of a table"
    target = "row"
    architectures = ("forecaster",)
    presets_by_size = ("forecaster-small",)
    sample_names = ("the row before", "expected", "came")
    graded = False
    unit = "vectors"
    has_history = True

    input: SeriesInput  # pyright: ignore[reportIncompatibleVariableOverride]
    column_names: tuple[ColumnName, ...]

    # ---- from data, and from a model

    @classmethod
    def from_data(cls, splits: DataSplits, recipe: Recipe, start: ModelParts | None) -> TaskSetup:
        """A row is predicted from fewer where there are few to learn from."""
        (input, _, config), count = series_setup(splits, start), sum(1 for _ in splits.train())
        context = given(recipe.data.max_length, min(max(count // SPANS, CONTEXT[0]), CONTEXT[1]))
        config, chosen = {**config, "context": context}, {"data.max_length": context}
        return TaskSetup(cls(input, splits.columns), chosen=chosen, config=config, preprocess=input.preprocess)

    @classmethod
    def from_model(cls, parts: ModelParts) -> Self | None:
        found = input_of(parts) if isinstance(parts.model, Forecaster) else None
        names = tuple(parts.extra_config.get("columns", ()))
        return cls(found, names) if isinstance(found, SeriesInput) else None

    def extra_config(self) -> Mapping[str, Any]:
        return {"columns": list(self.column_names)}

    @property
    def series_columns(self) -> Sequence[ColumnName]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.column_names

    # ---- learning

    @property
    def columns(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return len(self.column_names)

    @property
    def vocab(self) -> int:
        return 2**32  # what the bits of a number may be

    def stride(self, context: int) -> int:
        return context  # the last row of a span is predicted and not read

    def document(self, pieces: Iterable[str]) -> list[Iterable[int]]:
        """A table whose rows come as texts, column by column."""
        return list(bits(vectors(";".join(pieces))).T)

    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> ForecastBatch:
        """Of each row the columns of a span, and how many of its first rows are not asked for."""
        return self.spans([(numbers(columns), int(known[0])) for *columns, known in rows])

    def spans(self, spans: Sequence[tuple[NDArray[np.float32], int]]) -> ForecastBatch:
        """Of spans, T F, from each of which all rows are asked for but the first and as many more as it says."""
        whole = [(self.input.scaled(torch.from_numpy(rows)), known) for rows, known in spans if len(rows) > 1]
        if not whole:  # a model must read something, if only to learn nothing from it
            lone = self.input.scaled(torch.from_numpy(spans[0][0]))
            return ForecastBatch(self.input.collate([lone]), torch.empty(0, dtype=torch.long), lone[:0])
        starts = np.cumsum([0, *(len(rows) - 1 for rows, _ in whole)]).tolist()
        asked = [
            torch.arange(start + known, end)
            for start, end, (_, known) in zip(starts[:-1], starts[1:], whole, strict=True)
        ]
        wanted = [rows[1 + known :] for rows, known in whole]
        return ForecastBatch(self.input.collate([rows[:-1] for rows, _ in whole]), torch.cat(asked), torch.cat(wanted))

    def loss(self, model: nn.Module, batch: ForecastBatch) -> Tensor:
        return (batch.predicted(model) - batch.wanted).square().mean(-1).sum()

    # ---- use

    @torch.inference_mode()
    def predict(
        self, model: nn.Module, inputs: Sequence[str], options: GenerationOptions = GREEDY_OPTIONS
    ) -> Iterator[ForecastRows]:
        """The rows that come next, as many as are asked for."""
        assert isinstance(model, Forecaster)
        count = ROWS if options.max_new_tokens is None else options.max_new_tokens
        for some in batched(inputs, TOGETHER):
            read = self.read(model, some)
            series = read.inputs.flatten(0, 1).split(read.lengths)
            for one, rows in zip(some, series, strict=True):
                ahead = self.input.unscaled(model.ahead(rows[None], count, options.interrupt)[0])  # count F
                yield ForecastRows(one, ahead.tolist(), tuple(self.column_names))

    def evaluate(
        self, model: nn.Module, records: Iterable[Record], options: EvalOptions = DEFAULT_EVALUATION
    ) -> EvalResult:
        """Tables of numbers, each from its second row on."""
        tables = map(";".join, by_document(self.checked(records)))
        return self.result(predicted_rows(model, (self.spans([(vectors(text), 0)]) for text in tables)))

    def validate(self, model: nn.Module, batches: Sequence[Any], records: Iterable[Record]) -> EvalResult:
        """By all rows that were held out, each after as many rows as in training."""
        loss = validation_loss(self, model, batches)
        if not np.isfinite(loss):
            return EvalResult(Scores({"loss": loss}, 0, "rows"))
        return replace(self.result(predicted_rows(model, batches)), loss=loss)

    def baselines(self, model: nn.Module, data: BaselineData, found: EvalResult) -> Iterator[BaselineResult]:
        """Rows are in standard deviations from the mean of training, which is 0."""
        rows = [
            (before, came)
            for batch in data.validation_batches
            for before, came in zip(batch.before(), batch.wanted, strict=True)
        ]
        means = [PredictedRow(before, torch.zeros_like(came), came) for before, came in rows]
        yield BaselineResult("the mean", row_scores(means))
        yield BaselineResult("the last value", row_scores([PredictedRow(row, row, came) for row, came in rows]))

    def result(self, found: Sequence[PredictedRow]) -> EvalResult:
        by_column = self.column_errors(found)
        rows = [(name, f"{one['error']:.4g}", f"{one['repeating']:.4g}") for name, one in by_column.items()]
        note = aligned([("column", "mean error", "by repeating"), *rows])
        few = found[:: -(-len(found) // VALIDATION_ANSWERS)]
        samples = [Sample(*(self.row_text(part) for part in one)) for one in few]
        return EvalResult(row_scores(found), samples, (note,), {"columns": by_column})

    def checked(self, records: Iterable[Record]) -> Iterator[Record]:
        """Rows of as many numbers as the model reads."""
        for record in records:
            width = len(record.fields[0].split())
            if width != self.columns:
                said = f"{record.file} has {counted(width, 'column')} of numbers, and the model foresees {self.columns}"
                raise UserError(said, do=f"choose them, as in data.columns {','.join(map(str, self.column_names))}")
            yield record

    def column_errors(self, found: Sequence[PredictedRow]) -> dict[str, dict[str, float]]:
        """The mean absolute error of each column in its own unit, and that of repeating the last row."""
        before, predicted, came = (self.input.unscaled(torch.stack(part)) for part in zip(*found, strict=True))
        ours, repeated = ((said - came).abs().mean(0).tolist() for said in (predicted, before))
        return {str(name): {"error": ours[at], "repeating": repeated[at]} for at, name in enumerate(self.column_names)}

    def row_text(self, row: Tensor) -> str:
        """A row (F) as people read it."""
        return " ".join(f"{number:.4g}" for number in self.input.unscaled(row).tolist())

    def named_row(self, row: Tensor) -> str:
        """A row (F) with the names of its columns."""
        values = self.input.unscaled(row).tolist()
        names = self.column_names or range(1, len(values) + 1)
        return ", ".join(f"{name} {value:.4g}" for name, value in zip(names, values, strict=True))

    def shown(self, model: nn.Module, given: str) -> ShownInput:
        """Rows by what a table calls them, such as times, and its columns by name."""
        found = super().shown(model, given)
        rows = tuple(map(tuple, vectors(self.locate(given)).tolist()))
        series = InputSeries(tuple(map(str, self.column_names)), rows)
        names = table_row_names(Path(given), self.column_names) if is_number_table(given) else ()
        axis = ItemAxis("rows", names) if len(names) == len(rows) else found.axis
        return found._replace(axis=axis, series=series)

    def trace(self, model: nn.Module, input: str, options: TraceOptions) -> TracedRun:
        """The row that comes next."""
        shown = self.shown(model, input)
        return shown.run(model, lambda: model(*shown.read)[0, -1], NumericOutcome(self.named_row))

    def report_details(
        self, model: nn.Module, batches: Sequence[ForecastBatch], records: Sequence[Record], found: EvalResult
    ) -> ReportDetails:
        """What came in each column of the last validation rows, and what was predicted one row before."""
        rows = predicted_rows(model, batches)[-DRAWN_ROWS:]
        sides = {"came": [one.came for one in rows], "predicted": [one.predicted for one in rows]}
        values = {name: self.input.unscaled(torch.stack(some)).T.tolist() for name, some in sides.items()}  # each F M
        curves = {
            str(column): {name: values[name][at] for name in sides} for at, column in enumerate(self.column_names)
        }
        last = self.input.unscaled(batches[-1].read.inputs[-1, -TRACED_ROWS:]).tolist()  # T F
        traced = TracedInput("", "; ".join(" ".join(f"{number:.6g}" for number in row) for row in last))
        return ReportDetails(found.scores, found.samples, traced=[traced], curves=curves)

    def example(self, splits: DataSplits, samples: Sequence[Sample]) -> str:
        """The table itself: `headway run` goes on behind its end."""
        return str(splits.files[0])


@torch.inference_mode()
def predicted_rows(model: nn.Module, batches: Iterable[ForecastBatch]) -> list[PredictedRow]:
    """All rows that batches ask for."""

    def predicted(batch: ForecastBatch) -> Tensor:
        return to_device(batch, device_of(model)).predicted(model)

    found = [
        PredictedRow(*rows)
        for batch, ahead in shared(predicted, batches)
        for rows in zip(batch.before().cpu(), torch.as_tensor(ahead, device="cpu"), batch.wanted.cpu(), strict=True)
    ]
    if not found:
        raise UserError("no row that is to be foreseen has one before it", do="give tables of two rows or more")
    return found


def row_scores(found: Sequence[PredictedRow]) -> Scores:
    """The root of the mean squared error, and by how much it is below that of repeating the last row."""
    before, predicted, came = (torch.stack(part).double() for part in zip(*found, strict=True))  # each M F
    errors, repeated = ((said - came).square().mean(1).tolist() for said in (predicted, before))

    def gain(totals: Sequence[float]) -> float:
        return 1 - math.sqrt(totals[0] / totals[1]) if totals[1] else 0.0

    return scores_of(
        {
            "error": mean_of(columns(errors, [1] * len(errors)), math.sqrt),
            "gain": Sums(columns(errors, repeated), gain),
        },
        "rows",
    )


def bits(rows: NDArray[np.float32]) -> NDArray[np.uint32]:
    """Numbers as whole ones, by their bits."""
    return np.ascontiguousarray(rows).view(np.uint32)


def numbers(columns: Sequence[np.ndarray]) -> NDArray[np.float32]:
    """The rows, T F, of columns of bits."""
    return np.ascontiguousarray(np.stack(columns, 1).astype(np.uint32)).view(np.float32)
