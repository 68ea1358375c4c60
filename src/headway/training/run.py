"""A training run: a plan, described before it begins; the run; and a folder that explains itself.

A run's folder holds `recipe.yaml` (every choice), `data.json` (hashes of the data), `checkpoints/`, `metrics.jsonl` and
`times.jsonl`; in the end also the model, its card and `report.html`.

Whatever ended a run early, resuming continues it as its own recipe says, on the data that it began with
(`resuming.py`).  Where several processes train (`processes.py`), process 0 alone writes, prints and evaluates.

The weights that were chosen are evaluated once, at the end: console, report, model card and `scores.json` show these
numbers.  Test data is scored there too, by the same means, and at no other time.  Simple methods (`Task.baselines`)
learn from the training records alone and are scored on the same records.
"""

from __future__ import annotations

import errno
import fcntl
import json
import math
import sys
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TextIO

from torch import nn

from headway.adapters import save_adapter
from headway.console import fitted, phase, progress_on
from headway.data.checks import leaks
from headway.data.records import Record
from headway.data.splits import DataSplits
from headway.distributed.sharing import sharing
from headway.distributed.world import ALONE, World
from headway.errors import UserError, going_on, malformed
from headway.nn.trunk import tensors_of
from headway.recipe import flat, from_flat
from headway.system import CHECKPOINTS, keep_memory, memory_errors, write_json, write_text
from headway.tasks.results import BaselineData, EvalResult
from headway.training.build import (
    StepTiming,
    batches_of,
    counted_error_of,
    describe_choices,
    describe_timing,
    evaluator_of,
    learner_of,
    limits_of,
    schedule_of,
)
from headway.training.calibration import TimeBudget, timed, with_dtype
from headway.training.defaults import config_dim
from headway.training.interruption import Interruption
from headway.training.loop import Recount, Run, RunLimits, RunResult
from headway.training.metrics_log import MetricsLog, progress_to
from headway.training.optimiser import Schedule
from headway.training.plan import NO_PARTS, OwnParts, Plan, plan
from headway.training.processes import check_asked, followed, in_world, lead
from headway.training.recipe_sources import (
    DATA,
    RECIPE,
    RecipeLayers,
    begun_with,
    check_place,
    folds_to_resume,
    resolve,
    run_to_resume,
    to_yaml,
)
from headway.training.report_page import write_report
from headway.training.resuming import check_same, data_hashes, resumed_plan
from headway.training.run_summary import describe_end
from headway.training.store import Store

LESS_MEMORY = "give a smaller train.batch, a smaller data.max_length or a smaller model.preset"
FINAL_ANSWERS = 1000  # held-out records that are answered at the end, at least
ALL_ANSWERS = sys.maxsize  # of the test data
BASELINE_RECORDS = 10_000  # of training, that simple methods learn from


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
    """Plans, runs and writes the folder, and describes all of it on `out` (standard output) as soon as it is known.

    `splits` are the data of a new run, where they have been read and described already.  All processes of a `world`
    call it alike.
    """
    stream = out or sys.stdout
    with progress_on(stream), memory_errors(LESS_MEMORY):
        if world.size > 1:
            check_asked(layers, world)
        budget, new = None, False
        if not world.first:
            made, resume = followed(own, world)
        elif resume := resume and run_to_resume(layers) is not None:
            made = prepared(layers, resume=True, own=own, world=world)
        else:
            asked, made, timing = described(layers, stream, own=own, splits=splits, world=world)
            budget, new = TimeBudget.of(asked, made, timing), True
        if world.size > 1:
            lead(made, world, resume=resume)
        if new:  # only now: nothing is left of a run that a process has refused
            begin(made, budget)
        made, end = run(made, resume=resume, callbacks=callbacks if world.first else (), out=stream, world=world)
        if world.first:
            print(fitted(describe_end(made, end), stream), file=stream)
        world.totals()  # all of them leave when the model is there
    return made, end


def described(
    layers: RecipeLayers,
    out: TextIO,
    scratch: Path | None = None,
    *,
    resume: bool = False,
    own: OwnParts = NO_PARTS,
    splits: DataSplits | None = None,
    world: World = ALONE,
) -> tuple[Plan, Plan, StepTiming]:
    """The plan of a run as asked, the same with its steps, and what was timed; facts are printed as they are known."""

    def say(lines: Iterable[str]) -> None:
        print(fitted("\n".join(lines), out), file=out, flush=True)

    asked = prepared(layers, scratch, resume=resume, own=own, splits=splits, world=world)
    if splits is None:
        say([asked.splits.description])
    say(describe_choices(asked))
    # records that are read for it say nothing of how far it is
    with phase("timing steps and an evaluation", "steps", moving=not asked.recipe.train.workers):
        made, timing = timed(asked)
    say(describe_timing(made, timing))
    return asked, made, timing


