"""The parts of a run, as its recipe names them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

from torch import nn

from headway.app.training.plan import Plan, config_dim
from headway.app.training.reuse import OUT
from headway.checkpoint import Loaded
from headway.tasks.task import Remembering
from headway.train.average import Average
from headway.train.groups import ENCODER, freeze, groups, leave
from headway.train.learner import Learner
from headway.train.loop import Pace
from headway.train.optimiser import Adafactor, Adam, AdamW, Choice, Muon, Optimiser
from headway.train.recipe import Recipe
from headway.train.schedule import WSD, Constant, Cosine, InverseRoot, Paper, Schedule

T = TypeVar("T")


def learner_of(made: Plan) -> Learner:
    """The model with all that changes it."""
    recipe, model = made.recipe, made.build()
    train = recipe.train
    if recipe.model.freeze is not None:
        freeze(model, recipe.model.freeze)
        if recipe.model.freeze == (ENCODER,) and (found := made.taken(model)):
            leave(model, [name for name in found.tensors if not name.startswith(OUT)])  # a norm that the head took over
    average = Average(model, train.ema) if train.ema else None
    task = made.ready.task
    memory = task.memory(model) if isinstance(task, Remembering) else None
    return Learner(
        model,
        task.loss_after if isinstance(task, Remembering) and memory is not None else task.loss,
        optimiser_of(recipe, model),
        schedule_of(recipe, config_dim(made.config)),
        seed=recipe.seed,
        most=train.clip,
        average=average,
        memory=memory,
    )


def optimiser_of(recipe: Recipe, model: nn.Module) -> Optimiser:
    train = recipe.train
    rate = 1.0 if train.schedule == "paper" else some(train.rate)
    kinds: dict[str, Choice] = {
        "adamw": AdamW(rate, train.betas, train.eps, train.weight_decay),
        "adam": Adam(rate, train.betas, train.eps),
        "adafactor": Adafactor(rate, train.weight_decay),
        "muon": Muon(rate, betas=train.betas, eps=train.eps, decay=train.weight_decay),
    }
    return Optimiser(kinds[train.optimiser], groups(model, layer_decay=recipe.model.layer_decay))


def schedule_of(recipe: Recipe, dim: int) -> Schedule:
    train = recipe.train
    warmup, steps = some(train.warmup), some(train.steps)
    kinds: dict[str, Schedule] = {
        "cosine": Cosine(warmup, steps, train.floor),
        "inverse": InverseRoot(warmup),
        "paper": Paper(dim, warmup),
        "wsd": WSD(warmup, steps, floor=train.floor),
        "constant": Constant(warmup),
    }
    return kinds[train.schedule]


def batches_of(made: Plan) -> Callable[[int, int], Iterator[list[Any]]]:
    train = made.recipe.train
    return partial(made.prepared.batches(some(train.batch), train.accumulate).between, workers=train.workers)


def pace_of(recipe: Recipe) -> Pace:
    train = recipe.train
    every = (some(train.log_every), some(train.evaluate_every), some(train.checkpoint_every))
    return Pace(some(train.steps), *every, train.patience, train.best, train.average)


def loaded_of(made: Plan, model: nn.Module) -> Loaded:
    writer = None if made.ready.writer is made.ready.reader else made.ready.writer
    start = made.start
    kept = {**(start.kept if start else {}), **made.ready.task.kept()}
    kind = start.model_type if start and start.architecture == made.architecture else None
    return Loaded(
        model, made.config, made.architecture, kind, kept, made.ready.reader, writer, preprocess=made.ready.preprocess
    )


def some(value: T | None) -> T:
    """A choice that was made."""
    assert value is not None
    return value
