"""What is to be thought of a run: its final scores beside those of simple methods, and a verdict in words.

The weights that were chosen are evaluated once, at the end: console, report, model card and `scores.json` show these
numbers.  Simple methods (`Task.baselines`) learn from the training records alone and are scored on the same records.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from torch import nn

from headway.data.records import Record
from headway.metrics.scores import MEASURES, score_cell
from headway.metrics.tables import finite
from headway.system import path_argument, write_json
from headway.tasks.base import task_class
from headway.tasks.registry import TASKS
from headway.tasks.results import BaselineData, EvalResult
from headway.training.loop import RunResult
from headway.training.plan import Plan

SCORES = "scores.json"
FINAL_ANSWERS = 1000  # held-out records that are answered at the end, at least
BASELINE_RECORDS = 10_000  # of training, that simple methods learn from
FEW_STEPS = 500  # after which nothing is said about the learning rate
LONGER, SLOWER = 4, 4  # times as many steps, and a fourth of the learning rate, are what is advised


def with_baselines(made: Plan, end: RunResult, model: nn.Module) -> RunResult:
    """The end of a run with the scores of simple methods on the records that its model was evaluated on."""
    if end.found is None or not math.isfinite(end.found.score):
        return end
    task, splits = made.task.without_augmentation(), made.splits
    held, train = list[Record](), list[Record]()
    if task.validation_records:
        held = splits.some_validation(max(task.validation_records, FINAL_ANSWERS))
        # dates are in no order, and some of them are soon made
        train = list(islice(splits.train(), BASELINE_RECORDS)) if splits.builtin else splits.some(BASELINE_RECORDS)
    data = BaselineData(train, epoch(made), held, made.encoded.validation)
    found = tuple(task.baselines(model.eval(), data, end.found))
    return replace(end, found=replace(end.found, baselines=found))


def epoch(made: Plan) -> Iterator[Any]:
    """The batches of training, about as many as an epoch has."""
    batch = made.recipe.train.batch or 1
    batches = made.encoded.batches(batch, 1)
    for step in range(1, 1 + max(1, made.encoded.tokens // batch)):
        yield from batches[step]


def write_scores(made: Plan, end: RunResult) -> None:
    """The scores as data, in the folder of the run."""
    if end.found is not None:
        loss = {} if end.found.loss is None else finite({"loss": end.found.loss})
        write_json(made.out / SCORES, {**end.found.to_dict(), **loss, "conclusions": conclusions(made, end)})


def describe_scores(found: EvalResult) -> list[str]:
    """The scores, each with its records and interval, and those of simple methods below."""
    scores = found.scores
    width = max(len(MEASURES[name].title) for name in scores.numbers)
    lines = [f"{MEASURES[name].title:{width}}  {scores.told(name)}" for name in scores.numbers]
    if found.loss is not None:
        lines.append(f"loss {found.loss:.4f}")
    for one in found.baselines:
        numbers = ", ".join(f"{MEASURES[name].title} {score_cell(one.scores, name)}" for name in one.scores.numbers)
        lines.append(f"by {one.name}: {numbers}")
    return lines


def conclusions(made: Plan, end: RunResult) -> list[str]:
    """The verdict, and what is to be known of the scores."""
    return [line for line in (verdict(made, end), selection(made, end)) if line]


def verdict(made: Plan, end: RunResult) -> str | None:
    """Whether a model has learned, in words; None where there is nothing to compare it with."""
    found = end.found
    if found is None:
        return None
    scores, main = found.scores, found.scores.main
    how, value = MEASURES[main], found.scores.numbers[found.scores.main]
    if not math.isfinite(value):
        return f"has not learned: {how.title} is no number after {end.step:,} steps; try {advice(made)}"
    if not found.baselines:
        return None
    first, limits = found.baselines[0], scores.intervals[main]
    best = first
    for one in found.baselines[1:]:
        best = one if how.better(one.scores.numbers[main], best.scores.numbers[main]) else best
    ours = f"{how.title} {scores.told(main)}"
    against = " and ".join(f"{score_cell(one.scores, main)} by {one.name}" for one in found.baselines)
    against += f" on the same {scores.count:,} {scores.things}"
    loss = "" if found.loss is None else f"; the loss is {found.loss:.2f} after {end.step:,} steps"
    if not how.better(value, first.scores.numbers[main]):
        return f"has not learned: {ours} against {against}{loss}; try {advice(made)}"
    if first.scores.numbers[main] in limits:
        said = f"may not have learned: {ours} against {against}"
        return f"{said}; {scores.count:,} {scores.things} are too few to tell, so hold out more, or try {advice(made)}"
    if how.better(best.scores.numbers[main], value):
        said = f"has learned, but less than {best.name}: {ours} against {against}; try {advice(made)}"
        scratch = (
            "on little data a model from scratch may stay below it, and --from FOLDER starts from a pretrained one"
        )
        return said if made.start else f"{said}; {scratch}"
    close = best is not first and best.scores.numbers[main] in limits
    doubt = f"; whether it is better than {best.name}, {scores.count:,} {scores.things} are too few to tell"
    return f"has learned: {ours} against {against}{doubt if close else ''}"


def advice(made: Plan) -> str:
    """Another run that may do better, as it is typed; where a recipe cannot say all of a run, its settings."""
    train = made.recipe.train
    steps, lr = LONGER * (train.steps or 1), (train.lr or 1e-3) / SLOWER
    data, name = made.recipe.data, made.task.name
    repeatable = bool(data.path or data.source) and name in TASKS and task_class(name) is type(made.task)
    if not repeatable or made.module is not None or not (made.recipe.model.preset or made.start):
        return f"steps={steps}" if (train.steps or 0) < FEW_STEPS else f"lr={lr:.1g}, or steps={steps}"
    again, longer = retrain_command(str(made.out)), f"--train.steps {steps}"
    return f"{again} {longer}" if (train.steps or 0) < FEW_STEPS else f"{again} --train.lr {lr:.1g}, or {longer}"


def retrain_command(folder: str) -> str:
    return f"headway train --config {path_argument(Path(folder) / 'recipe.yaml')} --out NEW"


def selection(made: Plan, end: RunResult) -> str | None:
    """That held-out records have chosen the weights, where there was a choice."""
    train, found = made.recipe.train, end.found
    if found is None or not train.steps or not train.evaluate_every or train.steps <= train.evaluate_every:
        return None
    scores, chosen_by = found.scores, made.task.validation_records or found.scores.count
    which = "these" if chosen_by >= scores.count else f"{chosen_by:,} of these"
    said = f"{which} {scores.count:,} {scores.things} also chose the weights, so the score is optimistic"
    command, use = made.task.on_other_data
    return f"{said}; {use}: {command.format(path_argument(made.out))}"
