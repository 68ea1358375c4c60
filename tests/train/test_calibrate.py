"""Minutes that become steps: the time is used, most of it for learning, and no more of it than was asked for."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from headway.recipe import Recipe
from headway.training.build import StepTiming, require
from headway.training.calibration import EVALUATION_SHARE, fitted
from headway.training.plan import EVALUATIONS

NEARLY = 1 + 1e-9
NO_LIMIT = 10**9
seconds = st.floats(1e-4, 100)


def asked(minutes: float, every: int | None = None) -> Recipe:
    recipe = Recipe()
    return replace(recipe, train=replace(recipe.train, minutes=minutes, evaluate_every=every))


def evaluations(recipe: Recipe) -> int:
    return -(-require(recipe.train.steps) // require(recipe.train.evaluate_every))


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
