"""Going on with a run: as its own recipe says, on the data that it began with.

A setting that is given again must be what it was.  Only what changes no number may differ: places, where the folder or
the files were moved, and how many processes prepare batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headway.data.builtin import is_embedded
from headway.data.shard_cache import digest
from headway.errors import UserError
from headway.files import read_json
from headway.recipe import Recipe, flat
from headway.training.plan import NO_PARTS, OwnParts, Plan, plan, steps_of, tokenizer_texts
from headway.training.recipe_sources import RecipeLayers, from_yaml, read_file, resolve
from headway.training.setting_origins import CommandLineOption

RECIPE, DATA = "recipe.yaml", "data.json"
FILES = ("data.path", "data.source", "data.target", "data.validation")
FREE = (*FILES, "train.workers")
COUNTED = ("train.epochs", "train.minutes")  # a run of so many of these was made into steps
MODEL = ("*.json", "*.safetensors", "*.txt", "*.model")  # in a folder with a model or a tokenizer


def run_in(asked: RecipeLayers) -> Path:
    """The folder of the run to go on with."""
    folder: Path | None = asked.value("out")
    if folder is None:
        raise UserError("resume= needs the folder of the run", do="give out= DIR")
    if not (folder / RECIPE).is_file():
        raise UserError(f"{folder} holds no run to resume", do="start it without resume=")
    check_same(asked, from_yaml(folder / RECIPE), folder)
    return folder


def taken_up(asked: RecipeLayers, scratch: Path | None = None, own: OwnParts = NO_PARTS) -> Plan:
    """The plan of the run in --out, where nothing has changed since it began."""
    folder = run_in(asked)
    before = read_json(folder / DATA)
    given = given_again(asked)
    check_files(given, before["files"])
    free = {name: given[name] for name in FREE if name in given}
    made = plan(RecipeLayers((read_file(folder / RECIPE),)).with_options({**free, "out": folder}), scratch, own)
    check_data(before, facts(made))
    check_length(given, made, folder)
    return made


def given_again(asked: RecipeLayers) -> dict[str, Any]:
    """What was given with --resume, by name."""
    told = flat(resolve(asked))
    named = dict.fromkeys(name for layer in reversed(asked.layers) for name in layer)
    return {name: told[name] for name in named if told.get(name) not in (None, ())}


def check_same(asked: RecipeLayers, recipe: Recipe, folder: Path) -> None:
    """Refuses a setting that the run was not begun with."""
    begun = flat(recipe)
    for name, value in given_again(asked).items():
        said = asked.given(name)
        if said is not None and name not in ("out", *FREE, *COUNTED) and begun.get(name) != value:
            was = f"the run in {folder} has {name} = {begun.get(name)}"
            raise UserError(f"{said.origin.describe(name, value)}, but {was}", do="leave it out, or start anew")


def check_length(given: Mapping[str, Any], made: Plan, folder: Path) -> None:
    """Refuses another number of epochs; a time that was given is behind us."""
    train, epochs = made.recipe.train, given.get("train.epochs")
    steps = (
        steps_of(epochs, made.encoded.tokens, (train.batch or 1) * train.grad_accumulation) if epochs else train.steps
    )
    if steps != train.steps:
        given_as = CommandLineOption().describe("train.epochs", epochs)
        said = f"{given_as} are {steps} steps, but the run in {folder} has {train.steps}"
        raise UserError(said, do="leave it out, or start anew")
    if "train.minutes" in given:
        print(f"--minutes was made into steps when the run began: {train.steps}")


def facts(made: Plan) -> dict[str, Any]:
    """What a run was begun with, by hash: files, and what was made of them."""
    return {
        "files": {str(file): digest([file]) for file in files_of(made)},
        "records": made.splits.digest,
        "words": digest((), *tokenizer_texts(made.setup)),
    }


def files_of(made: Plan) -> Iterator[Path]:
    yield from (*made.splits.files, *made.splits.validation_files)
    data, model = made.recipe.data, made.recipe.model
    for folder in (model.start, data.tokenizer, data.target_tokenizer):
        if folder is not None and Path(folder).is_dir():
            yield from sorted(file for glob in MODEL for file in Path(folder).glob(glob))


def check_files(given: Mapping[str, Any], before: Mapping[str, str]) -> None:
    """Refuses files that are not what they were, before anything is made of them."""
    listed = [paths if isinstance(paths, tuple) else (paths,) for name in FILES if (paths := given.get(name))]
    again = [Path(path) for paths in listed if not is_embedded(paths) for path in paths]
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
