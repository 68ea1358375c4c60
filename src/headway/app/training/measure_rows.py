"""How well a forecaster knows the next row of a table, against who says that nothing changes.

Errors are told in deviations, so that columns of any units weigh alike; and column by column in its own unit.

Axes:  M rows   F numbers of a row
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from headway.errors import UserError
from headway.tasks.forecast import ForecastBatch, Forecasting
from headway.tasks.scores import Scores, aligned
from headway.train.loop import Sample


class Foreseen(NamedTuple):
    """A row, F numbers as a model reads them: the one before it, what the model expected, and what came."""

    before: Tensor
    expected: Tensor
    came: Tensor


@torch.inference_mode()
def foreseen(model: nn.Module, batches: Iterable[ForecastBatch]) -> list[Foreseen]:
    """All rows that batches ask for."""
    found = [
        Foreseen(*rows)
        for batch in batches
        for rows in zip(batch.before(), batch.foreseen(model), batch.wanted, strict=True)
    ]
    if not found:
        raise UserError("no row that is to be foreseen has one before it", do="give tables of two rows or more")
    return found


def row_scores(found: Sequence[Foreseen]) -> Scores:
    """The root of the mean squared error, and by how much it is below that of repeating the last row."""
    before, expected, came = (torch.stack(part) for part in zip(*found, strict=True))  # each M F
    error, repeated = ((said - came).square().mean().sqrt().item() for said in (expected, before))
    return Scores({"error": error, "gain": 1 - error / repeated if repeated else 0.0}, len(found), "rows")


def by_column(task: Forecasting, found: Sequence[Foreseen]) -> dict[str, dict[str, float]]:
    """The mean absolute error of each column in its own unit, and that of repeating the last row."""
    before, expected, came = (task.sense.unscaled(torch.stack(part)) for part in zip(*found, strict=True))
    ours, repeated = ((said - came).abs().mean(0).tolist() for said in (expected, before))
    return {str(name): {"error": ours[at], "repeating": repeated[at]} for at, name in enumerate(task.names)}


def column_table(task: Forecasting, found: Sequence[Foreseen]) -> str:
    rows = [(name, f"{one['error']:.4g}", f"{one['repeating']:.4g}") for name, one in by_column(task, found).items()]
    return aligned([("column", "mean error", "by repeating"), *rows])


def expected(task: Forecasting, found: Iterable[Foreseen]) -> list[Sample]:
    """Rows as people read them: what was there before, what was expected, what came."""
    return [Sample(*(row_told(task, part) for part in one)) for one in found]


def row_told(task: Forecasting, row: Tensor) -> str:
    return " ".join(f"{number:.4g}" for number in task.sense.unscaled(row).tolist())
