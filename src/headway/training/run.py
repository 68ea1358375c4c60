"""A training run: a plan, described before it begins; the run; and a folder that explains itself.

A run's folder holds `recipe.yaml` (every choice), `data.json` (what the data was), `checkpoints/`, `metrics.jsonl` and
`times.jsonl`; in the end also the model, its card and `report.html`.  Whatever ends a run early, resuming goes on with
it (resume.py).
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TextIO

import torch

from headway.errors import UserError
from headway.files import CHECKPOINTS, going_on, write_json, write_text
from headway.training.build import batches_of, evaluator_of, learner_of, pace_of
from headway.training.calibrate import timed
from headway.training.loop import CallbackList, Run, RunResult
from headway.training.malloc import keep_memory
from headway.training.messages import describe_end, describe_plan
from headway.training.metrics_log import MetricsLog
from headway.training.plan import NO_PARTS, OwnParts, Plan, plan
from headway.training.progress import progress_to
from headway.training.recipe_sources import RecipeLayers, to_yaml
from headway.training.report_page import write_report
from headway.training.resume import DATA, RECIPE, facts, run_in, taken_up
from headway.training.signals import Interruption
from headway.training.store import Store


def train(
    asked: RecipeLayers,
    *,
    resume: bool = False,
    own: OwnParts = NO_PARTS,
    callbacks: Sequence[object] = (),
    out: TextIO | None = None,
) -> tuple[Plan, RunResult]:
    """Plans, runs and writes the folder, and describes all of it on `out` (standard output)."""
    out = out or sys.stdout
    made = prepared(asked, resume=resume, own=own)
    if not resume:
        made, timing = timed(made)
        print(describe_plan(made, timing), file=out)
        begin(made)
    end = run(made, resume=resume, callbacks=callbacks, out=out)
    print(describe_end(made, end), file=out)
    return made, end


def finished_in(asked: RecipeLayers) -> Path | None:
    """The folder of the run that is to be resumed, where it has come to its end."""
    folder = run_in(asked)
    return folder if MetricsLog(folder).is_finished() else None


def dry_run(asked: RecipeLayers, *, resume: bool = False) -> str:
    """What a run would do; nothing is written."""
    with TemporaryDirectory(prefix="headway-") as scratch:
        made, timing = timed(prepared(asked, Path(scratch), resume=resume))
        return f"{describe_plan(made, timing)}\n\nnothing was written: this was a dry run"


def resolved_yaml(asked: RecipeLayers, *, resume: bool = False) -> str:
    """The recipe of a run with every choice made."""
    made = prepared(asked, resume=resume, anywhere=True)
    return to_yaml(made.recipe if made.recipe.train.steps else timed(made)[0].recipe)


def prepared(
    asked: RecipeLayers,
    scratch: Path | None = None,
    *,
    resume: bool = False,
    anywhere: bool = False,
    own: OwnParts = NO_PARTS,
) -> Plan:
    """The plan of a run, new or resumed; a new folder is checked, before the data is read if it was named."""
    keep_memory()
    named: Path | None = asked.value("out")
    if named is not None and not anywhere and not resume:
        check_place(named)
    made = taken_up(asked, scratch, own) if resume else plan(asked, scratch, own)
    if not anywhere and not resume:
        check_place(made.out)
    torch.set_num_threads(made.recipe.train.threads or 1)
    return made


def check_place(folder: Path) -> None:
    """Refuses a folder that holds something, or that cannot be made."""
    if (folder / RECIPE).is_file():
        raise UserError(f"{folder} holds a run already", do="go on with it by resume=, or name another out=")
    nearest = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not nearest.is_dir():
        raise UserError(f"out= {folder}: {nearest} is not a folder", do="name another out=")
    # what a crash left that came before the recipe is nobody's
    if nearest == folder and any(found.name != DATA and found.suffix != ".part" for found in folder.iterdir()):
        raise UserError(f"{folder} is there already and not empty", do="name another out=")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "no right to write there", str(nearest))


def begin(made: Plan) -> None:
    """Makes the folder of a run: what its data was and, last, its recipe."""
    folder = made.out
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / DATA, facts(made))
    write_text(folder / RECIPE, to_yaml(made.recipe))


def run(made: Plan, *, resume: bool, callbacks: Sequence[object] = (), out: TextIO | None = None) -> RunResult:
    """Trains, and leaves the folder of a model, or of a run that can be resumed."""
    folder = made.out
    again = going_on(folder)
    with alone(folder), Interruption() as interruption:
        try:
            return trained(made, interruption, resume=resume, callbacks=callbacks, out=out or sys.stdout)
        except OSError as error:
            error.add_note(f"nothing is lost: when that is mended, go on with {again}")
            raise
        except RuntimeError as error:
            if "DataLoader worker" not in str(error):
                raise
            said = "a process that prepared batches was ended, perhaps for want of memory"
            raise UserError(said, do=f"go on with {again} --train.workers 0") from error


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


def trained(
    made: Plan, interruption: Interruption, *, resume: bool, callbacks: Sequence[object], out: TextIO
) -> RunResult:
    """The run itself, and the model where it came to its end."""
    recipe, folder = made.recipe, made.out
    journal, learner, evaluator = MetricsLog(folder), learner_of(made), evaluator_of(made)
    store = Store(folder / CHECKPOINTS, keep=recipe.train.keep_last)
    with progress_to(out, pace_of(recipe).steps, journal, made.encoded.unit) as progress:
        watcher = CallbackList((progress, *callbacks))
        training = Run(learner, batches_of(made), pace_of(recipe), store, journal, watcher, evaluator)
        for sentence in training.resume() if resume else ():
            watcher.on_message(sentence)
        end = training.run(interruption)
    if end.signal is None:
        made.as_model(learner.model).save(folder)
        write_report(made, end, journal, learner.model)
        journal.mark_finished(end.step)
    return end
