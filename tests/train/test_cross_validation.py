"""Cross-validation: a run for each fold, one score of all records, and a model of all of them."""

from __future__ import annotations

import io
import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

import headway
from headway.data.records import Record
from headway.errors import UserError
from headway.loading import load
from headway.metrics.scores import Scores
from headway.metrics.scoring import score_classes, score_pairs
from headway.tasks.results import EvalResult
from headway.training.cross_validation import dry_run, resolved_yaml, train
from headway.training.fold_scores import CrossValidation, FoldResult
from headway.training.learner import StepResult
from headway.training.plan import Plan
from headway.training.recipe_data import load_splits
from headway.training.recipe_sources import from_yaml, preflight, read_layers
from headway.training.resuming import extend
from headway.training.run import finished_in
from headway.training.run import train as train_once
from tests.train.runs import FAMILIES, MORE, data_in

FOLDS, STEPS = 3, 4
SHORT = {"train.steps": str(STEPS), "train.threads": "1", "train.dtype": "fp32"}  # which timing would choose
FOLDED = SHORT | {"data.folds": str(FOLDS)}
SERIES = ("gpt2", "llama", "mixtral", "masked", "spans", "forecast")  # of one text, or of one series


@pytest.fixture(scope="module", autouse=True)
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with data_in(tmp_path_factory.mktemp("folded")) as folder:
        yield folder
    trained.cache_clear()


@cache
def trained(name: str) -> tuple[Plan, CrossValidation, str]:
    """The folder of a family that nobody interrupts, and what was said."""
    console = io.StringIO()
    given = {key: value for key, value in {**FAMILIES, **MORE}[name].items() if key != "data.validation_split"}
    made, end = train(read_layers(given | FOLDED | {"out": name}, environ={}), out=console)
    assert made.estimate is not None
    assert end.found is made.estimate.result
    return made, made.estimate, console.getvalue()


def fold_records(made: Plan, fold: int) -> tuple[list[Record], list[Record]]:
    """What a fold's model has learned from, and what was held out of it."""
    splits = load_splits(from_yaml(made.out / "folds" / str(fold) / "recipe.yaml"))
    return list(splits.train()), list(splits.validation())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["classes", "transformer"])
def test_the_score_is_that_of_all_held_out_answers(name: str) -> None:
    """Each record answered by the model of its fold, as `headway run` answers it."""
    made, known, _ = trained(name)
    answers, wanted, frequent, asked = list[str](), list[str](), list[str](), Counter[tuple[str, ...]]()
    for fold in range(1, FOLDS + 1):
        learned, held = fold_records(made, fold)
        model = load(made.out / "folds" / str(fold))
        answers += [one.to_dict()["output"] for one in model.predict([record.fields[0] for record in held])]
        wanted += [record.fields[1] for record in held]
        counts = Counter(record.fields[1] for record in learned)
        frequent += [min(counts, key=lambda text: (-counts[text], text))] * len(held)
        asked.update(record.fields for record in held)
    assert asked == Counter(record.fields for record in made.splits.train())
    score = score_classes if name == "classes" else score_pairs
    for found, by_hand in (
        (known.result.scores, score(answers, wanted)),
        (known.baselines[0].scores, score(frequent, wanted)),
    ):
        assert found.count == len(wanted) == 120
        assert found.numbers == pytest.approx(dict(by_hand.numbers))
        for name, interval in by_hand.intervals.items():
            assert found.intervals[name] == pytest.approx(interval)


