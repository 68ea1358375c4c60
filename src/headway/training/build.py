"""The parts of a run, as its resolved recipe names them; how long it will take; and what is printed about it.

Time and memory are measured by a few steps on a copy of the model, before the run begins.  They decide nothing, except
for a run that was given minutes: its steps are computed from them and written into its recipe, so that a resumed run
follows the same schedule.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any, TypeVar

import torch
from torch import nn

from headway.errors import counted
from headway.recipe import Recipe
from headway.system import going_on, peak_memory
from headway.tasks.base import StatefulLoss
from headway.tasks.results import EvalResult
from headway.training.groups import ENCODER, OUT, describe_reuse, freeze, groups, leave
from headway.training.learner import EMA, Learner
from headway.training.loop import RunLimits, RunResult
from headway.training.optimiser import (
    WSD,
    Adafactor,
    Adam,
    AdamW,
    Constant,
    CosineDecay,
    InverseSqrt,
    Muon,
    Noam,
    Optimiser,
    OptimiserChoice,
    Schedule,
)
from headway.training.plan import EVALUATIONS, Plan, config_dim, with_steps
from headway.training.verdict import conclusions, describe_scores

T = TypeVar("T")

MIN_TIMED_SECONDS = 3.0  # of steps that are timed, and no fewer than MIN_TIMED_STEPS of them
MIN_TIMED_STEPS = 3
TIMED_PART = 10  # of a short run's steps no more than a tenth are timed
ASSUMED_STEPS = 1000  # of a run while its length is not known yet
EVALUATION_SHARE = 0.25  # of the given time, evaluations take no more, but for one at the end and the report


def learner_of(made: Plan) -> Learner:
    """The model with all that changes it."""
    recipe, model = made.recipe, made.build()
    train = recipe.train
    if recipe.model.freeze is not None:
        freeze(model, recipe.model.freeze)
        if recipe.model.freeze == (ENCODER,) and (found := made.reused(model)):
            leave(model, [name for name in found.tensors if not name.startswith(OUT)])  # a norm that the head took over
    average = EMA(model, train.ema_decay) if train.ema_decay else None
    task = made.task
    memory = task.memory(model) if isinstance(task, StatefulLoss) else None
    return Learner(
        model,
        task.loss_after if isinstance(task, StatefulLoss) and memory is not None else task.loss,
        optimiser_of(recipe, model),
        schedule_of(recipe, config_dim(made.config)),
        seed=recipe.seed,
        max_grad_norm=train.max_grad_norm,
        average=average,
        memory=memory,
    )


def optimiser_of(recipe: Recipe, model: nn.Module) -> Optimiser:
    train = recipe.train
    lr = 1.0 if train.schedule == "paper" else require(train.lr)
    kinds: dict[str, OptimiserChoice] = {
        "adamw": AdamW(lr, train.betas, train.eps, train.weight_decay),
        "adam": Adam(lr, train.betas, train.eps),
        "adafactor": Adafactor(lr, train.weight_decay),
        "muon": Muon(lr, betas=train.betas, eps=train.eps, weight_decay=train.weight_decay),
    }
    return Optimiser(kinds[train.optimiser], groups(model, layer_decay=recipe.model.layer_decay))


def schedule_of(recipe: Recipe, dim: int) -> Schedule:
    train = recipe.train
    warmup, steps = require(train.warmup_steps), require(train.steps)
    kinds: dict[str, Schedule] = {
        "cosine": CosineDecay(warmup, steps, train.min_lr_ratio),
        "inverse": InverseSqrt(warmup),
        "paper": Noam(dim, warmup),
        "wsd": WSD(warmup, steps, floor=train.min_lr_ratio),
        "constant": Constant(warmup),
    }
    return kinds[train.schedule]


def batches_of(made: Plan) -> Callable[[int, int], Iterator[list[Any]]]:
    train = made.recipe.train
    return partial(made.encoded.batches(require(train.batch), train.grad_accumulation).between, workers=train.workers)


def limits_of(recipe: Recipe) -> RunLimits:
    train = recipe.train
    every = (require(train.log_every), require(train.evaluate_every), require(train.checkpoint_every))
    return RunLimits(require(train.steps), *every, train.patience, train.keep_best, train.average)


def evaluator_of(made: Plan, answers: int = 0) -> Callable[[nn.Module], EvalResult] | None:
    """What scores the model as it trains, where something is held out; by so many answers at least."""
    task, batches = made.task, made.encoded.validation
    if not batches:
        return None
    count = max(task.validation_records, answers) if task.validation_records else 0
    records = made.splits.some_validation(count) if count else []
    return lambda model: task.validate(model, batches, records)


def require(value: T | None) -> T:
    """The value of a setting that a resolved recipe always has."""
    assert value is not None
    return value


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
    if recipe.train.steps is not None:
        return made, measured(made)
    timing = measured(replace(made, recipe=with_steps(recipe, ASSUMED_STEPS)))
    return replace(made, recipe=fitted(recipe, timing)), timing


def fitted(recipe: Recipe, timing: StepTiming) -> Recipe:
    """The recipe with as many steps as its minutes have time for beside evaluations and the report, as long as one."""
    seconds, every = 60 * require(recipe.train.minutes), recipe.train.evaluate_every
    if every is not None:
        return with_steps(recipe, whole((seconds - timing.evaluation) / (timing.step + timing.evaluation / every)))
    evaluations = min(EVALUATIONS, whole(EVALUATION_SHARE * seconds / timing.evaluation - 1))
    return with_steps(recipe, whole((seconds - (evaluations + 1) * timing.evaluation) / timing.step), evaluations)


def whole(number: float) -> int:
    """Rounded down, but at least 1."""
    return max(1, int(number))


def measured(made: Plan) -> StepTiming:
    learner, evaluator, steps = learner_of(made), evaluator_of(made), require(made.recipe.train.steps)
    times, began = list[float](), perf_counter()
    last = min(steps, max(MIN_TIMED_STEPS + 1, steps // TIMED_PART))
    for step, batches in enumerate(batches_of(made)(1, last + 1), 1):
        clock = perf_counter()
        learner.learn(step, batches)
        times.append(perf_counter() - clock)
        if len(times) > MIN_TIMED_STEPS and perf_counter() - began > MIN_TIMED_SECONDS:
            break
    clock = perf_counter()
    if evaluator is not None:
        evaluator(learner.model.eval())
    return StepTiming(median(times[1:] or times), perf_counter() - clock, peak_memory())


def describe_plan(made: Plan, timing: StepTiming) -> str:
    """Each choice with the option that changes it, in lines of 80 columns."""
    recipe, train = made.recipe, made.recipe.train
    steps, batch = require(train.steps), require(train.batch) * train.grad_accumulation
    epochs = steps * batch / max(1, made.encoded.tokens)
    evaluations = -(-steps // require(train.evaluate_every)) + 1
    objective = f", {recipe.data.objective}" if recipe.data.objective else ""
    vocab, reuse, left_out = vocabulary(made), reuse_line(made), made.splits.left_out
    lines = [
        ("task", f"{made.task.kind}{objective}: {data_size(made)}", "--task"),
        *([("vocab", vocab, "--data.tokenizer")] if vocab else []),
        ("model", model_line(made), "--from" if made.start else "--preset"),
        *([("reuses", reuse, "--freeze encoder")] if reuse else []),
        ("device", f"{recipe.device}, {counted(require(train.threads), 'thread')}", "--device"),
        ("batch", f"{batch:,} {made.encoded.unit}", "--train.batch"),
        ("length", f"{steps:,} steps, {epochs:.1f} epochs", "--train.steps, --minutes"),
        ("time", f"about {duration(timing.seconds(steps, evaluations))}", "--minutes"),
        ("memory", f"about {timing.memory / 2**30:.1f} GiB", "--train.batch"),
        ("folder", str(recipe.out), "--out"),
    ]
    head = [made.splits.description, *([] if left_out is None else [f"--skip-bad: {left_out}"])]
    return "\n".join([*head, *(f"  {name:7} {value:44} {option}" for name, value, option in lines)])


def data_size(made: Plan) -> str:
    """How much there is to learn from."""
    prepared = made.encoded
    rows, tokens = counted(prepared.rows, "row"), f"{prepared.tokens:,} {prepared.unit}"
    return tokens if prepared.rows == prepared.tokens else f"{rows}, {tokens}"


def vocabulary(made: Plan) -> str | None:
    """The tokenizers and the sizes of their vocabularies, where the task has any."""
    data, source, target = made.recipe.data, made.setup.tokenizer, made.setup.target_tokenizer
    sides = [one for one in (source, target) if one]
    if not sides:
        return None
    if made.start:
        return f"{sides[0].vocab:,} tokens, those of the model"
    if sides[0] is sides[-1]:
        return f"{data.tokenizer}, {sides[0].vocab:,} tokens"
    return f"{data.tokenizer}, {sides[0].vocab:,} tokens → {data.target_tokenizer}, {sides[1].vocab:,} tokens"


def model_line(made: Plan) -> str:
    with torch.device("meta"):
        count = sum(parameter.numel() for parameter in made.shape().parameters())
    start = made.recipe.model.start
    name = start.name if start else made.recipe.model.preset or made.architecture
    return f"{name}, {count:,} parameters"


def reuse_line(made: Plan) -> str | None:
    """What is taken over from the model that is fine-tuned."""
    with torch.device("meta"):
        found = made.reused(made.shape())
    start = made.recipe.model.start
    return None if found is None or start is None else describe_reuse(found, start.name)


def describe_end(made: Plan, end: RunResult) -> str:
    """What came out, and the next commands to type."""
    if end.signal is not None:
        return f"\ninterrupted at step {end.step}, and saved; go on with\n\n  {going_on(made.out)}"
    folder = shlex.quote(str(made.recipe.out))
    example = made.task.example(made.splits, end.found.samples if end.found else ())
    found_next = made.task.next_commands(folder, shlex.quote(example))
    commands = [*(one.command for one in found_next), f"open {folder}/report.html"]
    scores = [] if end.found is None else ["", *describe_scores(end.found), "", *conclusions(made, end)]
    lines = ["", f"done: the weights are {end.chosen}", *scores, "", "next", *(f"  {line}" for line in commands)]
    return "\n".join(lines)


def duration(seconds: float) -> str:
    """A time as people say it."""
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.1f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
