"""Minutes that become steps: the time is used, most of it for learning, and no more of it than was asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.recipe import Recipe
from headway.training import calibration
from headway.training import run as run_module
from headway.training.build import StepTiming, describe_plan, require, units_of_step
from headway.training.calibration import (
    EVALUATION_SHARE,
    MAX_EPOCHS,
    TimeBudget,
    fitted,
    max_steps,
    measured,
    predicted_seconds,
    shallow,
)
from headway.training.defaults import MIN_UPDATES, THROUGHPUT, weights_per_token
from headway.training.learner import Learner, StepResult
from headway.training.loop import Run
from headway.training.metrics_log import MetricsLog
from headway.training.plan import EVALUATIONS, Plan, plan
from headway.training.recipe_sources import from_yaml, read_layers
from tests.train.runs import FAMILIES, STEPS, data_in, planned

NEARLY = 1 + 1e-9
NO_LIMIT = 10**9
seconds = st.floats(1e-4, 100)


def asked(minutes: float, every: int | None = None) -> Recipe:
    recipe = Recipe()
    return replace(recipe, train=replace(recipe.train, minutes=minutes, evaluate_every=every))


def evaluations(recipe: Recipe) -> int:
    return -(-require(recipe.train.steps) // require(recipe.train.evaluate_every))


@pytest.mark.slow
@given(st.floats(0.01, 600), seconds, seconds, st.none() | st.integers(1, 1000))
def test_the_time_is_used_and_no_more(minutes: float, step: float, evaluation: float, every: int | None) -> None:
    pulse = StepTiming(step, evaluation, 0)
    recipe = fitted(asked(minutes, every), pulse, NO_LIMIT)
    steps = require(recipe.train.steps)
    if steps > 1:  # the last evaluation of a given pace may come between two of its own
        extra = 0 if every is None else evaluation
        assert pulse.seconds(steps, evaluations(recipe) + 1) <= 60 * minutes * NEARLY + extra
    more = EVALUATIONS + 1 if every is None else steps // every + 2
    assert pulse.seconds(steps + 1, more) * NEARLY > 60 * minutes


@given(st.floats(0.01, 600), seconds, seconds)
def test_evaluations_take_their_share(minutes: float, step: float, evaluation: float) -> None:
    found = evaluations(fitted(asked(minutes), StepTiming(step, evaluation, 0), NO_LIMIT))
    assert found <= EVALUATIONS
    assert found == 1 or (found + 1) * evaluation <= EVALUATION_SHARE * 60 * minutes * NEARLY


def test_long_evaluations_leave_time_to_learn() -> None:
    recipe = fitted(
        asked(5), StepTiming(0.5, 40, 0), NO_LIMIT
    )  # eleven evaluations would take more than the five minutes
    assert (recipe.train.steps, recipe.train.evaluate_every) == (440, 440)


# Small data, and little time.


def test_small_data_does_not_take_all_of_the_minutes() -> None:
    recipe = fitted(asked(30), StepTiming(0.1, 1.0, 0), 600)
    assert (recipe.train.steps, recipe.train.evaluate_every) == (600, 60)


@pytest.fixture(scope="module", autouse=True)
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with data_in(tmp_path_factory.mktemp("data")) as folder:
        yield folder


PACE = {"train.threads": "1", "train.lr": "0.01", "train.batch": "192"}
GIVEN = {**FAMILIES["gpt2"], **PACE, "train.minutes": "0.2"}


def test_the_length_is_bounded_by_the_epochs_of_the_data(data: Path) -> None:
    made = plan(read_layers({**GIVEN, "train.minutes": "600"}, environ={}))
    steps = max_steps(made)
    epochs = steps * units_of_step(made) / made.encoded.tokens
    assert steps > MIN_UPDATES
    assert epochs == pytest.approx(MAX_EPOCHS * THROUGHPUT["tokens"].epochs[1], rel=0.01)
    timing = StepTiming(0.1, 0.1, 0, minutes=600)
    told = describe_plan(replace(made, recipe=fitted(made.recipe, timing, steps)), timing)
    assert f"{steps:,} steps" in told
    assert "enough for this data: not all of 600 minutes" in told
    assert "too short" not in told
    assert max(map(len, told.splitlines())) <= 80


@pytest.mark.slow
def test_minutes_that_are_too_short_for_an_epoch_are_told_with_what_is_not(data: Path) -> None:
    layers = {**GIVEN, "train.minutes": "1", "model.preset": "gpt-baby", "model.dim": "384", "model.layers": "6"}
    made = plan(read_layers({**layers, "model.heads": "6"}, environ={}))
    slow = StepTiming(50.0, 1.0, 0, estimated=True, minutes=1)
    told = describe_plan(replace(made, recipe=fitted(made.recipe, slow, max_steps(made))), slow)
    epoch = round(made.encoded.tokens / units_of_step(made))
    needed = -(-(50 * epoch + 2) // 60)
    assert f"too short: about {needed} minutes for one epoch; give --minutes {needed} or more" in told
    assert "or a smaller model: --preset gpt-" in told
    assert "minutes, estimated" in told or "seconds, estimated" in told


@pytest.mark.slow
def test_epochs_of_data_that_is_smaller_than_a_batch_are_those_that_are_read(data: Path) -> None:
    made = planned("resnet", **{"train.batch": "1000", "train.grad_accumulation": "1"})
    assert f"{STEPS} steps, {STEPS}.0 epochs" in describe_plan(made, StepTiming(1.0, 1.0, 0))


# Measured at more than one moment, by a clock of our own.


@pytest.mark.slow
def test_a_busy_moment_is_not_taken_for_the_pace(data: Path) -> None:
    made = planned("gpt2", **{"train.steps": "1000"})
    now, calls = [0.0], [0]

    def clock() -> float:  # a second for each call at first, a millisecond for each later one
        calls[0] += 1
        now[0] += 1.0 if calls[0] < 8 else 0.001
        return now[0]

    timing = measured(made, clock)
    assert timing.step < 0.01
    assert not timing.estimated


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "resnet"])
def test_what_would_take_long_is_estimated_by_less(data: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By fewer layers and smaller batches, scaled by the operations."""
    made = planned(name, **{"model.layers": "[4, 4]" if name == "resnet" else "4"})
    learned: list[tuple[int, int]] = []
    learn = Learner.learn

    def noted(self: Learner, step: int, batches: Sequence[Any]) -> StepResult:
        learned.append((sum(p.numel() for p in self.model.parameters()), sum(batch.tokens for batch in batches)))
        return learn(self, step, batches)

    monkeypatch.setattr(Learner, "learn", noted)
    monkeypatch.setattr(calibration, "MAX_TIMED_SECONDS", 0.0)
    monkeypatch.setattr(calibration, "SMALL_SECONDS", predicted_seconds(made) / 8)
    ticks = iter(range(10**6))
    timing = measured(made, lambda: float(next(ticks)))  # a second for each step
    whole = sum(weight.numel() for weight in made.build().parameters())
    assert timing.estimated
    assert all(weights <= whole and units < units_of_step(made) for weights, units in learned)
    unit, units = made.encoded.unit, sorted(count for _, count in learned[1:])
    step = timing.step * weights_per_token(shallow(made.config), unit) / weights_per_token(made.config, unit)
    assert units_of_step(made) / units[-1] <= step * NEARLY
    assert step <= units_of_step(made) / units[0] * NEARLY


