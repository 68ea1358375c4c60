"""The parts of a run, as its recipe names them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

from torch import nn

from headway.recipe import Recipe
from headway.tasks.base import StatefulLoss
from headway.tasks.results import EvalResult
from headway.tasks.validation import ValidatedByAnswers
from headway.training.ema import EMA
from headway.training.fine_tuning import OUT
from headway.training.groups import ENCODER, freeze, groups, leave
from headway.training.learner import Learner
from headway.training.loop import RunLimits
from headway.training.optimiser import Adafactor, Adam, AdamW, Muon, Optimiser, OptimiserChoice
from headway.training.plan import Plan, config_dim
from headway.training.schedule import WSD, Constant, CosineDecay, InverseSqrt, Noam, Schedule

T = TypeVar("T")


def learner_of(made: Plan) -> Learner:
    """The model with all that changes it."""
    recipe, model = made.recipe, made.build()
    train = recipe.train
    if recipe.model.freeze is not None:
        freeze(model, recipe.model.freeze)
        if recipe.model.freeze == (ENCODER,) and (found := made.reused(model)):
            leave(model, [name for name in found.tensors if not name.startswith(OUT)])  # a norm that the head took over
    average = EMA(model, train.ema_decay) if train.ema_decay else None
    task = made.task
    memory = task.memory(model) if isinstance(task, StatefulLoss) else None
    return Learner(
        model,
        task.loss_after if isinstance(task, StatefulLoss) and memory is not None else task.loss,
        optimiser_of(recipe, model),
        schedule_of(recipe, config_dim(made.config)),
        seed=recipe.seed,
        max_grad_norm=train.max_grad_norm,
        average=average,
        memory=memory,
    )


def optimiser_of(recipe: Recipe, model: nn.Module) -> Optimiser:
    train = recipe.train
    lr = 1.0 if train.schedule == "paper" else some(train.lr)
    kinds: dict[str, OptimiserChoice] = {
        "adamw": AdamW(lr, train.betas, train.eps, train.weight_decay),
        "adam": Adam(lr, train.betas, train.eps),
        "adafactor": Adafactor(lr, train.weight_decay),
        "muon": Muon(lr, betas=train.betas, eps=train.eps, weight_decay=train.weight_decay),
    }
    return Optimiser(kinds[train.optimiser], groups(model, layer_decay=recipe.model.layer_decay))


def schedule_of(recipe: Recipe, dim: int) -> Schedule:
    train = recipe.train
    warmup, steps = some(train.warmup_steps), some(train.steps)
    kinds: dict[str, Schedule] = {
        "cosine": CosineDecay(warmup, steps, train.min_lr_ratio),
        "inverse": InverseSqrt(warmup),
        "paper": Noam(dim, warmup),
        "wsd": WSD(warmup, steps, floor=train.min_lr_ratio),
        "constant": Constant(warmup),
    }
    return kinds[train.schedule]


def batches_of(made: Plan) -> Callable[[int, int], Iterator[list[Any]]]:
    train = made.recipe.train
    return partial(made.encoded.batches(some(train.batch), train.grad_accumulation).between, workers=train.workers)


def pace_of(recipe: Recipe) -> RunLimits:
    train = recipe.train
    every = (some(train.log_every), some(train.evaluate_every), some(train.checkpoint_every))
    return RunLimits(some(train.steps), *every, train.patience, train.keep_best, train.average)


def evaluator_of(made: Plan) -> Callable[[nn.Module], EvalResult] | None:
    """What scores the model as it trains, where something is held out."""
    task, batches = made.task, made.encoded.validation
    if not batches:
        return None
    count = task.validation_records if isinstance(task, ValidatedByAnswers) else 0
    records = made.splits.some_validation(count) if count else []
    return lambda model: task.validate(model, batches, records)


def some(value: T | None) -> T:
    """A choice that was made."""
    assert value is not None
    return value
