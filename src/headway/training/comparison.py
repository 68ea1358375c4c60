"""Choices of a workbench, compared: each of a grid is trained alike, at equal size, with several seeds.

Every variant reads the same batches of the same split for the same number of steps; with minutes given, as many as the
slowest of them does in that time.  Their numbers of parameters are made equal by the hidden width of the feed-forward
layers.  What is compared is the loss of a held-out token with the weights of the last step.

Each training is written to the folder of the comparison when it is finished, and is not repeated.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any, TextIO

import torch

from headway.data.kinds import DataKind
from headway.data.shards import digest
from headway.dtype import FP32
from headway.errors import UserError, nearest
from headway.system import keep_memory, read_json, write_json
from headway.training.api import Data, requested
from headway.training.build import batches_of, duration, evaluator_of, learner_of, require
from headway.training.calibration import timed
from headway.training.comparison_result import Choice, Choices, ComparisonResult, Variant
from headway.training.dataset import load_splits
from headway.training.plan import NO_PARTS, OwnParts, Plan, finish_plan, plan, reseeded, tokenizer_texts
from headway.training.recipe_sources import RecipeLayers, resolve
from headway.zoo.build import config_of, on_meta, to_plain
from headway.zoo.presets import preset
from headway.zoo.workbench import ARRANGEMENTS, FFNS, MIXERS, NORMS, POSITIONS, Config

NAMED: Mapping[str, Mapping[str, Any]] = {
    "norm": NORMS,
    "arrangement": ARRANGEMENTS,
    "ffn": FFNS,
    "positions": POSITIONS,
    "mixer": MIXERS,
}
NUMBERED = ("heads", "layers", "dim", "window", "kernel", "experts")
AXES = (*NAMED, *NUMBERED)
MAX_VARIANTS, MAX_SEEDS = 16, 20
MINUTES = 3.0  # of each training, where nothing else is given
SETTINGS, TRAININGS = "settings.json", "trainings"


def compare(
    data: Data, choices: Choices, *, seeds: int = 3, model: str = "workbench", quiet: bool = False, **settings: Any
) -> ComparisonResult:
    """Trains every combination of `choices`, as in {"norm": ["layer", "rms"], "heads": [1, 4]}, and compares them.

    `model` is a preset of the workbench.  Settings are those of `headway.train`: minutes or steps of each training,
    batch, seed (the first), out, and sizes of the model that all share.
    """
    layers, own = requested(data, None, model, None, settings)
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        return compare_recipe(layers, choices, seeds, own=own, out=nowhere if quiet else None)


def compare_recipe(
    asked: RecipeLayers, choices: Choices, seeds: int, *, own: OwnParts = NO_PARTS, out: TextIO | None = None
) -> ComparisonResult:
    """`compare` of what a recipe asks for, described on `out` (standard output)."""
    keep_memory()
    lines: TextIO = out or sys.stdout
    choices = checked(choices)
    if not 1 <= seeds <= MAX_SEEDS:
        raise UserError(f"seeds={seeds}", allowed=f"1 to {MAX_SEEDS}")
    asked, shared, notes = with_shared(asked, choices)
    grid = [dict(zip(choices, values, strict=True)) for values in product(*choices.values())]
    for variant in grid:
        on_meta(config_of(asked.value("model.preset"), **{**shared, **variant}))  # what cannot be is told at once
    folder = folder_of(asked, own)
    plans = planned(asked, grid, own, folder)
    first = plans[0].recipe
    torch.set_num_threads(require(first.train.threads))
    folder.joinpath(TRAININGS).mkdir(parents=True, exist_ok=True)
    write_json(folder / SETTINGS, {"steps": first.train.steps})
    numbers = tuple(range(first.seed, first.seed + seeds))
    print(f"{len(grid)} variants of {len(numbers)} seeds, {first.train.steps:,} steps each, in {folder}", file=lines)
    try:
        trained = train_all(plans, grid, numbers, folder, lines)
    except KeyboardInterrupt:
        print(f"what is trained is kept in {folder}; the same command goes on with the others", file=lines)
        raise
    variants = [
        Variant(
            variant,
            parameters(made.config),
            made.config.hidden,
            tuple(one["loss"] for one in found),
            tuple(one["seconds"] for one in found),
        )
        for variant, made, found in zip(grid, plans, trained, strict=True)
    ]
    result = ComparisonResult(
        sorted(variants, key=lambda one: one.mean),
        choices,
        plans[0].splits.description.partition(", so ")[0],
        require(first.train.steps),
        require(first.train.batch),
        require(first.train.lr),
        numbers,
        trained[0][0]["targets"],
        {name: value for name, value in to_plain(plans[0].config).items() if name not in (*choices, "hidden")},
        folder,
        notes,
    )
    result.save()
    return result


# ---- what is compared


def checked(choices: Choices) -> dict[str, tuple[Choice, ...]]:
    """The axes with their choices; refuses what is unknown, given twice, or too much."""
    found = {axis: tuple(checked_axis(axis, values)) for axis, values in choices.items()}
    if not found:
        raise UserError("nothing to compare", do="name an axis and its choices, as in norm=layer,rms")
    count = 1
    for values in found.values():
        count *= len(values)
    if count < 2:
        raise UserError("one variant has nothing to be compared with", do="give an axis two choices or more")
    if count > MAX_VARIANTS:
        said = f"{' × '.join(str(len(values)) for values in found.values())} = {count} variants"
        raise UserError(said, allowed=f"{MAX_VARIANTS} at most", do="compare one axis after the other")
    return found


def checked_axis(axis: str, values: Sequence[Choice]) -> Iterator[Choice]:
    if axis not in AXES:
        raise UserError(f"the workbench has no axis {axis!r}", allowed=", ".join(AXES), meant=nearest(axis, AXES))
    meanings = list[Any]()
    for value in values:
        if axis in NUMBERED:
            if not str(value).isdigit() or int(value) < 1:
                raise UserError(f"{axis}={value}", allowed="whole numbers of 1 or more")
            value = int(value)
        elif value not in NAMED[axis]:
            near = nearest(str(value), NAMED[axis])
            do = f"did you mean {axis}={near}?" if near else None
            raise UserError(f"{axis}={value} is not a choice", allowed=", ".join(NAMED[axis]), do=do)
        meaning = NAMED[axis][str(value)] if axis in NAMED else value
        if meaning in meanings:
            same = values[meanings.index(meaning)]
            said = (
                f"{axis}={same} is given twice" if same == value else f"{axis}={same} and {axis}={value} are the same"
            )
            raise UserError(said, do="give each choice once")
        meanings.append(meaning)
        yield value


def with_shared(asked: RecipeLayers, choices: Choices) -> tuple[RecipeLayers, dict[str, Any], tuple[str, ...]]:
    """What is asked, with the sizes that all variants have, and what is to be said about them."""
    name = asked.value("model.preset")
    if preset(name).architecture != "workbench":
        raise UserError(f"{name} is not a workbench", allowed="workbench, workbench-nano", do="leave out the preset")
    shared, notes = asked.given_sizes(), tuple[str, ...]()
    if twice := [axis for axis in choices if axis in shared]:
        raise UserError(f"{twice[0]} is compared, and model.{twice[0]} is given", do="leave one of them out")
    if set(choices.get("mixer", ())) - {"attention"} and not {"positions"} & {*choices, *shared}:
        shared["positions"] = "sinusoidal"
        notes = ("positions are sinusoidal for all: rotary ones are for attention alone",)
    options = {f"model.{name}": value for name, value in shared.items()}
    steps = (
        {}
        if any(asked.value(f"train.{kind}") for kind in ("steps", "epochs", "minutes"))
        else {"train.minutes": MINUTES}
    )
    return asked.with_options({**options, **steps, "train.dtype": FP32}), shared, notes


def folder_of(asked: RecipeLayers, own: OwnParts) -> Path:
    """As given, or named after the data: the same for the same command again."""
    recipe = resolve(asked)
    if not recipe.data.path and own.records is None:
        raise UserError("headway compare needs texts to learn from", do="name a file, as in data=book.txt")
    name = Path(recipe.data.path[0]).name.split(".")[0] if recipe.data.path else "records"
    folder = recipe.out or Path(f"{name}-comparison")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file", do="name another out=")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / SETTINGS).is_file():
        raise UserError(f"{folder} holds something else than a comparison", do="name another out=")
    return folder


# ---- plans of equal size and length


def planned(asked: RecipeLayers, grid: Sequence[Mapping[str, Choice]], own: OwnParts, folder: Path) -> list[Plan]:
    """A plan for each variant: one reading of the data, one size, one rate and one number of steps."""
    asks = [asked.with_options({f"model.{axis}": one for axis, one in variant.items()}) for variant in grid]
    splits = load_splits(resolve(asks[0]), None, own.records)
    if splits.kind is not DataKind.TEXTS:
        said = f"the workbench learns from running text, and this is {splits.description.partition(', so ')[0]}"
        raise UserError(said, do="give a .txt file or a folder of them")
    first = plan(asks[0], own=own, splits=splits)
    if not first.encoded.validation:
        raise UserError("nothing is held out to compare the variants on", do="give data.validation, or more data")
    train, size = first.recipe.train, parameters(first.config)
    same = {"train.lr": train.lr, "train.batch": train.batch, "data.max_length": first.recipe.data.max_length}

    def on_same_data(ask: RecipeLayers, hidden: int | None = None) -> Plan:
        ask = ask.with_options({**same, **({} if hidden is None else {"model.hidden": hidden})})
        return finish_plan(ask, replace(first, recipe=resolve(ask), config=None))

    plans = [on_same_data(ask, matched(on_same_data(ask).config, size)) for ask in asks]
    kept = read_json(folder / SETTINGS)["steps"] if (folder / SETTINGS).is_file() else None
    steps = train.steps or kept
    if steps is None:
        torch.set_num_threads(require(train.threads))
        steps = min(require(timed(made)[0].recipe.train.steps) for made in plans)
    return [
        on_same_data(ask.with_options({"train.steps": steps}), made.config.hidden)
        for ask, made in zip(asks, plans, strict=True)
    ]


def matched(config: Config, size: int) -> int:
    """The hidden width of the feed-forward layers at which a model has about `size` parameters."""
    one, two = (parameters(replace(config, hidden=hidden)) for hidden in (1, 2))
    hidden = 1 + round((size - one) / (two - one))
    if hidden < 1:
        said = f"{name_of(to_plain(config), ('mixer', 'ffn', 'dim', 'layers'))} has {one:,} parameters or more"
        raise UserError(said, allowed=f"{size:,}, as the first variant has", do="put the largest variant first")
    return hidden


def parameters(config: Config) -> int:
    return sum(parameter.numel() for parameter in on_meta(config).parameters())


def name_of(choices: Mapping[str, Any], axes: Iterable[str] | None = None) -> str:
    return " ".join(f"{axis}={choices[axis]}" for axis in (choices if axes is None else axes))


# ---- training


def train_all(
    plans: Sequence[Plan], grid: Sequence[Mapping[str, Choice]], seeds: Sequence[int], folder: Path, out: TextIO
) -> list[list[dict[str, Any]]]:
    """What came of each variant and seed; those that the folder has already are not trained."""
    found: list[list[dict[str, Any]]] = [[] for _ in plans]
    total, done = len(plans) * len(seeds), 0
    for seed in seeds:  # so that an interrupted comparison has all variants
        for at, made in enumerate(plans):
            name, done = f"{name_of(grid[at])} seed={seed}", done + 1
            file = folder / TRAININGS / f"{name.replace(' ', ',')}.json"
            key = key_of(made, seed)
            kept: dict[str, Any] | None = read_json(file) if file.is_file() else None
            if kept is not None and kept["key"] != key:
                said = f"{file} was trained with other settings or other data"
                raise UserError(said, do="name another out=, or delete it")
            if kept is None:
                kept = {"key": key, **train_one(reseeded(made, seed))}
                write_json(file, kept)
            print(
                f"{done} of {total}  {name}  loss {kept['loss']:.4f}  {duration(kept['seconds'])}", file=out, flush=True
            )
            found[at].append(kept)
    return found


def key_of(made: Plan, seed: int) -> dict[str, Any]:
    """What a training depends on, in the form that a file gives back."""
    train = made.recipe.train
    return {
        "config": to_plain(made.config),
        "seed": seed,
        "steps": train.steps,
        "batch": train.batch,
        "rate": train.lr,
        "data": digest((), made.splits.digest, *tokenizer_texts(made.setup), str(made.recipe.data.max_length)),
    }


def train_one(made: Plan) -> dict[str, Any]:
    """The loss of held-out tokens after the last step."""
    learner, evaluate, begun = learner_of(made), require(evaluator_of(made)), perf_counter()
    for step, batches in enumerate(batches_of(made)(1, require(made.recipe.train.steps) + 1), 1):
        learner.learn(step, batches)
    seconds = perf_counter() - begun
    scores = evaluate(learner.model.eval()).scores
    return {"loss": scores.numbers["loss"], "targets": scores.count, "seconds": seconds}