@pytest.mark.slow
def test_the_model_is_that_of_an_ordinary_run_on_all_records(place: Path) -> None:
    """As the recipe in its folder says; so is the model of each fold, which can be trained alone."""
    made, known, _ = trained("classes")
    assert made.recipe.train.steps == known.final_steps == STEPS
    assert [fold.step for fold in known.folds] == [STEPS] * FOLDS
    assert (made.recipe.data.folds, made.recipe.data.validation_split) == (None, 0.0)
    assert [len(list(part())) for part in (made.splits.train, made.splits.validation)] == [120, 0]
    for folder in (made.out, made.out / "folds" / "2"):
        alone = place / f"{folder.name} alone"
        train(read_layers({"out": alone}, folder / "recipe.yaml", environ={}), out=io.StringIO())
        assert (alone / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()


@pytest.mark.slow
def test_card_console_report_and_scores_say_of_what_the_scores_are() -> None:
    made, known, console = trained("classes")
    card, page = ((made.out / name).read_text("utf-8") for name in ("README.md", "report.html"))
    told = json.loads((made.out / "scores.json").read_text("utf-8"))
    main, folds = known.result.scores.main, told["cross_validation"]["folds"]
    numbers = [fold.found.scores.numbers[main] for fold in known.folds]
    assert told["count"] == sum(fold["count"] for fold in folds) == 120
    assert told["scores"][main] == pytest.approx(known.result.scores.numbers[main])
    assert [fold["scores"][main] for fold in folds] == pytest.approx(numbers)
    assert [fold["model"] for fold in folds] == [f"folds/{at}" for at in range(1, FOLDS + 1)]
    assert told["cross_validation"]["mean"][main] == pytest.approx(fmean(numbers))
    assert told["cross_validation"]["standard_deviation"][main] == pytest.approx(stdev(numbers))
    assert f"mean {100 * fmean(numbers):.2f} % and standard deviation {100 * stdev(numbers):.2f} points" in console
    assert "each of 120 texts is scored by the one of 3 models that has not seen it" in known.title
    assert "an estimate for this model, which was trained on all records for 4 steps, as they were on" in known.meaning
    for text in (card, page, console):
        assert known.title in text
        assert known.meaning.replace("'", "&#x27;") in text or known.meaning in text
        assert "not used in training" not in text
    assert known.meaning in told["conclusions"]
    assert "optimistic" not in console + card + page
    assert told["baselines"].keys() == {"majority class", "naive Bayes"}


@pytest.mark.slow
@pytest.mark.parametrize("cut", [2, STEPS + 1, FOLDS * STEPS + 1])
def test_an_interrupted_command_goes_on_to_the_same_bits(
    cut: int, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the first fold, in the second, and in the training on all records; no finished one is trained again."""
    made, _, _ = trained("classes")
    folder, steps, console = place / f"cut {cut}", list[int](), io.StringIO()
    folder.mkdir()
    monkeypatch.chdir(folder)
    settings = FAMILIES["classes"] | FOLDED | {"out": "classes", "data.path": ("../labels.csv",)}

    class Cut:
        def on_step(self, result: StepResult, seconds: float) -> None:
            steps.append(result.step)
            if len(steps) == cut:
                os.kill(os.getpid(), signal.SIGINT)

    stopped, end = train(read_layers(settings, environ={}), callbacks=[Cut()], out=console)
    assert (end.signal, stopped.out) == (signal.SIGINT, Path("classes"))
    assert "headway train --out classes --resume" in console.getvalue()
    resumed = read_layers({"out": "classes"}, environ={})  # as it is told to
    assert finished_in(resumed) is None
    train(resumed, resume=True, callbacks=[Cut()], out=console)
    assert finished_in(resumed) == Path("classes")
    assert len(steps) == (FOLDS + 1) * STEPS
    for name in ("folds/1/model.safetensors", "folds/3/metrics.jsonl", "model.safetensors", "scores.json"):
        assert (Path("classes") / name).read_bytes() == (place / made.out / name).read_bytes(), name


@pytest.mark.slow
def test_what_was_begun_is_what_goes_on(place: Path) -> None:
    made, _, _ = trained("classes")
    with pytest.raises(UserError, match=r"data\.folds 4, but the run in classes has data\.folds = 3"):
        finished_in(read_layers({"out": made.out, "data.folds": "4"}, environ={}))
    with pytest.raises(UserError, match="classes holds a run already"):
        train(read_layers(FAMILIES["classes"] | FOLDED | {"out": made.out}, environ={}), out=io.StringIO())
    with pytest.raises(UserError, match="have decided how long its model is trained; go on from its model"):
        extend(read_layers({"out": made.out}, environ={}), "train.steps", "+3")


@pytest.mark.long
def test_minutes_are_shared_out_among_all_trainings(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As many steps in each fold as the first has had time for."""
    given = FAMILIES["classes"] | {"data.folds": "2", "train.minutes": "0.06", "train.threads": "1"}
    dry_run(read_layers(given | {"out": "timed"}, environ={}))
    told = capsys.readouterr().out
    assert "2 folds and a final training of about" in told
    assert not Path("timed").exists()
    assert "minutes: 0.06" in resolved_yaml(read_layers(given, environ={}))
    made, _ = train(read_layers(given | {"out": "timed"}, environ={}), out=io.StringIO())
    shared, *folds = (from_yaml(place / "timed" / "folds" / name / "recipe.yaml") for name in ("", "1", "2"))
    assert (shared.train.minutes, shared.train.steps, shared.data.folds) == (0.06, None, 2)
    assert folds[0].train == folds[1].train
    assert made.estimate is not None
    assert made.estimate.steps == folds[0].train.steps
    assert [fold.data.fold for fold in folds] == [1, 2]


@pytest.mark.slow
def test_counted_weights_that_most_folds_keep_are_counted_in_all_records() -> None:
    """Without a step; those of a fold have not counted what it holds out."""
    made, known, console = trained("votes")
    assert [fold.step for fold in known.folds] == [0] * FOLDS
    assert "done: the weights are those that were counted in the data, of a training on all records" in console
    assert "which was trained on all records by counting alone, as they were on theirs" in console
    trained_once, end = train_once(
        read_layers(FAMILIES["votes"] | SHORT | {"train.steps": "0", "out": "counted once"}, environ={}),
        out=io.StringIO(),
    )
    assert end.counted
    assert (end.step, end.chosen) == (0, "those that were counted in the data")
    files = [one.out / "model.safetensors" for one in (made, trained_once)]
    assert files[0].read_bytes() == files[1].read_bytes()  # which counts in the end what it held out, too
    assert files[0].read_bytes() != (made.out / "folds" / "1" / "model.safetensors").read_bytes()


@pytest.mark.slow
def test_from_python() -> None:
    """Groups of records are kept together, and the model that is returned is that of all records."""
    records = [
        Record(
            (f"the {'cat' if at % 3 else 'dog'} sleeps {at}", "ab"[at % 3 > 0]), Path("records"), at, group=f"{at // 4}"
        )
        for at in range(48)
    ]
    model = headway.train(
        records,
        task="text-classification",
        folds=4,
        steps=2,
        threads=1,
        out="python",
        quiet=True,
        layers=1,
        dim=8,
        heads=2,
    )
    assert isinstance(model, headway.Model)
    told = json.loads(Path("python/scores.json").read_text("utf-8"))
    assert (told["count"], [fold["count"] for fold in told["cross_validation"]["folds"]]) == (48, [12] * 4)


@pytest.mark.long
@pytest.mark.parametrize("name", {**FAMILIES, **MORE})
def test_every_family(name: str) -> None:
    """Every record is scored once, by the metrics that one run has."""
    if name in SERIES:
        with pytest.raises(UserError, match=r"leave out data\.folds"):
            trained(name)
        return
    made, known, console = trained(name)
    once, end = train_once(
        read_layers({**FAMILIES, **MORE}[name] | SHORT | {"out": f"{name} once"}, environ={}), out=io.StringIO()
    )
    found, parts = known.result, [fold.found for fold in known.folds]
    assert end.found is not None
    assert list(found.values) == list(end.found.values)
    assert [one.name for one in found.baselines] == [one.name for one in end.found.baselines]
    assert found.scores.count == sum(one.scores.count for one in parts) > end.found.scores.count
    if found.scores.things in ("texts", "pairs", "images", "samples", "sentences"):
        assert found.scores.count == len(list(made.splits.train())) == len(list(once.splits.rejoined.train()))
    assert known.title in console
    assert load(made.out).task.name == made.task.name


def result(score: float, loss: float | None = None) -> EvalResult:
    return EvalResult(Scores({"accuracy": score}, 10), loss=loss)


def test_the_loss_is_that_of_a_target_and_most_folds_decide_whether_counts_are_kept() -> None:
    folds = tuple(
        FoldResult(result(score, loss), targets, step)
        for score, loss, targets, step in ((0.5, 1.0, 30, 0), (0.7, 2.0, 10, 900), (0.9, 4.0, 10, 900))
    )
    known = CrossValidation(folds, 900, Path("folds"))
    assert known.loss == pytest.approx((30 + 20 + 40) / 50)
    assert known.final_steps == 900
    assert CrossValidation(folds[:2], 900, Path("folds")).final_steps == 0
    assert known.spread("accuracy") == pytest.approx((0.7, 0.2))
    assert known.described_spread == "over 3 folds accuracy has mean 70.00 % and standard deviation 20.00 points"
    assert CrossValidation((*folds, FoldResult(result(0.1), 5, 3)), 9, Path("folds")).loss is None


@pytest.mark.parametrize("name", ["evaluate_every", "patience", "average"])
def test_no_held_out_record_chooses_weights(name: str) -> None:
    with pytest.raises(UserError, match=f"train.{name} lets held-out records choose .* leave out train.{name} or"):
        train(read_layers(FAMILIES["classes"] | FOLDED | {f"train.{name}": "2"}, environ={}), out=io.StringIO())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"data.fold": "2"}, "data.fold 2 is one of so many folds; give data.folds too, or leave data.fold out"),
        ({"data.fold": "4", "data.folds": "3"}, "data.fold 4 of 3 folds; give a smaller data.fold"),
    ],
)
def test_a_fold_is_one_of_the_folds(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        preflight(read_layers({"data.path": ("labels.csv",), **settings}, environ={}), None)
