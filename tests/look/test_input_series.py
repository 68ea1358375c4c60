"""Series and tables in a page: the numbers of the file, the names of its columns, and what its rows are called."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headway.look.run_data import MAX_SERIES_NUMBERS, run_to_json, series_to_json
from headway.tasks.forecasting import Forecasting
from headway.tasks.media_classification import SeriesClassification
from headway.tasks.tracing import InputSeries
from tests.look.readers import loaded

TABLE = "day,wind,rain\nMon,0,1\nTue,2,3\nWed,-1,0.5\n"


def test_a_table_is_told_with_its_names(tmp_path: Path) -> None:
    file = tmp_path / "weather.csv"
    file.write_text(TABLE, encoding="utf-8")
    model = loaded("forecast")
    assert isinstance(model.task, Forecasting)
    task = replace(model.task, column_names=("wind", "rain"))
    shown = task.shown(model.model, str(file))
    assert shown.axis is not None
    assert shown.axis.labels == ("Mon", "Tue", "Wed")
    assert shown.series == InputSeries(("wind", "rain"), ((0.0, 1.0), (2.0, 3.0), (-1.0, 0.5)))


def test_rows_without_names_are_told_by_their_numbers() -> None:
    recording = loaded("forecast").attend("0 1; 2 3; -1 0.5")
    series = run_to_json(recording)["series"]
    assert series["rows"] == [[0, 1], [2, 3], [-1, 0.5]]
    [axis] = {site.rows for site in recording.sites.values()}
    assert axis.labels == ("0 1", "2 3", "-1 0.5")


def test_numbers_of_a_row_have_the_names_of_their_columns() -> None:
    model = loaded("sets")
    task = SeriesClassification(model.task.input, ("a", "b"), column_names=("length", "width"))  # type: ignore[attr-defined]
    shown = task.shown(model.model, "0 1; 2 3")
    assert shown.axis is not None
    assert shown.axis.labels == ("length = 0 1", "width = 2 3")


@pytest.mark.parametrize(("rows", "told"), [(10, True), (MAX_SERIES_NUMBERS + 1, False)])
def test_a_page_is_not_filled_with_numbers(rows: int, told: bool) -> None:
    assert (series_to_json(InputSeries(("x",), ((0.0,),) * rows)) is not None) == told


def test_vectors_in_an_order_are_a_chart() -> None:
    model = loaded("series")
    series = run_to_json(model.attend("0 1; 2 3; -1 0.5"))["series"]
    assert series == {"columns": ["column 1", "column 2"], "rows": [[0, 1], [2, 3], [-1, 0.5]]}


def test_a_file_of_numbers_is_told_without_its_folders(tmp_path: Path) -> None:
    file = tmp_path / "weather.csv"
    file.write_text(TABLE, encoding="utf-8")
    model = loaded("forecast")
    named = replace(model, extra_config={"columns": ["wind", "rain"]})
    assert run_to_json(named.attend(str(file)))["input"] == "weather.csv"
