"""How long steps and evaluations take, and how many steps fit the minutes that a run was given.

Before a run, a few steps on a copy of its model are timed, an evaluation, and a few steps more.  Where that would take
long, the steps are those of a model with fewer layers and a smaller batch, and their time is scaled by the operations.

A run that was given minutes counts its steps anew in its first tenth (`TimeBudget`), once they have been timed for
longer.  This changes nothing that was done before: up to then the learning rate rises, whatever the number of steps,
and nothing is evaluated.  So the run is, bit for bit, the one that its new recipe makes from the beginning, and may be
interrupted and resumed before and after it.

Which precision is faster is decided here too, before anything else is timed, and recorded in the recipe of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from statistics import fmean, median
from time import perf_counter
from typing import Any

import torch
from torch import nn

from headway.data.records import Record
from headway.dtype import BF16, FP16, FP32, check_bf16, device_named, has_instructions
from headway.errors import UserError, counted
from headway.recipe import Recipe, flat, from_flat
from headway.system import CPU, peak_memory
from headway.training.build import StepTiming, batches_of, learner_of, require, units_of_step
from headway.training.defaults import (
    MIN_UPDATES,
    THROUGHPUT,
    fits_memory,
    max_epochs,
    training_memory,
    weights_per_token,
)
from headway.training.learner import Learner
from headway.training.plan import EVALUATIONS, Plan, with_steps

Clock = Callable[[], float]

MIN_TIMED_SECONDS = 1.5  # of steps that are timed, before and after an evaluation, and no fewer than MIN_TIMED_STEPS
MIN_TIMED_STEPS = 2
TIMED_PART = 10  # of a short run's steps no more than a tenth are timed
MAX_TIMED_SECONDS = 8.0  # of all that is timed; what would take longer is estimated
SMALL_SECONDS = 0.5  # of a step of the smaller model
ASSUMED_STEPS = 1000  # of a run while its length is not known yet
EVALUATION_SHARE = 0.25  # of the given time, evaluations take no more, but for one at the end and the report
MAX_EPOCHS = 10  # times the epochs after which more of them help little: minutes that are left then are not used
TOLERANCE = 0.1  # a number of steps that is right to this part stays
COMPARED_STEPS, COMPARED_SECONDS = 3, 1.0  # of each precision at least, and of both together
MIN_GAIN = 1.1  # of bf16: what is as fast within the noise of a machine is computed in fp32
HOPELESS = 5.0  # times as long, and bf16 is not timed any more
NO_BF16 = "this CPU has no bf16 instructions"
RECORDS = 4  # answers that are timed, to know how long all of them take


# ---- minutes


def timed(made: Plan, clock: Clock = perf_counter) -> tuple[Plan, StepTiming]:
    """The plan with its precision and its steps, and what was measured."""
    made, precision = with_dtype(made, clock)
    recipe, minutes = made.recipe, made.recipe.train.minutes
    if minutes is None:
        return made, replace(measured(made, clock), precision=precision)
    timing = measured(replace(made, recipe=with_steps(recipe, ASSUMED_STEPS)), clock)
    timing = replace(timing, minutes=minutes, precision=precision)
    return replace(made, recipe=fitted(recipe, timing, max_steps(made))), timing


def fitted(recipe: Recipe, timing: StepTiming, most: int) -> Recipe:
    """The recipe with as many steps as its minutes have time for beside evaluations and the report, as long as one."""
    seconds, every = 60 * require(recipe.train.minutes), recipe.train.evaluate_every
    if every is not None:
        steps = whole((seconds - timing.evaluation) / (timing.step + timing.evaluation / every))
        return with_steps(recipe, min(steps, most))
    evaluations = EVALUATIONS
    if timing.evaluation:  # 0 where nothing is held out
        evaluations = min(EVALUATIONS, whole(EVALUATION_SHARE * seconds / timing.evaluation - 1))
    steps = whole((seconds - (evaluations + 1) * timing.evaluation) / timing.step)
    return with_steps(recipe, min(steps, most), evaluations)


def max_steps(made: Plan) -> int:
    """Steps that are enough for the data, however many minutes there are."""
    epochs = max_epochs(made.task, made.encoded.unit, MAX_EPOCHS)
    return max(MIN_UPDATES, round(epochs * made.encoded.tokens / units_of_step(made)))


def whole(number: float) -> int:
    """Rounded down, but at least 1."""
    return max(1, int(number))


@dataclass(frozen=True)
class TimeBudget:
    """The minutes of a run whose number of steps is not final: it is counted anew after `step` steps.

    It is kept in times.jsonl; `evaluate_every` and `checkpoint_every` are as given.
    """

    minutes: float
    evaluation: float  # seconds
    step: int
    max_steps: int
    evaluate_every: int | None = None
    checkpoint_every: int | None = None

    @staticmethod
    def of(asked: Plan, made: Plan, timing: StepTiming) -> TimeBudget | None:
        """That of a plan whose minutes were made into steps; None where there is too little to be timed."""
        train, given = made.recipe.train, asked.recipe.train
        step = min(require(train.steps) // TIMED_PART, require(train.warmup_steps))
        if given.minutes is None or step < MIN_TIMED_STEPS:
            return None
        every = given.evaluate_every, given.checkpoint_every
        return TimeBudget(given.minutes, timing.evaluation, step, max_steps(made), *every)

    def recounted(self, recipe: Recipe, seconds: Sequence[float]) -> Recipe:
        """The recipe after the first steps, of which these have been timed; the same where its steps were right."""
        if len(seconds) < MIN_TIMED_STEPS:
            return recipe
        step, warmup = median(seconds[1:]), require(recipe.train.warmup_steps)
        minutes = self.minutes + self.step * (step - fmean(seconds)) / 60  # those that are left, and as if at this pace
        asked = from_flat({
            **flat(recipe),
            "train.steps": None,
            "train.minutes": minutes,
            "train.evaluate_every": self.evaluate_every,
            "train.checkpoint_every": self.checkpoint_every,
        })  # fmt: skip
        found = fitted(asked, StepTiming(step, self.evaluation, 0), self.max_steps)
        before, steps = require(recipe.train.steps), max(self.step + 1, warmup, require(found.train.steps))
        if abs(steps - before) <= TOLERANCE * before:
            return recipe
        every = require(found.train.evaluate_every)
        every = max(self.step, every) if self.evaluate_every is None else every  # none was missed up to now
        return from_flat({**flat(found), "train.steps": steps, "train.evaluate_every": every})

    @staticmethod
    def latest(lines: Sequence[Mapping[str, Any]]) -> TimeBudget | None:
        """What the lines of times.jsonl leave open."""
        open_budgets = [line["budget"] for line in lines if "budget" in line]
        return TimeBudget(**open_budgets[-1]) if open_budgets and open_budgets[-1] else None


# ---- precision


def with_dtype(made: Plan, clock: Clock = perf_counter) -> tuple[Plan, str]:
    """The plan with its precision, and why it has this one: asked for, or the faster where the CPU has both."""
    asked, able = made.recipe.train.dtype, has_instructions(BF16)
    if (kind := device_named(made.recipe.device).type) != CPU and asked != FP32:  # below it is the CPU that is asked
        how = f"{FP32}: on {kind}, mixed precision is for --train.dtype {BF16} or {FP16}"
        return (made, asked) if asked in (BF16, FP16) else (decided(made, FP32), how)
    if asked == FP16:
        raise UserError(f"train.dtype={FP16} on a processor", allowed=f"{FP32} and {BF16}, or device=cuda")
    if asked == BF16:
        check_bf16()
        return made, BF16 if able else f"{BF16}, slower than {FP32}: {NO_BF16}"
    if asked == FP32:
        return made, FP32
    if not able:
        return decided(made, FP32), f"{FP32}: {NO_BF16}"
    try:
        check_bf16()
    except UserError:
        return decided(made, FP32), f"{FP32}: {BF16} does not run on this machine"
    low = decided(made, BF16)
    if made.config is not None and not fits_memory(made.config, low.recipe, made.encoded, made.teacher_bytes):
        return decided(made, FP32), f"{FP32}: {BF16} copies of weights exceed memory"
    gain, steps = compared(made, clock)
    each = f"{counted(steps, 'step')} each"
    if gain >= MIN_GAIN:
        return low, f"{BF16}: {gain:.1f} × as fast as {FP32}, {each}"
    return decided(made, FP32), f"{FP32}: {BF16} is {gain:.2f} × as fast, {each}"


def decided(made: Plan, dtype: str) -> Plan:
    return replace(made, recipe=from_flat({**flat(made.recipe), "train.dtype": dtype}))


def compared(made: Plan, clock: Clock) -> tuple[float, int]:
    """How many times as fast steps are in bf16 as in fp32, and how many of each were timed.

    One model takes them in turn, on one batch; where that would take long, a smaller model.
    """
    made = made if made.recipe.train.steps else replace(made, recipe=with_steps(made.recipe, ASSUMED_STEPS))
    made = smaller(made)[0] if takes_long(made) else made
    learner, batches = learner_of(made), next(batches_of(made)(1, 2))
    times: dict[torch.dtype, list[float]] = {torch.float32: [], torch.bfloat16: []}
    exact, low = times.values()
    began = clock()
    while len(low) <= COMPARED_STEPS or clock() - began < COMPARED_SECONDS:
        for learner.dtype, seconds in times.items():
            started = clock()
            learner.learn(1, batches)
            seconds.append(clock() - started)
        if low[0] > HOPELESS * exact[0]:
            return exact[0] / low[0], 1
    return median(exact[1:]) / median(low[1:]), len(low) - 1  # the first ones load libraries


# ---- measured, or estimated


def measured(made: Plan, clock: Clock = perf_counter) -> StepTiming:
    """Seconds of a step and of an evaluation, and the memory: measured, or estimated where that would take long."""
    if takes_long(made):
        return estimated(made, clock)
    learner, total = learner_of(made), require(made.recipe.train.steps)
    steps = iter(batches_of(made)(1, 1 + min(total, max(2 * MIN_TIMED_STEPS, total // TIMED_PART))))
    times = timed_steps(learner, steps, clock)
    evaluation, guessed = evaluation_seconds(made, learner.model.eval(), clock, MAX_TIMED_SECONDS / 2)
    times += timed_steps(learner, steps, clock)  # a busy moment is not taken for the pace of the machine
    seconds = [one for one, _ in times[1:] or times]
    return StepTiming(median(seconds) if seconds else 0.0, evaluation, peak_memory(), guessed)  # of no steps, none


def takes_long(made: Plan) -> bool:
    """Whether steps of this plan would take so long that a smaller model is timed."""
    seconds = 0.0 if made.module is not None else predicted_seconds(made)
    return 2 * (MIN_TIMED_STEPS + 1) * seconds > MAX_TIMED_SECONDS


def smaller(made: Plan) -> tuple[Plan, float]:
    """The same with fewer layers in smaller batches, and how many times the operations for a token there are."""
    recipe, shallower = made.recipe, replace(made, config=shallow(made.config), start=None, part=None)
    times_deeper = weights_of_step(made) / weights_of_step(shallower)
    part = min(1.0, SMALL_SECONDS * times_deeper / predicted_seconds(made))
    changed = {"train.batch": whole(require(recipe.train.batch) * part), "train.grad_accumulation": 1}
    recipe = from_flat({**flat(recipe), **changed, "model.freeze": None})
    return replace(shallower, recipe=recipe), times_deeper


def estimated(made: Plan, clock: Clock) -> StepTiming:
    """What `measured` tells, by a smaller model whose times are scaled by the operations."""
    small, times_deeper = smaller(made)
    learner = learner_of(small)
    steps = iter(batches_of(small)(1, 2 * MIN_TIMED_STEPS + 1))
    times = timed_steps(learner, steps, clock)
    evaluation, _ = evaluation_seconds(small, learner.model.eval(), clock, 0.0)
    times += timed_steps(learner, steps, clock)
    units = units_of_step(made) / made.share.processes
    step = units * median([one / read for one, read in times[1:]])
    memory = round(training_memory(made.config, made.recipe, made.encoded).total)
    memory += made.teacher_bytes
    unit = made.encoded.unit  # in an evaluation nobody asks the teacher
    evaluation *= weights_per_token(made.config, unit) / weights_per_token(small.config, unit)
    return StepTiming(times_deeper * step, evaluation, memory, estimated=True)


def timed_steps(learner: Learner, steps: Iterator[Sequence[Any]], clock: Clock) -> list[tuple[float, int]]:
    """Takes some steps; the seconds of each, and the tokens or images of its batches."""
    times, began = list[tuple[float, int]](), clock()
    for batches in steps:
        started = clock()
        learner.learn(len(times) + 1, batches)
        times.append((clock() - started, max(1, sum(batch.tokens for batch in batches))))
        if len(times) >= MIN_TIMED_STEPS and clock() - began > MIN_TIMED_SECONDS:
            break
    return times


def evaluation_seconds(made: Plan, model: nn.Module, clock: Clock, limit: float) -> tuple[float, bool]:
    """Of one evaluation, and whether that is an estimate: by some of the answers where all take longer than a limit.

    It is computed here alone, and by all processes in the run.
    """
    processes = made.share.processes * made.recipe.train.tensor_parallel
    task, batches = made.task, made.encoded.validation
    if not batches:
        return 0.0, False
    records = made.splits.some_validation(task.validation_records) if task.validation_records else []

    def seconds(batches: Sequence[Any], records: Sequence[Record]) -> float:
        started = clock()
        task.validate(model, batches, records)
        return clock() - started

    one = [batches[len(batches) // 2]]
    first = seconds(one, records[:1])
    if first * max(len(batches), len(records)) > limit:
        answer = max(0.0, seconds(one, records[: 1 + RECORDS]) - first) / RECORDS
        found = max(0.0, first - answer) * len(batches) + answer * len(records)
        if found > limit:
            return found / processes, True
    return seconds(batches, records) / processes, False


def predicted_seconds(made: Plan) -> float:
    """Of a step, roughly: by its operations and what usual processors reach."""
    speed = THROUGHPUT[made.encoded.unit].rate * require(made.recipe.train.threads)
    return 6 * weights_of_step(made) * units_of_step(made) / speed


def weights_of_step(made: Plan) -> float:
    """The weights that a token meets in a step, forwards and backwards; those of a teacher forwards alone."""
    unit, teacher = made.encoded.unit, made.teacher
    told = 0.0 if teacher is None else weights_per_token(teacher.model.config, unit) / 3
    return weights_per_token(made.config, unit) + told


def shallow(config: Any) -> Any:
    """A config with one layer in each stack and at most two in each stage."""
    fewer = dict[str, Any]()
    for field in fields(config):
        value = getattr(config, field.name)
        if field.name == "encoder" and is_dataclass(value):
            fewer[field.name] = shallow(value)
        elif field.name.endswith("layers") and value:
            fewer[field.name] = tuple(min(2, n) for n in value) if isinstance(value, tuple) else 1
    return replace(config, **fewer)
