"""Training from Python: `headway.train(data, …)` does what the command does, and `headway.batches` gives its parts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any

from torch import nn

from headway.data.records import is_paths
from headway.distributed.world import joined
from headway.errors import UserError
from headway.loading import load
from headway.model import Model
from headway.recipe import SETTINGS, canonical
from headway.tasks.base import Task, task_class
from headway.tasks.registry import TASKS
from headway.training.build import batches_of, require
from headway.training.calibration import timed
from headway.training.cross_validation import train as run_training
from headway.training.plan import OwnParts, Plan, plan
from headway.training.recipe_sources import RecipeLayers, read_layers
from headway.training.run import finished_in
from headway.training.setting_origins import PythonArgument, setting_called
from headway.zoo.presets import PRESETS

Data = str | Path | Iterable[Any] | None


def train(
    data: Data = None,
    *,
    task: str | type[Task] | None = None,
    model: object | None = None,
    resume: bool = False,
    callbacks: Sequence[object] = (),
    quiet: bool = False,
    config: str | Path | None = None,
    **settings: Any,
) -> Model:
    """Trains a model as `headway train` does, with the same defaults, and returns it.

    `data` is a path, several, or an iterable of records (`Record`s or tuples of texts); parallel files are the settings
    `source` and `target`.  `task` is a name, such as "seq2seq" or "translation", or a `Task` class of your own.
    `model` is a preset, the folder of a model to fine-tune, a Config of headway.zoo, or your own `nn.Module`, whose
    weights are then the trained ones.  `config` is a recipe file.

    Settings have the names of a recipe, with their section (`**{"train.steps": 100}`) or without it (`steps=100`); any
    other name is a size of the model (`layers=4`).  The folder of the run is `out`; with `resume` the run in it goes
    on, given the same data, task and model again.  A script that torchrun starts trains in all of its processes, and
    in each of them the model is returned.  Each of `callbacks` has one or more of the methods of `Callback`.
    """
    layers, own = requested(data, task, model, config, settings)
    folder = finished_in(layers) if resume else None
    if folder is None:
        with open(os.devnull, "w", encoding="utf-8") as nowhere, joined() as world:
            out = nowhere if quiet else None
            made, end = run_training(layers, resume=resume, own=own, callbacks=callbacks, out=out, world=world)
        if end.signal is not None:
            raise KeyboardInterrupt(f"interrupted at step {end.step}, and saved in {made.out}; go on with resume=True")
        folder = made.out
    return load(folder, task=own.task, module=own.module)


@dataclass(frozen=True, eq=False)
class TrainingBatches:
    """The batches of a run in their order, one after the other; `model` has its first weights.

    for batch in batches:
        loss = batches.task.loss(batches.model.model, batch) / batch.targets
    """

    plan: Plan
    model: Model

    @property
    def task(self) -> Task:
        return self.plan.task

    def __len__(self) -> int:
        train = self.plan.recipe.train
        return require(train.steps) * train.grad_accumulation

    def __iter__(self) -> Iterator[Any]:
        for step in batches_of(self.plan)(1, require(self.plan.recipe.train.steps) + 1):
            yield from step


def batches(
    data: Data = None,
    *,
    task: str | type[Task] | None = None,
    model: object | None = None,
    config: str | Path | None = None,
    **settings: Any,
) -> TrainingBatches:
    """What `train` with the same arguments would learn from, for a training loop of your own; no folder is written."""
    layers, own = requested(data, task, model, config, settings)
    made = plan(layers, own=own)
    made = made if made.recipe.train.steps else timed(made)[0]
    return TrainingBatches(made, made.as_model(made.build()))


def requested(
    data: Data,
    task: str | type[Task] | None,
    model: object | None,
    config: str | Path | None,
    settings: Mapping[str, Any],
) -> tuple[RecipeLayers, OwnParts]:
    """The arguments of a call as layers of a recipe, and what no recipe can hold."""
    given: list[tuple[str, Any]] = [(setting_name(word), value) for word, value in settings.items()]
    records: list[Any] | None = None
    if isinstance(data, str | Path):
        given.append(("data.path", (str(data),)))
    elif data is not None and is_paths(data):
        given.append(("data.path", tuple(map(str, data))))
    elif data is not None:
        records = list(data)
    own_task = task_class(task) if isinstance(task, str) and task in TASKS else task
    if isinstance(own_task, str):
        given.append(("data.task", own_task))
        own_task = None
    module = model if isinstance(model, nn.Module) else None
    if isinstance(model, str | Path):
        folder = str(model) not in PRESETS and Path(model).is_dir()
        given.append(("model.from" if folder else "model.preset", str(model)))
    elif model is not None and module is None and not is_dataclass(model):
        allowed = "a preset, a model folder, a Config of headway.zoo, or an nn.Module"
        raise UserError(f"model={model!r:.60}", allowed=allowed)
    zoo_config = model if is_dataclass(model) and module is None else None
    names = [name for name, _ in given]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"{twice[0]} is given twice", do="give it once")
    layers = read_layers(dict(given), Path(config) if config else None, origin=PythonArgument())
    return layers, OwnParts(own_task, records, zoo_config, module)


def setting_name(word: str) -> str:
    """The dotted name of a setting that may lack its section; any other word is a size of the model."""
    if "." in word or canonical(word) in SETTINGS:
        return word
    attributes = {one.attribute: name for name, one in SETTINGS.items()}  # `from` is a keyword of Python
    return setting_called(word) or attributes.get(word) or f"model.{word}"
