"""Resuming a run: its plan again, where neither its data nor its settings have changed since it began.

A setting that is given again must be what it was.  Only what changes no number may differ: paths, where the folder or
the files were moved, the number of processes that prepare batches, whether activations are recomputed, and the engine
that shares the work among processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from headway.data.records import as_number, is_builtin
from headway.data.shards import digest
from headway.errors import UserError, malformed
from headway.recipe import Recipe, flat
from headway.system import read_json, write_text
from headway.training.dataset import tokenizer_texts
from headway.training.defaults import steps_of
from headway.training.metrics_log import MetricsLog
from headway.training.plan import NO_PARTS, OwnParts, Plan, plan
from headway.training.recipe_sources import (
    DATA,
    RECIPE,
    RecipeLayers,
    begun_with,
    folds_to_resume,
    resolve,
    run_to_resume,
    to_yaml,
)
from headway.training.setting_origins import CommandLineOption

FILES = ("data.path", "data.source", "data.target", "data.validation", "data.test")
FREE = (*FILES, "train.workers", "train.recompute", "train.parallel", "train.replicas", "train.tensor_parallel")
EXTENSIBLE = ("train.steps", "train.minutes")
COUNTED = ("train.epochs", "train.minutes")  # a run of so many of these was made into steps
MODEL = ("*.json", "*.safetensors", "*.txt", "*.model")  # in a folder with a model or a tokenizer


def resumed_plan(layers: RecipeLayers, scratch: Path | None = None, own: OwnParts = NO_PARTS) -> Plan:
    """The plan of the run in --out, where nothing has changed since it began."""
    folder = run_to_resume(layers)
    assert folder is not None
    check_same(layers, resolve(begun_with(folder / RECIPE)), folder)
    before = read_hashes(folder / DATA)
    given = given_again(layers)
    check_files(given, before["files"])
    free = {name: given[name] for name in FREE if name in given}
    made = plan(begun_with(folder / RECIPE).with_options({**free, "out": folder}), scratch, own)
    check_data(before, data_hashes(made))
    check_length(given, made, folder)
    return made


def read_hashes(file: Path) -> dict[str, Any]:
    """The hashes of a data.json."""
    match read_json(file):
        case {"files": dict(files), "records": str(), "words": str()} as found if all(
            isinstance(x, str) for x in files.values()
        ):
            return found
        case _:
            raise UserError(f"{file} does not hold the hashes of a run's data", do="start a new run")


def given_again(layers: RecipeLayers) -> dict[str, Any]:
    """What was given with --resume, by name; what was left to be chosen is not."""
    values = flat(resolve(layers))
    named = dict.fromkeys(name for layer in reversed(layers.layers) for name in layer)
    return {name: values[name] for name in named if values.get(name) not in (None, (), "auto")}


def check_same(layers: RecipeLayers, recipe: Recipe, folder: Path) -> None:
    """Refuses a setting that the run was not begun with."""
    begun = flat(recipe)
    for name, value in given_again(layers).items():
        one = layers.given(name)
        if one is not None and name not in ("out", *FREE, *COUNTED) and begun.get(name) != value:
            said = f"{one.origin.describe(name, value)}, but the run in {folder} has {name} = {begun.get(name)}"
            raise UserError(said, do="leave it out, or start anew")


def check_length(given: Mapping[str, Any], made: Plan, folder: Path) -> None:
    """Refuses another number of epochs; a time that was given is behind us."""
    train, epochs = made.recipe.train, given.get("train.epochs")
    update = (train.batch or 1) * train.grad_accumulation
    if epochs and (steps := steps_of(epochs, made.encoded.tokens, update)) != train.steps:
        given_as = CommandLineOption().describe("train.epochs", epochs)
        said = f"{given_as} are {steps} steps, but the run in {folder} has {train.steps}"
        raise UserError(said, do="leave it out, or start anew")
    if "train.minutes" in given:
        print(f"--minutes was made into steps when the run began: {train.steps}")


def extend(layers: RecipeLayers, name: str, more: str) -> str:
    """Makes the run in --out longer by so many steps or minutes, which it goes on with; a sentence about it.

    The learning rate goes on as that of a run which was as long from its beginning.
    """
    folder = run_to_resume(layers)
    if folder is None:
        raise UserError(f"{name} {more} makes a run longer, and {layers.value('out')} holds none", do="leave out the +")
    if folds_to_resume(layers) is not None:
        said = f"the folds of {folder} have decided how long its model is trained"
        raise UserError(said, do="go on from its model in a new run, with model.from")
    check_same(layers, recipe := resolve(begun_with(folder / RECIPE)), folder)
    if recipe.train.patience is not None:
        said = f"the run in {folder} ends by train.patience {recipe.train.patience}, not by its steps"
        raise UserError(said, do="go on from its model in a new run, with model.from")
    if recipe.train.steps is None:
        raise UserError(f"{folder / RECIPE} does not say how many steps the run has", do="start a new run")
    log, number = MetricsLog(folder), as_number(more)
    if number is None or number <= 0 or name not in EXTENSIBLE or (name == "train.steps" and number % 1):
        raise UserError(f"{name} {more} is no extension", allowed="train.steps +N or train.minutes +X, above 0")
    steps = int(number) if name == "train.steps" else max(1, round(60 * number / seconds_of_step(recipe, log, folder)))
    longer = recipe.train.steps + steps
    recipe = replace(recipe, train=replace(recipe.train, steps=longer))
    write_text(folder / RECIPE, to_yaml(recipe))
    log.append_time(step=recipe.train.steps, steps=longer)
    return f"{steps:,} steps more, {longer:,} in all"


def seconds_of_step(recipe: Recipe, log: MetricsLog, folder: Path) -> float:
    """How long a step of a run took, with its share of an evaluation."""
    with malformed(str(log.times)):
        lines = [(line["step"], line["seconds"]) for line in log.time_lines() if "seconds" in line]
        budgets = [line["budget"] for line in log.time_lines() if line.get("budget")]
        steps = [
            seconds / (step - before)
            for (before, _), (step, seconds) in zip([(0, 0.0), *lines], lines, strict=False)
            if step > before
        ]
    if not steps:
        raise UserError(f"{folder} does not say how long its steps took", do="give train.steps +N")
    evaluation = budgets[-1]["evaluation"] if budgets else 0.0
    return median(steps) + evaluation / (recipe.train.evaluate_every or recipe.train.steps or 1)


def data_hashes(made: Plan) -> dict[str, Any]:
    """What a run was begun with, by hash: files, and what was made of them."""
    return {
        "files": {str(file): digest([file]) for file in files_of(made)},
        "records": made.splits.digest,
        "words": digest((), *tokenizer_texts(made.setup)),
    }


def files_of(made: Plan) -> Iterator[Path]:
    yield from (*made.splits.files, *made.splits.validation_files, *made.splits.test_files)
    data, models = made.recipe.data, (made.recipe.model.start, made.recipe.train.teacher)
    yield from (model for model in models if model is not None and model.is_file())  # a GGUF file
    for folder in (*models, data.tokenizer, data.target_tokenizer):
        if folder is not None and Path(folder).is_dir():
            yield from sorted(file for glob in MODEL for file in Path(folder).glob(glob))


def check_files(given: Mapping[str, Any], before: Mapping[str, str]) -> None:
    """Refuses files that are not what they were, before anything is made of them."""
    listed = [paths if isinstance(paths, tuple) else (paths,) for name in FILES if (paths := given.get(name))]
    again = [Path(path) for paths in listed if not is_builtin(paths) for path in paths]
    for file in again or map(Path, before):
        if not file.exists():
            do = "resume from the folder where the run began, or name the data again"
            raise UserError(f"{file} does not exist", do=do)
        if file.is_file() and digest([file]) not in before.values():
            raise changed(str(file))


def check_data(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuses data that is not what the run began with; files that were moved are what they were."""
    known = set(before["files"].values())
    for name, hash in now["files"].items():
        if hash not in known:
            raise changed(name)
    for name, what in (("records", "the data"), ("words", "the tokenizer")):
        if before[name] != now[name]:
            raise changed(what)


def changed(what: str) -> UserError:
    return UserError(f"{what} has changed since this run began", do="bring it back, or start a new run")
