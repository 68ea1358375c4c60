"""A training run: a plan, described before it begins; the run; and a folder that explains itself.

A run's folder holds `recipe.yaml` (every choice), `data.json` (hashes of the data), `checkpoints/`, `metrics.jsonl` and
`times.jsonl`; in the end also the model, its card and `report.html`.

Whatever ended a run early, resuming continues it as its own recipe says, on the data that it began with.  A setting
that is given again must be what it was.  Only what changes no number may differ: paths, where the folder or the files
were moved, the number of processes that prepare batches, and whether activations are recomputed.

Several processes (`distributed/world.py`) make the same plan: process 0 makes the choices and tells the others its
recipe; each reads its own copy of the data, and hashes of it and the recipes are compared.  Process 0 alone writes,
prints and evaluates.  The number of processes is not part of the recipe: a run may be resumed by more or fewer of them.

The weights that were chosen are evaluated once, at the end: console, report, model card and `scores.json` show these
numbers.  Simple methods (`Task.baselines`) learn from the training records alone and are scored on the same records.
"""

from __future__ import annotations

import errno
import fcntl
import json
import math
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TextIO

import torch
from torch import nn

from headway import __version__
from headway.console import fitted, phase, progress_on
from headway.data.records import Record, is_builtin
from headway.data.shards import digest
from headway.data.splits import DataSplits
from headway.distributed.world import ALONE, World
from headway.errors import UserError, going_on, malformed
from headway.recipe import Recipe, flat, from_flat
from headway.system import CHECKPOINTS, keep_memory, memory_errors, read_json, usable_cores, write_json, write_text
from headway.tasks.results import BaselineData
from headway.training.build import (
    StepTiming,
    batches_of,
    describe_choices,
    describe_end,
    describe_timing,
    evaluator_of,
    learner_of,
    limits_of,
    schedule_of,
    share_of,
)
from headway.training.calibration import TimeBudget, timed, with_dtype
from headway.training.defaults import config_dim
from headway.training.loop import Interruption, Recount, Run, RunLimits, RunResult
from headway.training.metrics_log import MetricsLog, progress_to
from headway.training.optimiser import Schedule
from headway.training.plan import NO_PARTS, OwnParts, Plan, plan, steps_of, tokenizer_texts
from headway.training.recipe_sources import (
    DATA,
    RECIPE,
    RecipeLayers,
    begun_with,
    check_place,
    resolve,
    run_to_resume,
    to_yaml,
)
from headway.training.report_page import write_report
from headway.training.setting_origins import CommandLineOption
from headway.training.store import Store

FILES = ("data.path", "data.source", "data.target", "data.validation")
FREE = (*FILES, "train.workers", "train.recompute")
COUNTED = ("train.epochs", "train.minutes")  # a run of so many of these was made into steps
MODEL = ("*.json", "*.safetensors", "*.txt", "*.model")  # in a folder with a model or a tokenizer
FINAL_ANSWERS = 1000  # held-out records that are answered at the end, at least
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
    do = "give a smaller train.batch, a smaller data.max_length or a smaller model.preset"
    with progress_on(stream), memory_errors(do):
        if not world.first:
            made, resume = followed(own, world)
        elif resume := resume and run_to_resume(layers) is not None:
            made = prepared(layers, resume=True, own=own, world=world)
        else:
            asked, made, timing = described(layers, stream, own=own, splits=splits, world=world)
            begin(made, TimeBudget.of(asked, made, timing))
        if world.size > 1:
            lead(made, world, resume=resume)
        made, end = run(made, resume=resume, callbacks=callbacks if world.first else (), out=stream, world=world)
        if world.first:
            print(fitted(describe_end(made, end), stream), file=stream)
    return made, end


def followed(own: OwnParts, world: World) -> tuple[Plan, bool]:
    """The plan of process 0 with this process's own copy of the data, and whether the run is resumed."""
    told = json.loads(world.told())
    keep_memory()
    with TemporaryDirectory(prefix="headway-") as scratch:
        file = Path(scratch) / RECIPE
        file.write_text(told["recipe"], encoding="utf-8")
        made = plan(begun_with(file), own=own)
    return in_world(made, world), told["resume"]


def lead(made: Plan, world: World, *, resume: bool) -> None:
    """Tells the others the recipe, where process 0 calls it; all compare what their plans were made of."""
    recipe = to_yaml(made.recipe)
    if world.first:
        world.told(json.dumps({"recipe": recipe, "resume": resume}))
    hashes = data_hashes(made)
    world.check_same({
        "the version of headway": __version__,
        "the recipe": recipe,
        "the data": digest((), *hashes["files"].values(), hashes["records"]),
        "the tokenizer": hashes["words"],
    })  # fmt: skip


def in_world(made: Plan, world: World) -> Plan:
    """The plan with what this process computes of it, and its threads, of which it has no more than its part."""
    threads = made.recipe.train.threads or 1
    torch.set_num_threads(threads if world.size == 1 else min(threads, max(1, usable_cores() // world.local_size)))
    return replace(made, share=share_of(made, world))


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
    check_same(layers, resolve(begun_with(folder / RECIPE)), folder)
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
    world.advice = f"nothing is lost since the last checkpoint: go on with {again}"
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
        parts, counted = (learner, batches_of(made), limits, store, log, callbacks), made.counting_task() is not None
        training = Run(*parts, *evaluators, recount=length.recount(), counted=counted, world=world)
        for sentence in training.resume() if resume else ():
            training.notify("on_message", sentence)
        end = training.run(interruption)
    made = length.made
    if end.signal is None and world.first:
        with phase("comparing with simple methods", moving=True):
            end = with_baselines(made, end, learner.model)
        with phase("writing the model and its report", moving=True):
            made.as_model(learner.model).save(folder)
            write_report(made, end, log, learner.model)
        log.mark_finished(end.step)
    return made, end


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


# ---- resuming


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


def data_hashes(made: Plan) -> dict[str, Any]:
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


def with_baselines(made: Plan, end: RunResult, model: nn.Module) -> RunResult:
    """The end of a run with the scores of simple methods on the records that its model was evaluated on."""
    if end.found is None or not math.isfinite(end.found.score):
        return end
    task, splits = made.task.without_augmentation(), made.splits
    held, train = list[Record](), list[Record]()
    if task.validation_records:
        held = splits.some_validation(max(task.validation_records, FINAL_ANSWERS))
        # dates are in no order, and some of them are soon made
        train = list(islice(splits.train(), BASELINE_RECORDS)) if splits.builtin else splits.some(BASELINE_RECORDS)
    data = BaselineData(train, epoch(made), held, made.encoded.validation)
    found = tuple(task.baselines(model.eval(), data, end.found))
    return replace(end, found=replace(end.found, baselines=found))


def epoch(made: Plan) -> Iterator[Any]:
    """The batches of training, about as many as an epoch has."""
    batch = made.recipe.train.batch or 1
    batches = made.encoded.batches(batch, 1)
    for step in range(1, 1 + max(1, made.encoded.tokens // batch)):
        yield from batches[step]
