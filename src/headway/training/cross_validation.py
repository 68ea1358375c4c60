"""K-fold cross-validation: a model for each fold, their scores together, and a model of all records.

The trainings of the folds are runs of their own, in OUT/folds/1 and so on, with the settings that are chosen for all
records (`OUT/folds/recipe.yaml`) and the fold that is held out (`data.fold`).  Minutes are shared out among all
trainings; how many steps that makes is found in the first fold, and is the same in all others.

All trainings are alike: each takes the same number of steps and has the weights of the last one.  Nothing that is held
out chooses a checkpoint.  That would make the scores better than the models, the more so the smaller a fold is, and
says little of how long a model of all records is to be trained (docs/LOG.md has numbers).  Only where weights were
counted in the data, each fold decides whether training has improved on them, and most folds decide for all records.
The scores are those of the folds' models (`fold_scores.py`), and an estimate for the model that is delivered.

Finished trainings are not repeated.  The model of each fold is scored as it was saved, so that a resumed command and
one that was never interrupted say the same, bit for bit.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TextIO

from headway.console import fitted, phase, progress_on
from headway.data.splits import DataSplits
from headway.distributed.world import ALONE, World
from headway.errors import UserError, going_on
from headway.loading import load
from headway.recipe import Recipe, TrainSettings, flat
from headway.system import memory_errors
from headway.training import run as one_run
from headway.training.build import StepTiming, describe_choices, describe_timing, require
from headway.training.calibration import TimeBudget, max_steps, timed, with_dtype
from headway.training.fold_scores import CrossValidation, FoldResult
from headway.training.loop import RunResult
from headway.training.metrics_log import MetricsLog
from headway.training.plan import NO_PARTS, OwnParts, Plan
from headway.training.recipe_sources import (
    FOLDS,
    RECIPE,
    RecipeLayers,
    begun_with,
    folds_to_resume,
    resolve,
    run_to_resume,
    to_yaml,
)
from headway.training.resuming import FREE, given_again
from headway.training.run import LESS_MEMORY, begin, lock_folder, prepared, run, scored
from headway.training.run_summary import describe_end
from headway.training.setting_origins import GivenValue, RecipeLine

# settings that the first fold decides for all trainings
TIMED = (
    "train.steps",
    "train.minutes",
    "train.warmup_steps",
    "train.evaluate_every",
    "train.checkpoint_every",
    "train.log_every",
    "train.dtype",
)


def train(
    layers: RecipeLayers,
    *,
    resume: bool = False,
    own: OwnParts = NO_PARTS,
    callbacks: Sequence[object] = (),
    out: TextIO | None = None,
    splits: DataSplits | None = None,
    world: World = ALONE,
) -> tuple[Plan, RunResult]:
    """What a recipe asks for: one run, as `run.train` has it, or those of a cross-validation."""
    if not is_asked(layers, resume=resume):
        return one_run.train(layers, resume=resume, own=own, callbacks=callbacks, out=out, splits=splits, world=world)
    if world.size > 1:
        do = "leave processes= out; or train each fold by itself, by data.fold"
        raise UserError(f"data.folds trains its models in one process, not in {world.size}", do=do)
    stream = out or sys.stdout
    with progress_on(stream), memory_errors(LESS_MEMORY):
        if resume and folds_to_resume(layers) is not None:
            trainings = Trainings.resumed(layers, own, callbacks, stream)
        else:
            trainings = Trainings.new(layers, own, callbacks, stream, splits)
        with lock_folder(trainings.folds):
            made, end = trainings.train_all()
        if end.signal is None:
            print(fitted(describe_end(made, end), stream), file=stream)
    return made, end


def dry_run(layers: RecipeLayers, *, resume: bool = False, splits: DataSplits | None = None) -> None:
    """Prints what `train` would do; nothing is written."""
    if not is_asked(layers, resume=resume):
        return one_run.dry_run(layers, resume=resume, splits=splits)
    begun = folds_to_resume(layers) if resume else None
    with TemporaryDirectory(prefix="headway-") as scratch, progress_on(sys.stdout):
        asked = layers if begun is None else begun_with(begun / RECIPE)
        described(asked, sys.stdout, Path(scratch), NO_PARTS, splits, anywhere=begun is not None)
    print("\nnothing was written: this was a dry run")


def resolved_yaml(layers: RecipeLayers, *, resume: bool = False, splits: DataSplits | None = None) -> str:
    """The recipe of a run, or the one that the trainings of a cross-validation share, with every choice made."""
    if not is_asked(layers, resume=resume):
        return one_run.resolved_yaml(layers, resume=resume, splits=splits)
    if resume and (begun := folds_to_resume(layers)) is not None:
        return to_yaml(resolve(begun_with(begun / RECIPE)))
    made = prepared(shared_layers(layers), anywhere=True, splits=splits)
    return to_yaml(shared_recipe(with_dtype(made)[0].recipe, layers))


def is_asked(layers: RecipeLayers, *, resume: bool) -> bool:
    """Whether a recipe, or the folder that is resumed, is that of a cross-validation."""
    if resume and run_to_resume(layers) is not None:
        return folds_to_resume(layers) is not None
    data = resolve(layers).data
    return data.folds is not None and data.fold is None


# ---- what all trainings share


def shared_layers(layers: RecipeLayers) -> RecipeLayers:
    """What was given, with the minutes of one training."""
    check_alike(layers)
    recipe = resolve(layers)
    if recipe.train.minutes is None:
        return layers
    return layers.with_options({"train.minutes": recipe.train.minutes / (1 + require(recipe.data.folds))})


def shared_recipe(shared: Recipe, layers: RecipeLayers) -> Recipe:
    """What the trainings share, as it may be given again: with all minutes, and without evaluations on the way."""
    return replace(shared, train=replace(shared.train, minutes=resolve(layers).train.minutes, evaluate_every=None))


def check_alike(layers: RecipeLayers) -> None:
    """Refuses settings by which held-out records would choose the weights that they score."""
    train, usual = resolve(layers).train, TrainSettings()
    for name in ("evaluate_every", "patience", "average"):
        if getattr(train, name) != getattr(usual, name):
            said = (
                f"train.{name} lets held-out records choose the weights, and data.folds scores those of the last step"
            )
            raise UserError(said, do=f"leave out train.{name} or data.folds")


def layers_of(recipe: Recipe) -> RecipeLayers:
    """A recipe as layers, as if a file had it."""
    place = RecipeLine(RECIPE, 1, "")
    return RecipeLayers(({name: GivenValue(value, place) for name, value in flat(recipe).items()},))


def described(
    layers: RecipeLayers,
    out: TextIO,
    scratch: Path | None,
    own: OwnParts,
    splits: DataSplits | None,
    *,
    anywhere: bool = False,
) -> tuple[Plan, Plan, TimeBudget | None]:
    """The plan of all records, and that of the first fold with its steps; facts are printed as they are known."""

    def say(lines: Iterable[str]) -> None:
        print(fitted("\n".join(lines), out), file=out, flush=True)

    shared = prepared(shared_layers(layers), scratch, anywhere=anywhere, own=own, splits=splits)
    if splits is None:
        say([shared.splits.description])
    say(describe_choices(shared))
    made, timing, budget = first_fold(shared, shared.out, own, scratch)
    whole = replace(made, recipe=replace(made.recipe, out=shared.out))
    say(describe_timing(whole, timing, require(shared.recipe.data.folds)))
    return shared, made, budget


def first_fold(
    shared: Plan, folder: Path, own: OwnParts, scratch: Path | None = None
) -> tuple[Plan, StepTiming, TimeBudget | None]:
    """The plan of the first fold with its steps, which are those of all trainings, and what was timed for them."""
    last = max(shared.recipe.train.steps or 0, max_steps(shared))  # it is evaluated after its last step alone
    mine = {"data.fold": 1, "out": folder / FOLDS / "1", "train.evaluate_every": last}
    asked = prepared(layers_of(shared.recipe).with_options(mine), scratch, anywhere=True, own=own)
    with phase("timing steps and an evaluation", "steps", moving=not asked.recipe.train.workers):
        made, timing = timed(asked)
    return made, timing, TimeBudget.of(asked, made, timing)


# ---- the trainings


@dataclass
class Trainings:
    """Those of the folds and of all records, in a folder; `shared` is what they have in common.

    `free` are settings that change no number, given again with resume; `first` is the plan of the first fold where it
    has just been made.
    """

    shared: Recipe
    folder: Path
    own: OwnParts
    callbacks: Sequence[object]
    out: TextIO
    free: dict[str, Any]
    first: Plan | None

    @staticmethod
    def new(
        layers: RecipeLayers, own: OwnParts, callbacks: Sequence[object], out: TextIO, splits: DataSplits | None
    ) -> Trainings:
        shared, first, budget = described(layers, out, None, own, splits)
        folder, recipe = shared.out, shared_recipe(shared.recipe, layers)
        begin(replace(shared, recipe=replace(recipe, out=folder / FOLDS)))
        begin(first, budget)
        return Trainings(recipe, folder, own, callbacks, out, {}, first)

    @staticmethod
    def resumed(layers: RecipeLayers, own: OwnParts, callbacks: Sequence[object], out: TextIO) -> Trainings:
        """As they were begun, where neither data nor settings have changed since."""
        folder = require(run_to_resume(layers))
        untimed = [{name: one for name, one in layer.items() if name != "train.minutes"} for layer in layers.layers]
        again = RecipeLayers(tuple(untimed))
        made = prepared(again.with_options({"out": folder / FOLDS}), resume=True, own=own)
        free = {name: value for name, value in given_again(again).items() if name in FREE}
        found = Trainings(made.recipe, folder, own, callbacks, out, free, None)
        if not (found.folds / "1" / RECIPE).is_file():
            one = resolve(shared_layers(begun_with(folder / FOLDS / RECIPE)))
            found.first, _, budget = first_fold(replace(made, recipe=one), folder, own)
            begin(found.first, budget)
        return found

    @property
    def folds(self) -> Path:
        return self.folder / FOLDS

    def train_all(self) -> tuple[Plan, RunResult]:
        """Trains what is not trained yet; the plan of all records, or of what was interrupted, in the whole folder."""
        found, count = list[FoldResult](), require(self.shared.data.folds)
        for fold in range(1, count + 1):
            self.say(f"\nfold {fold} of {count}")
            place = self.folds / str(fold)
            made, end = self.train_one(place, self.layers().with_options({"data.fold": fold, "out": place}))
            if end is not None and end.signal is not None:
                return self.interrupted(made, end, f"in fold {fold} of {count}")
            found.append(self.result(made))
            self.say(CrossValidation.told(found[-1]))
        steps = require(resolve(begun_with(self.folds / "1" / RECIPE)).train.steps)
        known = CrossValidation(tuple(found), steps, self.folds)
        self.say(f"\nall records, {known.final_length}")
        made, end = self.train_one(self.folder, self.final_layers(known), known)
        assert end is not None  # a finished command is not resumed
        return (made, end) if end.signal is None else self.interrupted(made, end, "in the training on all records")

    def train_one(
        self, folder: Path, layers: RecipeLayers, known: CrossValidation | None = None
    ) -> tuple[Plan, RunResult | None]:
        """Trains in a folder, or goes on there; the plan, and no end where it has come to its end before."""
        fresh = self.first if self.first is not None and self.first.out == folder else None
        resume = fresh is None and (folder / RECIPE).is_file()
        if resume:
            made = prepared(RecipeLayers().with_options({**self.free, "out": folder}), resume=True, own=self.own)
        elif fresh is None:
            made = prepared(layers.with_options(self.free), anywhere=True, own=self.own)
            begin(made)
        else:
            made = fresh
        made = replace(made, estimate=known)
        if MetricsLog(folder).is_finished():
            return made, None
        return run(made, resume=resume, callbacks=self.callbacks, out=self.out)

    def layers(self) -> RecipeLayers:
        """What all trainings have in common, with the length that was decided in the first fold."""
        first = flat(resolve(begun_with(self.folds / "1" / RECIPE)))
        return layers_of(self.shared).with_options({name: first[name] for name in TIMED})

    def final_layers(self, known: CrossValidation) -> RecipeLayers:
        """The settings of the training on all records, which is a run without folds."""
        layers, steps = self.layers(), known.final_steps
        whole = {"data.folds": None, "data.fold": None, "data.validation_split": 0.0, "out": self.folder}
        warmup = min(steps, layers.value("train.warmup_steps"))
        return layers.with_options({**whole, "train.steps": steps, "train.warmup_steps": warmup})

    def result(self, made: Plan) -> FoldResult:
        """The scores of the model of a fold as it was saved."""
        module = deepcopy(self.own.module)
        with phase("scoring the fold", moving=True):
            model = load(made.out, device=made.recipe.device, task=self.own.task, module=module).model
            found = scored(made, model)
            targets = sum(batch.targets for batch in made.encoded.validation)
        steps = MetricsLog(made.out).chosen_steps()  # none where no score was a number
        return FoldResult(found, targets, steps[0] if steps else require(made.recipe.train.steps))

    def interrupted(self, made: Plan, end: RunResult, where: str) -> tuple[Plan, RunResult]:
        again = going_on(self.folder)
        self.say(f"\ninterrupted {where}, at step {end.step}, and saved; go on with\n\n  {again}")
        return replace(made, recipe=replace(made.recipe, out=self.folder)), end

    def say(self, line: str) -> None:
        print(fitted(line, self.out), file=self.out, flush=True)
