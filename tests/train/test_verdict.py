"""One evaluation at the end of a run: console, report, card and scores.json say the same, beside simple methods."""

from __future__ import annotations

import html
import io
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from headway.cli import main as cli
from headway.metrics.intervals import Interval
from headway.metrics.scores import MEASURES, Scores, class_rows, score_cell
from headway.metrics.scoring import score_classes
from headway.tasks.base import Task, task_class
from headway.tasks.registry import TASKS
from headway.tasks.results import BaselineResult, EvalResult
from headway.training import run_summary as verdicts
from headway.training.build import steps_of_epoch
from headway.training.loop import RunResult
from headway.training.plan import Plan
from headway.training.recipe_sources import read_layers, to_yaml
from headway.training.run import train
from headway.training.run_summary import advice, conclusions, verdict
from tests.train.runs import FAMILIES, MORE, planned, write_data

# a family for each task that can be trained
FAMILY = {
    "forecasting": "forecast",
    "seq2seq": "transformer",
    "text-classification": "classes",
    "tagging": "tags",
    "text-pair-classification": "two texts",
    "text-regression": "numbers",
    "text-pair-regression": "scored pairs",
    "multi-label-classification": "several labels",
    "question-answering": "questions",
    "causal-lm": "gpt2",
    "chat-lm": "chats",
    "masked-lm": "masked",
    "span-corruption": "spans",
    "image-classification": "resnet",
    "masked-image": "mae",
    "simclr": "simclr",
    "captioning": "captions",
    "image-text-contrastive": "clip",
    "sound-classification": "conformer",
    "ctc": "speech",
    "speech-seq2seq": "dictation",
    "series-classification": "series",
    "set-classification": "sets",
    "image-regression": "scored images",
    "sound-regression": "scored sounds",
    "series-regression": "scored series",
}
SHORT = {"train.steps": "2", "train.evaluate_every": "1", "train.threads": "1"}


