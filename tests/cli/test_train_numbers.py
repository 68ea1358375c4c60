"""`headway train`, `eval` and `run` where a number is said of each image, sound or series, as a person meets them."""

from __future__ import annotations

import json
import sys

import pytest

from headway.loading import load
from headway.tasks.media_regression import ImageRegression
from tests.cli.command import Place, made_place

pytestmark = pytest.mark.slow
SHORT = ["--train.steps", "4", "--train.threads", "1"]
SMALL = ["--model.dim", "16", "--model.heads", "2", "--model.layers", "1"]
VIT = ["--preset", "vit-nano", *SMALL, "--train.batch", "16"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = made_place(tmp_path_factory.mktemp("place"))
    done = place("train", "light.csv", *VIT, *SHORT, "--out", "seen", "--test", "light.csv.test")
    assert done.code == 2  # no such file
    lines = (place.folder / "light.csv").read_text().splitlines()
    for name, some in (("part.csv", lines[:31]), ("rest.csv", [lines[0], *lines[31:]])):
        (place.folder / name).write_text("\n".join([*some, ""]))
    done = place("train", "part.csv", *VIT, *SHORT, "--out", "seen", "--test", "rest.csv")
    assert (done.code, done.err) == (0, "")
    assert "so regression of images (change with --task)" in done.out
    assert "  task    image-regression: " in done.out
    for said in ("root mean square error", "by mean: ", "by median: ", "by mean of the 5 nearest: ", "(10 images; "):
        assert said in done.out
    return place


def test_a_trained_model_is_evaluated_and_asked(place: Place) -> None:
    found = json.loads(place("eval", "seen", "light.csv", "--json").out)
    assert (found["task"], found["count"], found["things"]) == ("image-regression", 40, "images")
    assert set(found["scores"]) == {"rmse", "mae", "r2", "pearson", "spearman"}
    assert set(found["training"]["baselines"]) == {"mean", "median", "mean of the 5 nearest"}
    asked = "photos/dark/0.png"
    told, plain = place("run", "seen", asked, "--json"), place("run", "seen", asked)
    number = json.loads(told.out)["output"]
    assert json.loads(told.out) == {"input": asked, "output": number}
    assert plain.out == f"{number:.6g}\n"
    (place.folder / "asked.txt").write_text(f"{asked}\n{asked}\n")

    def piped() -> None:
        sys.stdin = (place.folder / "asked.txt").open(encoding="utf-8")

    assert place("run", "seen", "--lines", before=piped).out == plain.out * 2


def test_few_whole_numbers_are_read_as_the_model_was_trained(place: Place) -> None:
    rows = (place.folder / "light.csv").read_text().splitlines()[1:]
    whole = [f"{row.partition(',')[0]},{at % 3}" for at, row in enumerate(rows)]
    (place.folder / "whole.csv").write_text("\n".join(["file,much", *whole, ""]))
    assert json.loads(place("eval", "seen", "whole.csv", "--json").out)["task"] == "image-regression"
    refused = place("eval", "seen", "whole.csv", "--task", "images")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "says a number for an image, but" in refused.err
    assert "so image classification" in place("train", "whole.csv", *VIT, "--dry-run").out
    assert "so regression of images" in place("train", "whole.csv", *VIT, "--task", "regression", "--dry-run").out


REFUSED = {
    "weights of classes": (
        ["light.csv", *VIT, "--train.class-weights", "balanced"],
        "--train.class-weights balanced weighs classes, and this task (image-regression) learns none",
    ),
    "mixed images": (["light.csv", *VIT, "--data.augment", "mixup"], "--data.augment 'mixup'; allowed: crop, flip"),
    "a task on texts by its name": (
        ["light.csv", "--task", "text-regression"],
        "no scored texts; give others, or say --task image-regression",
    ),
    "one number": (["same.csv"], "every number in same.csv is 2.5; give data with different numbers"),
    "a cell that is no number": (["odd.csv"], "odd.csv:3: the value is 'bright', not a number; see headway check"),
    "an empty cell": (["empty.csv"], "empty.csv:3: the value is empty; see headway check"),
    "a target that is no number": (["nan.csv"], "nan.csv:3: column 7 (target) is 'nan', not a number"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_learned_from_gets_one_sentence(place: Place, name: str) -> None:
    head, *rows = (place.folder / "light.csv").read_text().splitlines()
    files = [row.partition(",")[0] for row in rows]
    numbers = (place.folder / "sums.csv").read_text().splitlines()
    tables = {
        "same.csv": [head, *(f"{file},2.5" for file in files)],
        "odd.csv": [head, rows[0], f"{files[1]},bright", *rows[2:]],
        "empty.csv": [head, rows[0], f"{files[1]},", *rows[2:]],
        "nan.csv": [*numbers[:2], f"{numbers[2].rpartition(',')[0]},nan", *numbers[3:]],
    }
    for table, lines in tables.items():
        (place.folder / table).write_text("\n".join([*lines, ""]))
    words, said = REFUSED[name]
    task = [] if "--task" in words else ["--task", "regression"]
    refused = place("train", *words, *task, *SHORT, "--out", "none")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert said in refused.err
    assert not (place.folder / "none").exists()


def test_a_model_goes_on_and_another_gets_a_new_head(place: Place) -> None:
    """From its own folder with its scale, and from a classifier with that of the data."""
    assert place("train", "rest.csv", "--from", "seen", *SHORT, "--out", "further").code == 0
    assert place("train", "photos", *VIT, *SHORT, "--out", "classes").code == 0
    done = place("train", "rest.csv", "--from", "classes", *SHORT, "--out", "other")
    assert (done.code, done.err) == (0, "")
    assert "  task    image-regression: " in done.out
    tasks = [load(place.folder / name).task for name in ("seen", "further", "other")]
    first, again, other = [(one.mean, one.std) for one in tasks if isinstance(one, ImageRegression)]
    assert first == again != other


def test_series_are_answered_by_the_columns_of_a_table(place: Place) -> None:
    done = place("train", "sums.csv", *SMALL, *SHORT, "--out", "summed")
    assert (done.code, done.err) == (0, "")
    rows = [line.split(",") for line in (place.folder / "sums.csv").read_text().splitlines()]
    turned = [",".join(row[::-1]) for row in rows]  # columns in another order, and the target among them
    (place.folder / "turned.csv").write_text("\n".join([*turned, ""]))
    told = place("run", "summed", "sums.csv")
    assert len(told.out.splitlines()) == len(rows) - 1
    assert place("run", "summed", "turned.csv").out == told.out
    assert place("run", "summed", "--", "; ".join(rows[1][:-1])).out == told.out.splitlines(keepends=True)[0]
    refused = place("run", "summed", "1; 2; 3")
    assert (refused.code, refused.out) == (2, "")
    assert "has 3 numbers; allowed: 6, which are a, b, c, d, e, f" in refused.err