def finished_in(layers: RecipeLayers) -> Path | None:
    """The folder of the run that is to be resumed, where it has come to its end."""
    folder = run_to_resume(layers)
    if folder is None:
        return None
    check_same(layers, resolve(begun_with((folds_to_resume(layers) or folder) / RECIPE)), folder)
    return folder if MetricsLog(folder).is_finished() else None


def dry_run(layers: RecipeLayers, *, resume: bool = False, splits: DataSplits | None = None) -> None:
    """Prints what a run would do; nothing is written."""
    with TemporaryDirectory(prefix="headway-") as scratch, progress_on(sys.stdout):
        described(layers, sys.stdout, Path(scratch), resume=resume, splits=splits)
    print("\nnothing was written: this was a dry run")


def resolved_yaml(layers: RecipeLayers, *, resume: bool = False, splits: DataSplits | None = None) -> str:
    """The recipe of a run with every choice made."""
    made = prepared(layers, resume=resume, anywhere=True, splits=splits)
    made, _ = with_dtype(made) if made.recipe.train.steps else timed(made)
    return to_yaml(made.recipe)


def prepared(
    layers: RecipeLayers,
    scratch: Path | None = None,
    *,
    resume: bool = False,
    anywhere: bool = False,
    own: OwnParts = NO_PARTS,
    splits: DataSplits | None = None,
    world: World = ALONE,
) -> Plan:
    """The plan of a run, new or resumed; a new folder is checked, before the data is read if it was named."""
    keep_memory()
    named: Path | None = layers.value("out")
    if named is not None and not anywhere and not resume:
        check_place(named)
    made = resumed_plan(layers, scratch, own) if resume else plan(layers, scratch, own, splits)
    if not anywhere and not resume:
        check_place(made.out)
    return in_world(made, world)


def begin(made: Plan, budget: TimeBudget | None = None) -> None:
    """Makes the folder of a run: what its data was, its recipe and, last, the time that it was given."""
    folder = made.out
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / DATA, data_hashes(made))
    write_text(folder / RECIPE, to_yaml(made.recipe))
    if budget is not None:
        MetricsLog(folder).append_time(budget=asdict(budget))


def run(
    made: Plan,
    *,
    resume: bool,
    callbacks: Sequence[object] = (),
    out: TextIO | None = None,
    world: World = ALONE,
) -> tuple[Plan, RunResult]:
    """Trains, and leaves the folder of a model, or of a run that can be resumed."""
    again = going_on(made.out)
    world.advise(f"nothing is lost up to the last checkpoint: go on with {again}")
    with lock_folder(made.out) if world.first else nullcontext(), Interruption() as interruption:
        try:
            return trained(made, interruption, resume=resume, callbacks=callbacks, out=out or sys.stdout, world=world)
        except OSError as error:
            error.add_note(f"nothing is lost: when that is mended, go on with {again}")
            raise
        except RuntimeError as error:
            if "DataLoader worker" not in str(error):
                raise
            said = "a process that prepared batches was ended, perhaps for want of memory"
            raise UserError(said, do=f"go on with {again} --train.workers 0") from error


@contextmanager
def lock_folder(folder: Path) -> Generator[None]:
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
    made: Plan, interruption: Interruption, *, resume: bool, callbacks: Sequence[object], out: TextIO, world: World
) -> tuple[Plan, RunResult]:
    """The run itself, with the plan that it followed in the end, and the model where it came to its end."""
    folder, log, learner, limits = made.out, MetricsLog(made.out), learner_of(made, world), limits_of(made.recipe)
    store = Store(folder / CHECKPOINTS, keep=made.recipe.train.keep_last)
    length = RunLength(made, log, world)
    with progress_to(out, limits.steps, log, made.encoded.unit) if world.first else nullcontext() as progress:
        callbacks = () if progress is None else (progress, *callbacks)
        evaluators = evaluator_of(made), evaluator_of(made, FINAL_ANSWERS)
        parts, error = (learner, batches_of(made), limits, store, log, callbacks), counted_error_of(made)
        training = Run(*parts, *evaluators, recount=length.recount(), counted_error=error, world=world)
        for sentence in training.resume() if resume else ():
            training.notify("on_message", sentence)
        end = training.run(interruption)
    made, model = length.made, learner.whole_model
    if end.signal is not None:
        return made, end
    final = final_model(made, end, model)
    end = tested(made, end, final, world)
    if world.first:
        with phase("comparing with simple methods", moving=True):
            known = made.estimate
            end = replace(end, found=with_baselines(made, end.found, model) if known is None else known.result)
        with phase("writing the model and its report", moving=True):
            write_report(made, end, log, model)
            save_model(made, final)
        log.mark_finished(end.step)
    return made, end