@pytest.fixture(scope="module", autouse=True)
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("verdict")
    write_data(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("HEADWAY_CACHE", str(folder / "cache"))
        yield folder


@dataclass(frozen=True)
class Finished:
    made: Plan
    end: RunResult
    console: str
    page: str  # as text
    card: str
    data: dict[str, Any]


def finished(name: str, out: str, **more: str) -> Finished:
    """A short run of a family, and what it leaves."""
    console = io.StringIO()
    settings = {**FAMILIES, **MORE}[name] | {**SHORT, "out": out, **more}
    made, end = train(read_layers(settings, environ={}), out=console)
    page, card = ((made.out / file).read_text("utf-8") for file in ("report.html", "README.md"))
    data = json.loads((made.out / "scores.json").read_text("utf-8"))
    return Finished(made, end, console.getvalue(), html.unescape(re.sub(r"<[^>]*>", " ", page)), card, data)


def test_every_task_that_is_trained_is_here() -> None:
    assert set(FAMILY) == {name for name in TASKS if task_class(name).presets_by_size}


@pytest.mark.long
@pytest.mark.parametrize("task", FAMILY)
def test_console_report_card_and_data_say_the_same(task: str) -> None:
    one = finished(FAMILY[task], f"run {task}")
    found = one.end.found
    assert one.made.task.name == task
    assert found is not None
    scores = found.scores
    for name, number in scores.numbers.items():
        low, high = scores.intervals[name]
        assert low <= number <= high or name == "gain", name  # percentiles of a ratio need not hold it
        assert one.data["scores"][name] == pytest.approx(number)
        assert one.data["intervals"][name] == {"low": low, "high": high, "n": scores.statistics[name].n}
        shown = MEASURES[name].with_interval(number, scores.intervals[name])
        assert shown.endswith(")")
        assert f"{MEASURES[name].title}" in one.console
        assert scores.told(name) in one.console
        for text in (one.page, one.card):
            assert shown in text
        assert scores.basis(name) in one.page
    assert one.data["count"] == scores.count
    assert found.baselines
    for baseline in found.baselines:
        main = score_cell(baseline.scores, scores.main)
        assert f"by {baseline.name}" in one.console
        assert f"{main} by {baseline.name}" in one.console
        assert one.data["baselines"][baseline.name][scores.main] == baseline.scores.numbers[scores.main]
        for text in (one.page, one.card):
            assert f"by {baseline.name}" in text
            assert main in text
    said = one.data["conclusions"]
    assert re.match("has learned|has not learned|may not have learned", said[0])
    assert "also chose the weights" in said[1]
    for line in said:
        assert line in one.console
        assert " ".join(line.split()) in " ".join(one.page.split())
    lines = [json.loads(line) for line in (one.made.out / "metrics.jsonl").read_text("utf-8").splitlines()]
    assert {name: lines[-1]["valid"][name] for name in scores.numbers} == scores.numbers
    evaluations = [line for line in lines if "intervals" in line]  # those in training, each with what it is of
    assert evaluations
    for line in evaluations:
        assert f"Evaluations on {line['count']:,} {line['things']}, with 95 % intervals" in one.page
        for name in scores.numbers:
            low, high = (line["intervals"][name][end] for end in ("low", "high"))
            assert MEASURES[name].with_interval(line["valid"][name], Interval(low, high)) in one.page
    if scores.classes is not None:
        for row in class_rows(scores.classes)[1:]:
            assert all(cell in one.card for cell in row[2:5])  # precision, recall and F1 with their intervals


@pytest.mark.slow
def test_more_records_are_answered_at_the_end_and_all_numbers_are_of_these(monkeypatch: pytest.MonkeyPatch) -> None:
    """As 200 of 1,000 at each evaluation: the last line of metrics and all reports are of the 1,000."""
    monkeypatch.setattr(task_class("seq2seq"), "validation_records", 3)
    one = finished("transformer", "more")
    assert one.end.found is not None
    count = one.end.found.scores.count
    assert count == len(list(one.made.splits.validation())) > 20
    assert f"3 of these {count} pairs also chose the weights" in one.console
    assert f"({count} pairs; " in one.console
    assert f"On {count} held-out pairs that were not used in training" in one.page


@pytest.mark.slow
def test_advice_works_when_it_is_typed(place: Path) -> None:
    made = planned("classes", out="typed")
    recipe = replace(made.recipe, train=replace(made.recipe.train, steps=2))
    (place / "typed").mkdir()
    (place / "typed" / "recipe.yaml").write_text(to_yaml(recipe), "utf-8")
    said = advice(replace(made, recipe=recipe))
    assert said == "headway train --config typed/recipe.yaml --out NEW --train.steps 8"
    assert cli.main(said.split()[1:]) == 0
    assert json.loads((place / "NEW" / "metrics.jsonl").read_text("utf-8").splitlines()[-1])["step"] == 8
    many = replace(recipe, train=replace(recipe.train, steps=600, lr=0.002))
    slower = advice(replace(made, recipe=many))
    assert slower.endswith(" --out NEW --train.lr 0.0005, or --train.steps 2400")
    small = replace(made, recipe=replace(recipe, train=replace(recipe.train, steps=1, batch=1)))
    epoch = steps_of_epoch(small)
    assert epoch > 4
    assert advice(small).endswith(f" --train.steps {epoch}")


CLASSES = ["a"] * 60 + ["b"] * 40


def result(right: int, baselines: dict[str, float], loss: float = 0.69) -> EvalResult:
    """Of a hundred texts so many answered right."""
    answers = CLASSES[:right] + ["c"] * (100 - right)
    simple = tuple(BaselineResult(name, Scores({"accuracy": share}, 100)) for name, share in baselines.items())
    return EvalResult(score_classes(answers, CLASSES), loss=loss, baselines=simple)


@pytest.mark.slow
def test_the_verdict_follows_from_the_baselines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "advice", lambda made: "more")
    made = planned("classes", out="said")

    def said(right: int, **baselines: float) -> str | None:
        return verdict(made, RunResult(300, None, "", result(right, baselines)))

    shown = "accuracy 90.00 % (90 of 100; 82–95 %) against 60.00 % by majority"
    same = "on the same 100 texts"
    assert said(90, majority=0.6) == f"has learned: {shown} {same}"
    assert said(90, majority=0.6, bayes=0.7) == f"has learned: {shown} and 70.00 % by bayes {same}"
    found = said(90, majority=0.6, bayes=0.88)
    assert found == (
        f"has learned: {shown} and 88.00 % by bayes {same}; whether it is better than bayes, 100 texts are too few "
        "to tell"
    )
    found = said(90, majority=0.6, bayes=0.95)
    assert str(found).startswith(f"has learned, but less than bayes: {shown} and 95.00 % by bayes {same}; try more; ")
    assert str(found).endswith("--from FOLDER starts from a pretrained one")
    assert said(52, majority=0.6) == (
        "has not learned: accuracy 52.00 % (52 of 100; 42–62 %) against 60.00 % by majority on the same 100 texts; "
        "the loss is 0.69 after 300 steps; try more"
    )
    assert str(said(65, majority=0.6)).startswith("may not have learned: accuracy 65.00 % (65 of 100; 55–74 %)")
    assert said(90) is None
    lost = RunResult(300, None, "", EvalResult(Scores({"loss": math.nan}, 0, "targets")))
    assert str(verdict(made, lost)).startswith("has not learned: loss is no number after 300 steps")
    assert conclusions(made, RunResult(300, None, "", None)) == []


def test_a_task_of_ones_own_has_no_baselines() -> None:
    assert list(Task.baselines(object(), object(), object(), object())) == []  # pyright: ignore
