"""`headway train`, `run`, `eval` and `check` on rows of numbers over time, as a person meets them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from headway.loading import load
from headway.tasks.forecasting import Forecasting, predicted_rows
from tests.cli.command import Place, made_place
from tests.train.runs import planned

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("rendered")]  # a whole run

SHORT = ["--train.steps", "200", "--train.threads", "1"]
SHORT += ["--model.dim", "16", "--model.heads", "2", "--model.layers", "1"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = made_place(tmp_path_factory.mktemp("place"))
    at = np.arange(400)
    wave, tide = 5 + 3 * np.sin(at / 3), 100 * np.cos(at / 5)
    rows = [f"2024-{day},{a:.4f},{b:.3f}" for day, a, b in zip(at, wave, tide, strict=True)]
    (place.folder / "sea.csv").write_text("\n".join(["time,wave,tide", *rows]) + "\n", encoding="utf-8")
    done = place("train", "sea.csv", *SHORT, "--out", "foreseeing")
    assert (done.code, done.err) == (0, ""), done.said
    assert "sea.csv: 400 lines of 2 numbers (wave, tide; the first line is a header), so forecasting" in done.out
    assert "headway run foreseeing sea.csv" in done.out
    return place


@pytest.mark.long
def test_it_learns_to_foresee_and_says_how_well(place: Place) -> None:
    metrics = [json.loads(line) for line in (place.folder / "foreseeing" / "metrics.jsonl").read_text().splitlines()]
    assert metrics[-1]["valid"]["gain"] > 0.3
    found = json.loads(place("eval", "foreseeing", "sea.csv", "--json").out)
    assert (found["task"], found["count"]) == ("forecast", 399)
    assert found["scores"]["gain"] > 0.3
    assert set(found["columns"]) == {"wave", "tide"}
    # told in each column's own unit, against saying the last row again
    rows = np.genfromtxt(place.folder / "sea.csv", delimiter=",", skip_header=1, usecols=(1, 2))
    repeating = np.abs(np.diff(rows, axis=0)).mean(0)
    assert [found["columns"][name]["repeating"] for name in ("wave", "tide")] == pytest.approx(repeating, rel=1e-4)
    assert found["columns"]["tide"]["error"] < repeating[1]
    assert "by repeating" in place("eval", "foreseeing", "sea.csv").out


def test_the_report_draws_each_column(place: Place) -> None:
    page = (place.folder / "foreseeing" / "report.html").read_text()
    assert "wave, by row" in page
    assert "tide, by row" in page
    assert "the row before" in page
    assert "Nothing can be drawn" not in page


def test_the_rows_that_come_next_are_a_table(place: Place) -> None:
    done = place("run", "foreseeing", "sea.csv", "--most", "3")
    head, *rows = done.out.splitlines()
    assert (done.code, head, len(rows)) == (0, "wave,tide", 3)
    told = json.loads(place("run", "foreseeing", "sea.csv", "--json").out)
    assert len(told["output"]) == 10
    assert [[f"{x:.6g}" for x in row] for row in told["output"][:3]] == [row.split(",") for row in rows]


def test_numbers_may_be_typed_and_columns_stand_anywhere(place: Place) -> None:
    model = load(place.folder / "foreseeing")
    (place.folder / "turned.csv").write_text("tide,other,wave\n1,0,5\n2,0,6\n")
    typed = json.loads(place("run", "foreseeing", "5 1; 6 2", "--json").out)["output"]
    assert json.loads(place("run", "foreseeing", "turned.csv", "--json").out)["output"] == typed
    assert model.run("5 1; 6 2")["output"] == typed


REFUSED = {
    "nothing.csv": "nothing.csv does not exist",
    "5 1 2": "'5 1 2' has 3 numbers where 2 belong",
    "5 x": "'x' is not a number",
    "5 nan": "'nan' is not a number",
    "pairs.tsv": "has no column 'wave'",
    "holes.csv": "holes.csv:3: column 2 (tide) is",
    "bare.csv": "bare.csv has a header and no records below it",
}


@pytest.mark.parametrize("given", REFUSED)
def test_what_is_no_series_is_told(place: Place, given: str) -> None:
    (place.folder / "holes.csv").write_text("wave,tide\n1,2\n3,\n5,6\n")
    (place.folder / "bare.csv").write_text("wave,tide\n")
    refused = place("run", "foreseeing", given)
    assert (refused.code, refused.out) == (2, "")
    assert REFUSED[given] in refused.err


def test_bad_rows_are_named_or_counted(place: Place) -> None:
    rows = [f"{at},{at % 7}" for at in range(60)]
    rows[20], rows[41] = "x,1", "5"
    (place.folder / "bad.csv").write_text("\n".join(["a,b", *rows]) + "\n")
    checked = place("check", "bad.csv", "--task", "forecast")
    assert "60 records, 58 good" in checked.out
    strict = place("train", "bad.csv", "--task", "forecast", *SHORT, "--out", "strict")
    assert strict.code == 2
    assert 'bad.csv:22: column 1 (a) is "x", not a number; 1 record more like this' in strict.err
    assert not (place.folder / "strict").exists()
    left = place("train", "bad.csv", "--task", "forecast", "--skip-bad", *SHORT, "--dry-run")
    assert "--skip-bad: 2 records left out" in left.out


def test_too_few_rows_are_told(place: Place) -> None:
    (place.folder / "few.csv").write_text("a,b\n" + "1,2\n" * 6)
    refused = place("train", "few.csv", "--task", "forecast", *SHORT, "--dry-run")
    assert refused.code == 2
    assert "few.csv has 5 vectors to learn from, which are no row of 8 + 1" in refused.err


def test_another_table_has_as_many_columns(place: Place) -> None:
    (place.folder / "three.csv").write_text("a,b,c\n" + "1,2,3\n" * 6)
    refused = place("eval", "foreseeing", "three.csv")
    assert refused.code == 2
    assert "three.csv has 3 columns of numbers, and the model foresees 2" in refused.err
    refused = place("train", "three.csv", "--from", "foreseeing", *SHORT[:4])
    assert refused.code == 2
    assert "vectors of 3 numbers for a model that reads vectors of 2" in refused.err


def test_a_model_goes_on_from_another_on_its_scale(place: Place) -> None:
    done = place(
        "train", "sea.csv", "--from", "foreseeing", "--train.steps", "2", "--train.threads", "1", "--out", "on"
    )
    assert (done.code, done.err) == (0, "")
    first, second = (load(place.folder / name) for name in ("foreseeing", "on"))
    assert (first.preprocess, first.config) == (second.preprocess, second.config)


def test_every_row_that_is_held_out_is_asked_for_once(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With rows of training before it, as many as it may look back at."""
    monkeypatch.chdir(place.folder)
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path))
    made = planned("forecast")
    rows = np.genfromtxt("moments.csv", delimiter=",", skip_header=1)
    held = round(0.2 * len(rows))  # of few
    [batch] = made.encoded.validation
    assert (batch.targets, batch.tokens) == (held, held + made.config.context)
    assert isinstance(made.task, Forecasting)
    found = predicted_rows(made.build().eval(), made.encoded.validation)
    came = np.array([made.task.input.unscaled(one.came).numpy() for one in found])
    np.testing.assert_allclose(came, rows[-held:], atol=1e-5)
