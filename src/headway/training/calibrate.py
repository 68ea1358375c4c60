"""How long a run will take and how much memory: a few steps on a copy of it, before it begins.

What was measured decides nothing, but for a run that was asked to take so many minutes: its steps are counted here, and
written into its recipe, so that a resumed run follows the same schedule.
"""

from __future__ import annotations

import resource
import sys
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter

from headway.recipe import Recipe
from headway.training.build import batches_of, evaluator_of, learner_of, some
from headway.training.plan import EVALUATIONS, Plan, with_steps

LOOK = 3.0  # seconds of steps to look at, and no fewer than LEAST of them
LEAST = 3
PART = 10  # of a short run's steps no more than a tenth are looked at
GUESS = 1000  # steps that a run is taken to have while its length is sought
SHARE = 0.25  # of the time that was asked for, evaluations take no more, but for one at the end and the report


@dataclass(frozen=True)
class StepTiming:
    """Seconds of a step and of an evaluation, and the memory of the process in bytes."""

    step: float
    evaluation: float
    memory: int

    def seconds(self, steps: int, evaluations: int) -> float:
        return steps * self.step + evaluations * self.evaluation


def timed(made: Plan) -> tuple[Plan, StepTiming]:
    """The plan with its steps, and what was measured."""
    recipe = made.recipe
    trial = made if recipe.train.steps else replace(made, recipe=with_steps(recipe, GUESS))
    timing = measured(trial)
    if recipe.train.steps is None:
        made = replace(made, recipe=fitted(recipe, timing))
    return made, timing


def fitted(recipe: Recipe, timing: StepTiming) -> Recipe:
    """The recipe with as many steps as its minutes have time for beside evaluations and the report, as long as one."""
    seconds, every = 60 * some(recipe.train.minutes), recipe.train.evaluate_every
    if every is not None:
        return with_steps(recipe, most((seconds - timing.evaluation) / (timing.step + timing.evaluation / every)))
    looks = min(EVALUATIONS, most(SHARE * seconds / timing.evaluation - 1))
    return with_steps(recipe, most((seconds - (looks + 1) * timing.evaluation) / timing.step), looks)


def most(number: float) -> int:
    """As many whole ones as there are in a number, but one at least."""
    return max(1, int(number))


def measured(made: Plan) -> StepTiming:
    learner, evaluator, steps = learner_of(made), evaluator_of(made), some(made.recipe.train.steps)
    times, began = list[float](), perf_counter()
    last = min(steps, max(LEAST + 1, steps // PART))
    for step, batches in enumerate(batches_of(made)(1, last + 1), 1):
        clock = perf_counter()
        learner.learn(step, batches)
        times.append(perf_counter() - clock)
        if len(times) > LEAST and perf_counter() - began > LOOK:
            break
    clock = perf_counter()
    if evaluator is not None:
        evaluator(learner.model.eval())
    return StepTiming(median(times[1:] or times), perf_counter() - clock, peak())


def peak() -> int:
    """The most memory that this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
