"""`headway train`: a plan, told before it begins; the run; and a folder that explains itself.

A run's folder holds `recipe.yaml` (every choice), `data.json` (what the data was), `checkpoints/`, `metrics.jsonl` and
`times.jsonl`; in the end also the model, its card and `report.html`.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import torch

from headway.app.assemble import batches_of, examiner_of, learner_of, loaded_of, pace_of
from headway.app.calibrate import timed
from headway.app.plan import Plan, plan
from headway.app.recipe import Asked, from_yaml, read_file, to_yaml
from headway.app.report import finish_folder
from headway.app.told import told_end, told_plan
from headway.data.digest import digest
from headway.errors import UserError
from headway.files import read_json, write_json, write_text
from headway.train.journal import Journal
from headway.train.loop import Run
from headway.train.memory import keep_memory
from headway.train.progress import progress_to
from headway.train.recipe import Recipe, flat
from headway.train.store import Store

RECIPE, DATA, CHECKPOINTS = "recipe.yaml", "data.json", "checkpoints"


def train(asked: Asked, *, resume: bool, dry_run: bool, print_config: bool) -> int:
    """Plans, tells, runs and writes; the exit code."""
    keep_memory()
    if resume:
        return resumed(asked)
    made = plan(asked)
    check_place(out_of(made.recipe))
    torch.set_num_threads(made.recipe.train.threads or 1)
    made, pulse = (made, None) if print_config and made.recipe.train.steps else timed(made)
    if print_config:
        print(to_yaml(made.recipe), end="")
        return 0
    print(told_plan(made, pulse))
    if dry_run:
        print("\nnothing was written: this was a dry run")
        return 0
    begin(made)
    return run(made, resume=False)


def resumed(asked: Asked) -> int:
    """Goes on with the run in --out, as its own recipe says."""
    folder = asked.value("out")
    if folder is None:
        raise UserError("--resume needs the folder of the run", do="give --out DIR")
    if not (folder / RECIPE).is_file():
        raise UserError(f"{folder} holds no run to resume", do="start it without --resume")
    recipe = from_yaml(folder / RECIPE)
    check_same(asked, recipe, folder)
    made = plan(Asked((read_file(folder / RECIPE),)))
    check_data(made, folder)
    torch.set_num_threads(recipe.train.threads or 1)
    return run(made, resume=True)


def check_place(folder: Path) -> None:
    if (folder / RECIPE).is_file():
        raise UserError(f"{folder} holds a run already", do="go on with it by --resume, or name another --out")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is there already and not empty", do="name another --out")


def check_same(asked: Asked, recipe: Recipe, folder: Path) -> None:
    """Refuses a setting that the run was not begun with."""
    begun = flat(recipe)
    for layer in asked.layers:
        for name, said in layer.items():
            # a run of so many minutes was made into steps
            if name != "out" and said.value is not None and name != "train.minutes" and begun.get(name) != said.value:
                was = f"the run in {folder} has {name} = {begun.get(name)}"
                raise UserError(f"{said.place.says(name, said.value)}, but {was}", do="leave it out, or start anew")


def begin(made: Plan) -> None:
    """Makes the folder of a run: its recipe, and what its data was."""
    folder = out_of(made.recipe)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / DATA, hashes(made))
    write_text(folder / RECIPE, to_yaml(made.recipe))


def check_data(made: Plan, folder: Path) -> None:
    """Refuses data that is not what the run began with."""
    before, now = read_json(folder / DATA), hashes(made)
    changed = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if changed:
        raise UserError(f"{changed[0]} has changed since this run began", do="bring it back, or start a new run")


def hashes(made: Plan) -> dict[str, str]:
    return {str(file): digest([file]) for file in made.material.files} or {made.material.name: made.material.digest}


def run(made: Plan, *, resume: bool) -> int:
    """Trains, and leaves the folder of a model, or of a run that can be resumed."""
    recipe, folder = made.recipe, out_of(made.recipe)
    journal, learner, examiner = Journal(folder), learner_of(made), examiner_of(made)
    store = Store(folder / CHECKPOINTS, keep=recipe.train.keep)
    with progress_to(sys.stdout, pace_of(recipe).steps, journal) as watcher:
        training = Run(learner, batches_of(made), pace_of(recipe), store, journal, watcher, examiner)
        if resume and store.steps():
            for sentence in training.resume():
                watcher.said(sentence)
            watcher.said(f"resumed at step {training.progress.step}")
        end = training.run()
    if end.signal is not None:
        again = f"headway train --out {shlex.quote(str(folder))} --resume"
        print(f"\ninterrupted at step {end.step}, and saved; go on with\n\n  {again}")
        return 128 + end.signal
    loaded_of(made, learner.model).save(folder)
    finish_folder(made, end, journal, learner.model, examiner)
    print(told_end(made, end))
    return 0


def out_of(recipe: Recipe) -> Path:
    assert recipe.out is not None
    return recipe.out
