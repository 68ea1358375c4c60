"""The parts of a run, as its recipe names them.

How long a run will take and how much memory: a few steps on a copy of it, before it begins.

What was measured decides nothing, but for a run that was asked to take so many minutes: its steps are counted here, and
written into its recipe, so that a resumed run follows the same schedule.

What `headway train` says before a run and after it, in lines of 80 columns.
"""

from __future__ import annotations

import resource
import shlex
import sys
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
from headway.system import going_on
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

T = TypeVar("T")


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
    lr = 1.0 if train.schedule == "paper" else some(train.lr)
    kinds: dict[str, OptimiserChoice] = {
        "adamw": AdamW(lr, train.betas, train.eps, train.weight_decay),
        "adam": Adam(lr, train.betas, train.eps),
        "adafactor": Adafactor(lr, train.weight_decay),
        "muon": Muon(lr, betas=train.betas, eps=train.eps, weight_decay=train.weight_decay),
    }
    return Optimiser(kinds[train.optimiser], groups(model, layer_decay=recipe.model.layer_decay))


def schedule_of(recipe: Recipe, dim: int) -> Schedule:
    train = recipe.train
    warmup, steps = some(train.warmup_steps), some(train.steps)
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
    return partial(made.encoded.batches(some(train.batch), train.grad_accumulation).between, workers=train.workers)


def pace_of(recipe: Recipe) -> RunLimits:
    train = recipe.train
    every = (some(train.log_every), some(train.evaluate_every), some(train.checkpoint_every))
    return RunLimits(some(train.steps), *every, train.patience, train.keep_best, train.average)


def evaluator_of(made: Plan) -> Callable[[nn.Module], EvalResult] | None:
    """What scores the model as it trains, where something is held out."""
    task, batches = made.task, made.encoded.validation
    if not batches:
        return None
    records = made.splits.some_validation(task.validation_records) if task.validation_records else []
    return lambda model: task.validate(model, batches, records)


def some(value: T | None) -> T:
    """A choice that was made."""
    assert value is not None
    return value


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


def describe_plan(made: Plan, timing: StepTiming | None) -> str:
    """Each choice with the option that changes it."""
    recipe, train = made.recipe, made.recipe.train
    steps, batch = some(train.steps), some(train.batch) * train.grad_accumulation
    epochs = steps * batch / max(1, made.encoded.tokens)
    lines = [
        ("task", task_line(made), "--task"),
        *tokenizer_line(made),
        ("model", model_line(made), "--from" if made.start else "--preset"),
        *reuse_line(made),
        ("device", f"{recipe.device}, {train.threads} {'thread' if train.threads == 1 else 'threads'}", "--device"),
        ("batch", f"{batch:,} {made.encoded.unit}", "--train.batch"),
        ("length", f"{steps:,} steps, {epochs:.1f} epochs", "--train.steps, --minutes"),
    ]
    if timing is not None:
        evaluations = -(-steps // some(train.evaluate_every)) + 1
        lines.append(("time", f"about {duration(timing.seconds(steps, evaluations))}", "--minutes"))
        lines.append(("memory", f"about {timing.memory / 2**30:.1f} GiB", "--train.batch"))
    lines.append(("folder", str(recipe.out), "--out"))
    left = made.splits.left_out
    skipped = [] if left is None else [f"--skip-bad: {left}"]
    return "\n".join(
        [made.splits.description, *skipped, *(f"  {name:7} {value:44} {option}" for name, value, option in lines)]
    )


def task_line(made: Plan) -> str:
    objective = f", {made.recipe.data.objective}" if made.recipe.data.objective else ""
    return f"{made.task.kind}{objective}: {data_size(made)}"


def data_size(made: Plan) -> str:
    """How much there is to learn from."""
    prepared = made.encoded
    rows, tokens = counted(prepared.rows, "row"), f"{prepared.tokens:,} {prepared.unit}"
    return tokens if prepared.rows == prepared.tokens else f"{rows}, {tokens}"


def tokenizer_line(made: Plan) -> list[tuple[str, str, str]]:
    """The line about words, where there are any."""
    data = made.recipe.data
    sides = [words for words in (made.setup.tokenizer, made.setup.target_tokenizer) if words]
    if not sides:
        return []
    if made.start:
        told = f"{sides[0].vocab:,}, those of the model"
    elif sides[0] is sides[-1]:
        told = f"{data.tokenizer}, {sides[0].vocab:,}"
    else:
        told = f"{data.tokenizer}, {sides[0].vocab:,} → {data.target_tokenizer}, {sides[1].vocab:,}"
    return [("words", told, "--data.tokenizer")]


def model_line(made: Plan) -> str:
    with torch.device("meta"):
        count = sum(parameter.numel() for parameter in made.shape().parameters())
    start = made.recipe.model.start
    name = start.name if start else made.recipe.model.preset or made.architecture
    return f"{name}, {count:,} parameters"


def reuse_line(made: Plan) -> list[tuple[str, str, str]]:
    """What is taken over from the model that the run goes on from."""
    with torch.device("meta"):
        found = made.reused(made.shape())
    start = made.recipe.model.start
    return [] if found is None or start is None else [("reuses", describe_reuse(found, start.name), "--freeze encoder")]


def describe_end(made: Plan, end: RunResult) -> str:
    """What came out, and the next commands to type."""
    if end.signal is not None:
        return f"\ninterrupted at step {end.step}, and saved; go on with\n\n  {going_on(made.out)}"
    folder = shlex.quote(str(made.recipe.out))
    found = [] if end.found is None else [", ".join(f"{name} {value:.4f}" for name, value in end.found.values.items())]
    example = made.task.example(made.splits, end.found.samples if end.found else ())
    found_next = made.task.next_commands(folder, shlex.quote(example))
    nexts = [*(one.command for one in found_next), f"open {folder}/report.html"]
    return "\n".join(["", f"done: the weights are {end.chosen}", *found, "", "next", *(f"  {line}" for line in nexts)])


def duration(seconds: float) -> str:
    """A time as people say it."""
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.1f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