def final_model(made: Plan, end: RunResult, model: nn.Module) -> nn.Module:
    """The model as it is saved: where counted weights were kept, counted anew with what was held out."""
    if not (end.counted and made.counts_all):
        return model
    final = deepcopy(model)
    made.count_all(final)
    return final


def tested(made: Plan, end: RunResult, model: nn.Module, world: World) -> RunResult:
    """The end of a run with the scores of the final weights on the test data, where there is any."""
    if not made.encoded.test:
        return end
    on_test = made.on_test
    with phase("scoring the test data", moving=True):
        found = scored(on_test, model, world)
    if not world.first:
        return end
    splits, held = made.splits, on_test.splits.validation
    count = leaks(held(), chain(splits.train(), splits.validation()))
    return replace(end, test=found, leaks=count)


def scored(made: Plan, model: nn.Module, world: World = ALONE) -> EvalResult:
    """The evaluation of a trained model on all that its plan holds out, with simple methods in process 0."""
    evaluator = evaluator_of(made, ALL_ANSWERS)
    assert evaluator is not None
    with sharing(world):
        found = evaluator(model.eval())
    return found if not world.first else with_baselines(made, found, model, ALL_ANSWERS) or found


def save_model(made: Plan, model: nn.Module) -> None:
    """Writes the model of a run, or with LoRA what it has learned beside the weights that it began with."""
    found, base, start, part = made.as_model(model), made.recipe.model.start, made.start, made.part
    if made.recipe.model.lora is None or base is None or start is None or part is None:
        found.save(made.out)
    else:
        save_adapter(found, made.out, base, tensors_of(start.model), part.prefix)


@dataclass
class RunLength:
    """The number of steps of a run, in its plan and its folder, until and after it is counted anew."""

    made: Plan
    log: MetricsLog
    world: World = ALONE

    def recount(self) -> Recount | None:
        """When that is to be done, if it still is."""
        with malformed(str(self.log.times)):
            budget = TimeBudget.latest(self.log.time_lines()) if self.world.first else None
        told = json.loads(self.world.told(json.dumps(None if budget is None else asdict(budget))))
        return None if told is None else Recount(told["step"], partial(self.decide, TimeBudget(**told)))

    def decide(self, budget: TimeBudget, seconds: Sequence[float]) -> tuple[RunLimits, Schedule]:
        """The new length, by the clock of process 0."""
        before = flat(self.made.recipe)
        found = flat(budget.recounted(self.made.recipe, seconds)) if self.world.first else before
        changed = {name: value for name, value in found.items() if value != before[name]}
        if changed := json.loads(self.world.told(json.dumps(changed))):
            self.made = replace(self.made, recipe=from_flat({**before, **changed}))
            if self.world.first:
                write_text(self.made.out / RECIPE, to_yaml(self.made.recipe))
        recipe = self.made.recipe
        if self.world.first:
            self.log.append_time(step=budget.step, budget=None, steps=recipe.train.steps)
        return limits_of(recipe), schedule_of(recipe, config_dim(self.made.config))


def with_baselines(
    made: Plan, found: EvalResult | None, model: nn.Module, answers: int = FINAL_ANSWERS
) -> EvalResult | None:
    """An evaluation with the scores of simple methods on the records that it is of."""
    if found is None or not math.isfinite(found.score):
        return found
    task, splits = made.task.without_augmentation(), made.splits
    held, train = list[Record](), list[Record]()
    if task.validation_records:
        held = splits.some_validation(max(task.validation_records, answers))
        # dates are in no order, and some of them are soon made
        train = list(islice(splits.train(), BASELINE_RECORDS)) if splits.builtin else splits.some(BASELINE_RECORDS)
    data = BaselineData(train, epoch(made), held, made.encoded.validation)
    return replace(found, baselines=tuple(task.baselines(model.eval(), data, found)))


def epoch(made: Plan) -> Iterator[Any]:
    """The batches of training, about as many as an epoch has."""
    batch = made.recipe.train.batch or 1
    batches = made.encoded.batches(batch, 1)
    for step in range(1, 1 + max(1, made.encoded.tokens // batch)):
        yield from batches[step]
