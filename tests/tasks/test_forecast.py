"""Rows of numbers, from a table on the disk to what a model says comes next."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from headway.data.order import random_for
from headway.data.preprocess import NumberPreprocess
from headway.data.shards import Shards, write_shards
from headway.nn.context import Context
from headway.nn.trunk import Forecaster
from headway.tasks.forecasting import ForecastBatch, Forecasting, bits, numbers
from headway.tasks.inputs import SeriesInput
from headway.training.dataset import ExampleRow, HistoryExamples
from headway.zoo.build import build

TASK = Forecasting(SeriesInput(NumberPreprocess((1.0, 10.0), (2.0, 5.0))), ("open", "close"))


def table(first: int, count: int) -> np.ndarray:
    """Rows that tell which they are."""
    return np.array([(at, -100.5 * at) for at in range(first, first + count)], np.float32)


def stored(folder: Path, *lengths: int) -> Shards:
    """Tables of so many rows, one after the other."""
    starts = np.cumsum([0, *lengths]).tolist()
    texts = [[f"{a} {b}" for a, b in table(first, count)] for first, count in zip(starts, lengths, strict=False)]
    return write_shards(folder / "shards", [TASK.document(rows) for rows in texts], TASK.columns, TASK.vocab)


def collated(rows: list[ExampleRow]) -> ForecastBatch:
    return TASK.collate(rows, random_for("unused"))


def row_numbers(scaled: Tensor) -> list[int]:
    """Which rows these are."""
    return TASK.input.unscaled(scaled)[..., 0].round().long().flatten().tolist()


def test_numbers_come_back_from_their_bits() -> None:
    rows = np.array([[0.1, -0.0, 3e38], [1e-45, -1.5, 7]], np.float32)
    assert numbers([*bits(rows).T.astype(np.int64)]).tobytes() == rows.tobytes()


def test_each_row_is_said_from_those_before_it(tmp_path: Path) -> None:
    batch = collated(HistoryExamples(stored(tmp_path, 9), 3).rows([0, 4]))
    assert row_numbers(batch.read.inputs) == [0, 1, 2, 4, 5, 6]
    assert row_numbers(batch.wanted) == [1, 2, 3, 5, 6, 7]
    assert (batch.targets, batch.tokens) == (6, 6)
    assert_close(batch.wanted[0], torch.tensor([(1 - 1) / 2, (-100.5 - 10) / 5]))
    assert_close(batch.before(), batch.read.inputs.flatten(0, 1))


def test_nobody_sees_from_one_table_into_the_next(tmp_path: Path) -> None:
    batch = collated(HistoryExamples(stored(tmp_path, 4, 1, 4), 6).rows([2]))
    assert batch.read.context.rows is not None
    assert batch.read.context.rows.lengths == (1, 3)  # a table of one row has nothing to say
    assert row_numbers(batch.wanted) == [3, 6, 7, 8]
    assert row_numbers(batch.before()) == [2, 5, 6, 7]


@pytest.mark.parametrize(("lengths", "asked"), [((12,), [9, 10, 11]), ((6, 6), [9, 10, 11]), ((10, 2), [9, 11])])
def test_what_is_known_is_read_and_not_asked_for(tmp_path: Path, lengths: tuple[int, ...], asked: list[int]) -> None:
    batch = collated(HistoryExamples(stored(tmp_path, *lengths), 7, first=4, known=4).rows([0]))
    assert row_numbers(batch.wanted) == asked
    assert row_numbers(batch.before()) == [row - 1 for row in asked]


def test_a_lone_row_teaches_nothing(tmp_path: Path) -> None:
    batch = collated(HistoryExamples(stored(tmp_path, 1), 3).rows([0]))
    assert batch.targets == 0
    assert TASK.loss(small(), batch).item() == 0


class Repeating(nn.Module):
    def forward(self, x: Tensor, ctx: Context) -> Tensor:
        return x


def test_the_loss_is_the_mean_square_of_a_row_summed_over_rows() -> None:
    batch = TASK.spans([(table(0, 4), 0)])
    steps = torch.tensor([1 / 2, -100.5 / 5])
    assert_close(TASK.loss(Repeating(), batch), 3 * steps.square().mean())


# ---- the model


def small() -> Forecaster:
    torch.manual_seed(0)
    model = build("forecaster-small", features=2, context=4, dim=16, layers=2, heads=2).eval()
    assert isinstance(model, Forecaster)
    return model


def test_it_begins_near_saying_that_nothing_changes() -> None:
    x = torch.randn(2, 9, 2)
    assert (small()(x) - x).abs().max() < 0.3


@torch.no_grad()
def test_a_forecast_is_made_row_by_row() -> None:
    """What was foreseen is read as if it had come, however long ago the series began."""
    model, rows = small(), torch.randn(2, 11, 2)
    wanted = rows
    for _ in range(5):
        wanted = torch.cat([wanted, model(wanted)[:, -1:]], 1)
    assert_close(model.ahead(rows, 5), wanted[:, 11:], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_row_sees_no_further_back_than_its_layers_reach() -> None:
    model, x = small(), torch.randn(1, 12, 2)
    early, late = x.clone(), x.clone()
    early[:, :5] += 1  # two layers that look back 3 rows each reach row 5 from row 11
    late[:, 5] += 1
    assert_close(model(early)[:, -1], model(x)[:, -1], atol=0, rtol=0)
    assert not torch.equal(model(late)[:, -1], model(x)[:, -1])
