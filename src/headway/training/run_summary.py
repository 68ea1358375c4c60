"""What is said of a run at its end: scores, whether the model has learned, what they stand on, and what to do next."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sized
from json import dumps
from pathlib import Path
from typing import Any

from headway.console import finite
from headway.errors import argument, counted, going_on, listed, path_argument
from headway.metrics.scores import MEASURES, score_cell
from headway.system import write_json
from headway.tasks.base import Task, task_class
from headway.tasks.registry import TASKS
from headway.tasks.results import EvalResult, NextCommand
from headway.training.build import REPORT, steps_of_epoch
from headway.training.loop import RunResult
from headway.training.plan import Plan

SCORES = "scores.json"
FEW_STEPS = 500  # after which nothing is said about the learning rate
LONGER, SLOWER = 4, 4  # times as many steps, and a fourth of the learning rate, are what is advised


def describe_end(made: Plan, end: RunResult) -> str:
    """What came out, and the next commands to type."""
    if end.signal is not None:
        return f"\ninterrupted at step {end.step}, and saved; go on with\n\n  {going_on(made.out)}"

    from headway.look.recording import find_attention_sites  # late: a page is far from a plan

    example = made.task.example(made.splits, end.found.samples if end.found else ())
    commands = first_commands(type(made.task), made.out, example, find_attention_sites(made.shape()))
    scores = [] if end.found is None else ["", *describe_scores(end.found)]
    if made.estimate is not None:
        scores = ["", made.estimate.title, *scores[1:], *made.estimate.lines()]
    if end.test is not None:
        scores += ["", f"test data ({test_names(made)}), scored once:", *describe_scores(end.test)]
    scores += ["", *concluded] if (concluded := conclusions(made, end)) else []
    learned = "" if made.estimate is None else ", of a training on all records"
    told = [f"done: the weights are {end.chosen}{learned}", f"the report is {made.out / REPORT}", *scores]
    return "\n".join(["", *told, "", "next", *(f"  {one.command}" for one in commands)])


def first_commands(task: type[Task], folder: Path | str, example: str, sites: Sized) -> list[NextCommand]:
    """What to type after a training: use the model, see its attention where it has `sites` of that, and in Python."""
    looks = [NextCommand(look_command(folder, example), "see its attention")] if sites else []
    in_python = NextCommand(python_command(task, folder, example), "use it in Python")
    return [*task.next_commands(path_argument(folder), argument(example)), *looks, in_python]


def look_command(folder: Path | str, example: str) -> str:
    """The command that shows the attention to an input."""
    return f"headway look {path_argument(folder)} {argument(example)}"


def python_command(task: type[Task], folder: Path | str, example: str) -> str:
    """The same answer from Python."""
    options = "".join(f", {name}={value:g}" for name, value in task.sampling.items())
    place, text = (dumps(str(word), ensure_ascii=False) for word in (folder, example))  # in double quotes
    return "python -c " + shlex.quote(
        f"import headway; print(headway.load({place}).predict({text}{options}).to_text())"
    )


def write_scores(made: Plan, end: RunResult) -> None:
    """The scores as data, in the folder of the run."""

    def plain(found: EvalResult) -> dict[str, Any]:
        return {**found.to_dict(), **({} if found.loss is None else finite({"loss": found.loss}))}

    told = {} if end.found is None else plain(end.found)
    if end.test is not None:
        told["test"] = {**plain(end.test), "files": [*map(str, made.splits.test_paths)], "leaks": end.leaks}
    if made.estimate is not None:
        told["cross_validation"] = made.estimate.to_dict()
    if told:
        write_json(made.out / SCORES, {**told, "conclusions": conclusions(made, end)})


def test_names(made: Plan) -> str:
    """The files or folders of the test data, for a sentence."""
    return listed([path.name for path in made.splits.test_paths], 3)


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
    """The verdict, and what is to be known of the weights and of the scores."""
    if made.estimate is not None:
        lines = (verdict(made, end), made.estimate.meaning, leaked(end))
    else:
        lines = (verdict(made, end), kept_counts(made, end), selection(made, end), leaked(end))
    return [line for line in lines if line]


def verdict(made: Plan, end: RunResult) -> str | None:
    """Whether a model has learned, in words; None where there is nothing to compare it with."""
    found = end.found
    if found is None:
        return None
    scores, main = found.scores, found.scores.main
    how, value = MEASURES[main], found.scores.numbers[found.scores.main]
    if not math.isfinite(value):
        return f"has not learned: {how.title} is no number after {counted(end.step, 'step')}; try {advice(made)}"
    if not found.baselines:
        return None
    first, limits = found.baselines[0], scores.intervals[main]
    best = first
    for one in found.baselines[1:]:
        best = one if how.better(one.scores.numbers[main], best.scores.numbers[main]) else best
    ours = f"{how.title} {scores.told(main)}"
    against = " and ".join(f"{score_cell(one.scores, main)} by {one.name}" for one in found.baselines)
    against += f" on the same {scores.count:,} {scores.things}"
    after = "" if made.estimate is not None else f" after {counted(end.step, 'step')}"
    loss = "" if found.loss is None else f"; the loss is {found.loss:.2f}{after}"
    if not how.better(value, first.scores.numbers[main]):
        return f"has not learned: {ours} against {against}{loss}; try {advice(made)}"
    if first.scores.numbers[main] in limits:
        said = f"may not have learned: {ours} against {against}"
        more = "hold out more" if made.estimate is None else "give more data"
        return f"{said}; {scores.count:,} {scores.things} are too few to tell, so {more}, or try {advice(made)}"
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
    """Another run that may do better, as it is typed; where a recipe cannot say all of a run, its settings.

    A longer run is one epoch at least.  After a cross-validation it is another one, of longer trainings.
    """
    train, folder, taken = made.recipe.train, made.out, made.recipe.train.steps or 0
    if made.estimate is not None:
        folder, taken = made.estimate.folder, made.estimate.steps
    steps, lr = max(LONGER * (taken or 1), steps_of_epoch(made)), (train.lr or 1e-3) / SLOWER
    data, name = made.recipe.data, made.task.name
    repeatable = bool(data.path or data.source) and name in TASKS and task_class(name) is type(made.task)
    if not repeatable or made.module is not None or not (made.recipe.model.preset or made.start):
        return f"steps={steps}" if taken < FEW_STEPS else f"lr={lr:.1g}, or steps={steps}"
    again, longer = retrain_command(str(folder)), f"--train.steps {steps}"
    return f"{again} {longer}" if taken < FEW_STEPS else f"{again} --train.lr {lr:.1g}, or {longer}"


def retrain_command(folder: str) -> str:
    return f"headway train --config {path_argument(Path(folder) / 'recipe.yaml')} --out NEW"


def kept_counts(made: Plan, end: RunResult) -> str | None:
    """That training has left the weights as they were counted."""
    if not end.counted:
        return None
    said = "kept the counted weights: training did not lower the held-out loss by more than its standard error"
    if not made.counts_all or end.found is None:
        return said
    things = end.found.scores.things
    said = f"{said}; in the end they were counted anew with the held-out {things}, and the scores are of before that"
    return said if end.test is None else f"{said}, but for those on the test data"


def selection(made: Plan, end: RunResult) -> str | None:
    """That held-out records have chosen the weights, where there was a choice."""
    train, found = made.recipe.train, end.found
    if found is None or end.counted:
        return None
    if not train.steps or not train.evaluate_every or train.steps <= train.evaluate_every:
        return None
    scores, chosen_by = found.scores, made.task.validation_records or found.scores.count
    which = "these" if chosen_by >= scores.count else f"{chosen_by:,} of these"
    said = f"{which} {scores.count:,} {scores.things} also chose the weights, so the score is optimistic"
    if end.test is not None:
        return f"{said}; the test data chose nothing"
    command, use = made.task.on_other_data
    return f"{said}; {use}: {command.format(path_argument(made.out))}"


def leaked(end: RunResult) -> str | None:
    """That test data is not all new."""
    if not end.leaks:
        return None
    records = f"{counted(end.leaks, 'record')} of the test data"
    return f"leak: the source of {records} is in the training or validation data too, so the test score is optimistic"
