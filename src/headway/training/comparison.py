"""Choices of a workbench, compared: each of a grid is trained alike, at equal size, with several seeds.

What is compared is the loss of a held-out token with the weights of the last step.  Each training is written to the
folder of the comparison when it is finished, and is not repeated.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any, TextIO

import torch

from headway.data.shards import digest
from headway.errors import UserError, counted
from headway.system import keep_memory, read_json, write_json
from headway.training.api import Data, requested
from headway.training.build import batches_of, duration, evaluator_of, learner_of, require, units_of_step
from headway.training.comparison_plan import checked, name_of, parameters, planned, with_shared
from headway.training.comparison_result import Budget, Choice, Choices, ComparisonResult, Variant
from headway.training.dataset import tokenizer_texts
from headway.training.plan import NO_PARTS, OwnParts, Plan, reseeded
from headway.training.recipe_sources import RecipeLayers, resolve
from headway.zoo.build import config_of, on_meta, to_plain

MAX_SEEDS = 20
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
    kept = Budget(**read_json(folder / SETTINGS)) if (folder / SETTINGS).is_file() else None
    plans, budget = planned(asked, grid, own, kept)
    first = plans[0].recipe
    torch.set_num_threads(require(first.train.threads))
    folder.joinpath(TRAININGS).mkdir(parents=True, exist_ok=True)
    write_json(folder / SETTINGS, vars(budget))
    numbers = tuple(range(first.seed, first.seed + seeds))
    print(f"{counted(len(grid), 'variant')}, {counted(seeds, 'seed')} each, in {folder}", file=lines)
    print(f"budget of each training: {budget}", file=lines, flush=True)
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
        budget,
        budget.steps * units_of_step(plans[0]) / plans[0].encoded.tokens,
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
