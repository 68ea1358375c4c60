"""`headway train`: a plan, told before it begins; the run; and a folder that explains itself.

A run's folder holds `recipe.yaml` (every choice), `data.json` (what the data was), `checkpoints/`, `metrics.jsonl` and
`times.jsonl`; in the end also the model, its card and `report.html`.  Whatever ends a run early, `--resume` goes on
with it (resume.py).
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from headway.app.report.write import finish_folder
from headway.app.settings.recipe import Asked, to_yaml
from headway.app.training.assemble import batches_of, learner_of, loaded_of, pace_of
from headway.app.training.calibrate import timed
from headway.app.training.exams import examiner_of
from headway.app.training.plan import Plan, plan
from headway.app.training.resume import DATA, RECIPE, facts, run_in, taken_up
from headway.app.training.told import told_end, told_plan
from headway.errors import UserError
from headway.files import CHECKPOINTS, going_on, write_json, write_text
from headway.train.journal import Journal
from headway.train.loop import End, Run
from headway.train.memory import keep_memory
from headway.train.progress import progress_to
from headway.train.recipe import Recipe
from headway.train.signals import Interruption
from headway.train.store import Store


def train(asked: Asked, *, resume: bool = False, dry_run: bool = False, print_config: bool = False) -> int:
    """Plans, tells, runs and writes; the exit code."""
    keep_memory()
    if resume and Journal(run_in(asked)).ended():
        print(f"the run in {run_in(asked)} is finished: nothing is left to do")
        return 0
    with TemporaryDirectory(prefix="headway-") if dry_run else nullcontext() as scratch:
        place = Path(scratch) if scratch else None
        made = taken_up(asked, place) if resume else planned(asked, place, anywhere=print_config)
        torch.set_num_threads(made.recipe.train.threads or 1)
        if print_config:
            print(to_yaml(made.recipe if made.recipe.train.steps else timed(made)[0].recipe), end="")
            return 0
        if not resume or dry_run:
            made, pulse = timed(made)
            print(told_plan(made, pulse))
        if dry_run:
            print("\nnothing was written: this was a dry run")
            return 0
        if not resume:
            begin(made)
        return run(made, resume=resume)


def planned(asked: Asked, scratch: Path | None, *, anywhere: bool) -> Plan:
    """A new run; that its folder can be made is seen before the data is read, where it was named."""
    named: Path | None = asked.value("out")
    if named is not None and not anywhere:
        check_place(named)
    made = plan(asked, scratch)
    if not anywhere:
        check_place(out_of(made.recipe))
    return made


def check_place(folder: Path) -> None:
    """Refuses a folder that holds something, or that cannot be made."""
    if (folder / RECIPE).is_file():
        raise UserError(f"{folder} holds a run already", do="go on with it by --resume, or name another --out")
    nearest = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not nearest.is_dir():
        raise UserError(f"--out {folder}: {nearest} is not a folder", do="name another --out")
    # what a crash left that came before the recipe is nobody's
    if nearest == folder and any(found.name != DATA and found.suffix != ".part" for found in folder.iterdir()):
        raise UserError(f"{folder} is there already and not empty", do="name another --out")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "no right to write there", str(nearest))


def begin(made: Plan) -> None:
    """Makes the folder of a run: what its data was and, last, its recipe."""
    folder = out_of(made.recipe)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / DATA, facts(made))
    write_text(folder / RECIPE, to_yaml(made.recipe))


def run(made: Plan, *, resume: bool) -> int:
    """Trains, and leaves the folder of a model, or of a run that can be resumed."""
    folder = out_of(made.recipe)
    again = going_on(folder)
    with alone(folder), Interruption() as interruption:
        try:
            end = trained(made, interruption, resume=resume)
        except OSError as error:
            error.add_note(f"nothing is lost: when that is mended, go on with {again}")
            raise
        except RuntimeError as error:
            if "DataLoader worker" not in str(error):
                raise
            said = "a process that prepared batches was ended, perhaps for want of memory"
            raise UserError(said, do=f"go on with {again} --train.workers 0") from error
    if end.signal is not None:
        print(f"\ninterrupted at step {end.step}, and saved; go on with\n\n  {again}")
        return 128 + end.signal
    print(told_end(made, end))
    return 0


@contextmanager
def alone(folder: Path) -> Generator[None]:
    """Keeps other processes from going on with the same run.

    The lock is this process's own, so workers that outlive it for a moment do not keep it.  It would be lost if the
    file were closed anywhere else: `data.json` is not read any more by now.
    """
    with (folder / DATA).open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise UserError(f"another process is training in {folder}", do="wait until it ends") from None
        yield


def trained(made: Plan, interruption: Interruption, *, resume: bool) -> End:
    """The run itself, and the model where it came to its end."""
    recipe, folder = made.recipe, out_of(made.recipe)
    journal, learner, examiner = Journal(folder), learner_of(made), examiner_of(made)
    store = Store(folder / CHECKPOINTS, keep=recipe.train.keep)
    with progress_to(sys.stdout, pace_of(recipe).steps, journal, made.prepared.unit) as watcher:
        training = Run(learner, batches_of(made), pace_of(recipe), store, journal, watcher, examiner)
        for sentence in training.resume() if resume else ():
            watcher.said(sentence)
        end = training.run(interruption)
    if end.signal is None:
        loaded_of(made, learner.model).save(folder)
        finish_folder(made, end, journal, learner.model, examiner)
        journal.end(end.step)
    return end


def out_of(recipe: Recipe) -> Path:
    assert recipe.out is not None
    return recipe.out