# Counted anew in the first tenth, and recorded.


class Killed(BaseException):
    pass


@dataclass
class Killer:
    """A callback that ends a process after a step, as if by SIGKILL."""

    step: int

    def on_step(self, result: StepResult, seconds: float) -> None:
        if result.step == self.step:
            raise Killed


def half_a_second(*_: object) -> StepTiming:
    return StepTiming(0.5, 0.1, 0)


def no_report(*_: object) -> None:
    pass


class Machine:
    """Runs by a clock of its own: `pace` seconds for each step, where 0.5 were planned."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.monkeypatch = monkeypatch
        monkeypatch.setattr(calibration, "measured", half_a_second)
        monkeypatch.setattr(run_module, "write_report", no_report)

    def train(self, out: Path, pace: float, *callbacks: object, resume: bool = False) -> Plan:
        times = iter(range(10**9))
        self.monkeypatch.setattr(run_module, "Run", partial(Run, clock=lambda: pace * next(times)))
        layers = {"out": str(out)} if resume else {**GIVEN, "out": str(out)}
        layers = read_layers(layers, environ={})
        return run_module.train(layers, resume=resume, callbacks=callbacks, out=StringIO())[0]


def result_of(folder: Path) -> tuple[bytes, bytes]:
    return (folder / "model.safetensors").read_bytes(), (folder / "metrics.jsonl").read_bytes()


@pytest.mark.long
@pytest.mark.parametrize("pace", [0.25, 0.9])
def test_steps_are_counted_anew_and_the_run_is_that_of_its_recipe(
    data: Path, memory: Path, monkeypatch: pytest.MonkeyPatch, pace: float
) -> None:
    machine, whole = Machine(monkeypatch), memory / "whole"
    made = machine.train(whole, pace)
    recipe = from_yaml(whole / "recipe.yaml")
    steps, every = require(recipe.train.steps), require(recipe.train.evaluate_every)
    assert recipe == made.recipe
    assert steps * pace + 0.1 * (-(-steps // every) + 1) == pytest.approx(12, abs=pace + 0.5)
    assert json.loads((whole / "metrics.jsonl").read_text().splitlines()[-1])["step"] == steps

    # its recipe makes the same run from the beginning
    again = read_layers({"out": str(memory / "again")}, whole / "recipe.yaml", environ={})
    run_module.train(again, out=StringIO())
    assert result_of(memory / "again") == result_of(whole)

    # killed before it, right after it, and later: what was decided stays, at whatever pace it goes on
    for step, later in ((1, pace), (3, 9.0), (12, 0.01)):
        folder = memory / f"killed-{step}"
        with pytest.raises(Killed):
            machine.train(folder, pace, Killer(step))
        machine.train(folder, later, resume=True)
        assert result_of(folder) == result_of(whole)


@pytest.mark.slow
def test_a_decision_is_written_before_it_takes_effect(
    data: Path, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(monkeypatch)
    machine.train(memory / "whole", 0.25)
    append = MetricsLog.append_time

    def killed(self: MetricsLog, **values: Any) -> None:
        if "budget" in values and values["budget"] is None:
            raise Killed
        append(self, **values)

    with monkeypatch.context() as patch:
        patch.setattr(MetricsLog, "append_time", killed)  # between the recipe and the line that closes the matter
        with pytest.raises(Killed):
            machine.train(memory / "killed", 0.25)
    machine.train(memory / "killed", 0.25, resume=True)
    assert result_of(memory / "killed") == result_of(memory / "whole")


def test_a_number_of_steps_that_is_right_stays() -> None:
    recipe = fitted(asked(3), StepTiming(0.5, 0.1, 0), NO_LIMIT)
    budget = TimeBudget(3, 0.1, 35, NO_LIMIT)
    assert budget.recounted(recipe, [0.52] * 35) is recipe
    assert budget.recounted(recipe, [0.1]) is recipe  # a resumed run that has timed too little


@given(st.floats(0.5, 60), st.floats(0.01, 1), st.floats(0.05, 20), st.floats(0, 1))
def test_the_rest_of_the_time_is_filled(minutes: float, step: float, slower: float, evaluation: float) -> None:
    recipe = fitted(asked(minutes), StepTiming(step, evaluation, 0), NO_LIMIT)
    planned_steps, warmup = require(recipe.train.steps), require(recipe.train.warmup_steps)
    at = min(planned_steps // 10, warmup)
    if at < 2:
        return
    pace = slower * step
    found = TimeBudget(minutes, evaluation, at, NO_LIMIT).recounted(recipe, [pace] * at)
    steps = require(found.train.steps)
    if found is recipe:
        assert abs(steps - planned_steps) <= 0.1 * planned_steps or steps == max(at + 1, warmup)
        return
    assert steps > at
    assert require(found.train.evaluate_every) >= at
    assert found.train.warmup_steps == warmup
    if steps > max(at + 1, warmup):
        assert steps * pace + (evaluations(found) + 1) * evaluation <= 60 * minutes * NEARLY + pace
