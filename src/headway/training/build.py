"""The parts of a run, as its resolved recipe names them, and what is said about it before it starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch import nn

from headway.distributed.world import ALONE, World
from headway.dtype import DTYPES, FP16, FP32, describe_device
from headway.errors import counted
from headway.nn.trunk import device_of
from headway.recipe import Recipe
from headway.system import gibibytes
from headway.tasks.batches import StatefulLoss
from headway.tasks.results import EvalResult
from headway.training.defaults import config_dim, weights_per_token
from headway.training.groups import ENCODER, OUT, describe_reuse, freeze, groups, leave
from headway.training.learner import EMA, Learner
from headway.training.loop import RunLimits
from headway.training.loss_scale import LossScale
from headway.training.optimiser import (
    WSD,
    Adafactor,
    Adam,
    AdamW,
    Constant,
    CosineDecay,
    InverseSqrt,
    Muon,
    Noam,
    Optimiser,
    OptimiserChoice,
    Schedule,
)
from headway.training.parallel import ProcessLayout, engine_of, layout_of
from headway.training.plan import Plan

T = TypeVar("T")

REPORT, CARD = "report.html", "README.md"
ENOUGH = 0.8  # a run that takes less of its minutes does so because its data is small


def learner_of(made: Plan, world: World = ALONE) -> Learner:
    """The model with all that changes it, in one of the processes of a world."""
    recipe, train, model = made.recipe, made.recipe.train, made.build()
    if recipe.model.freeze is not None:
        freeze(model, recipe.model.freeze)
        if recipe.model.freeze == (ENCODER,) and (found := made.reused(model)):
            leave(model, [name for name in found.tensors if not name.startswith(OUT)])  # a norm that the head took over
    task, average = made.task, EMA(model, train.ema_decay) if train.ema_decay else None
    memory = task.memory(model) if isinstance(task, StatefulLoss) else None
    loss = task.loss_after if isinstance(task, StatefulLoss) and memory is not None else task.loss
    if made.teacher is not None:
        made.teacher.model.model.to(device_of(model))
        loss = made.teacher.loss(task, recipe)
    engine = engine_of(layout_of(train, world.size), model, loss)
    return Learner(
        model,
        engine.loss,
        optimiser_of(recipe, model),
        schedule_of(recipe, config_dim(made.config)),
        seed=recipe.seed,
        max_grad_norm=train.max_grad_norm,
        average=average,
        memory=memory,
        dtype=getattr(torch, DTYPES[FP32 if train.dtype == "auto" else train.dtype]),
        loss_scale=LossScale() if train.dtype == FP16 else None,
        recompute=train.recompute or False,
        world=world,
        share=made.share,
        engine=engine,
    )


def optimiser_of(recipe: Recipe, model: nn.Module) -> Optimiser:
    train = recipe.train
    lr = 1.0 if train.schedule == "paper" else require(train.lr)
    kinds: dict[str, OptimiserChoice] = {
        "adamw": AdamW(lr, train.betas, train.eps, train.weight_decay),
        "adam": Adam(lr, train.betas, train.eps),
        "adafactor": Adafactor(lr, train.weight_decay),
        "muon": Muon(lr, betas=train.betas, eps=train.eps, weight_decay=train.weight_decay),
    }
    return Optimiser(kinds[train.optimiser], groups(model, layer_decay=recipe.model.layer_decay))


def schedule_of(recipe: Recipe, dim: int) -> Schedule:
    train = recipe.train
    warmup, steps = require(train.warmup_steps), max(1, require(train.steps))  # a run without steps asks for no rate
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
    batches = made.encoded.batches(require(train.batch), train.grad_accumulation).of(made.share)
    return partial(batches.between, workers=train.workers)


def limits_of(recipe: Recipe) -> RunLimits:
    train = recipe.train
    every = (require(train.log_every), require(train.evaluate_every), require(train.checkpoint_every))
    return RunLimits(require(train.steps), *every, train.patience, train.keep_best, train.average)


def evaluator_of(made: Plan, answers: int = 0) -> Callable[[nn.Module], EvalResult] | None:
    """What scores the model as it trains, where something is held out; by so many answers at least."""
    task, batches = made.task, made.encoded.validation
    if not batches:
        return None
    count = max(task.validation_records, answers) if task.validation_records else 0
    records = made.splits.some_validation(count) if count else []
    return lambda model: task.validate(model, batches, records)


def counted_error_of(made: Plan) -> Callable[[nn.Module], float] | None:
    """What tells the standard error of the held-out loss, where the first weights are counted."""
    task = made.counting_task()
    return None if task is None else partial(task.loss_error, batches=made.encoded.validation)


def require(value: T | None) -> T:
    """The value of a setting that a resolved recipe always has."""
    assert value is not None
    return value


def units_of_step(made: Plan) -> float:
    """Tokens, images … that a step reads on average."""
    train, encoded = made.recipe.train, made.encoded
    return train.grad_accumulation * encoded.tokens / encoded.batches(require(train.batch), 1).steps.steps_for(1)


@dataclass(frozen=True)
class StepTiming:
    """Seconds of a step and of an evaluation, and the memory of the process in bytes; `minutes` are those given."""

    step: float
    evaluation: float
    memory: int
    estimated: bool = False  # not measured, since that would take long
    minutes: float | None = None
    precision: str = ""  # the dtype, and why it was chosen

    def seconds(self, steps: int, evaluations: int) -> float:
        return steps * self.step + evaluations * self.evaluation


def describe_plan(made: Plan, timing: StepTiming) -> str:
    """Each choice with the option that changes it, in lines of 80 columns."""
    return "\n".join([made.splits.description, *describe_choices(made), *describe_timing(made, timing)])


def describe_choices(made: Plan) -> list[str]:
    """What is known of a run before anything of it is timed."""
    recipe, train = made.recipe, made.recipe.train
    objective = f", {recipe.data.objective}" if recipe.data.objective else ""
    vocab, reuse, left_out, augment = vocabulary(made), reuse_line(made), made.splits.left_out, recipe.data.augment
    teacher, weighted = teacher_line(made), made.splits.weighted
    layout = layout_of(train, made.share.processes * train.tensor_parallel)
    lines = [
        ("task", f"{made.task.kind}{objective}: {data_size(made)}", "--task"),
        *([("vocab", vocab, "--data.tokenizer")] if vocab else []),
        *([("", made.setup.note, "")] if made.setup.note else []),
        ("model", model_line(made), "--from" if made.start and not recipe.model.preset else "--preset"),
        *([("reuses", reuse, "--freeze encoder")] if reuse else []),
        *([("teacher", teacher, "--teacher")] if teacher else []),
        ("device", f"{describe_device(recipe.device)}, {counted(require(train.threads), 'thread')}", "--device"),
        *([("", f"{layout.name}: {made.share.describe()}", "--processes")] if layout != ProcessLayout() else []),
        *([] if weighted is None else [("weights", weighted.describe(), "--data.weights")]),
        *([] if augment is None else [("augment", ", ".join(augment) or "none", "--data.augment")]),
        ("batch", f"{require(train.batch) * train.grad_accumulation:,} {made.encoded.unit}", "--train.batch"),
    ]
    return [*([] if left_out is None else [f"--skip-bad: {left_out}"]), *table(lines)]


def describe_timing(made: Plan, timing: StepTiming, folds: int = 0) -> list[str]:
    """How long it takes, and where it goes; with folds, of their trainings and that of all records."""
    train = made.recipe.train
    steps = require(train.steps)
    epochs = steps * units_of_step(made) / max(1, made.encoded.tokens)
    evaluations = -(-steps // require(train.evaluate_every)) + 1
    about = "about {}, estimated" if timing.estimated else "about {}"
    seconds = timing.seconds(steps, evaluations)
    enough, each = "", about.format(duration(seconds))
    if timing.minutes is not None and seconds < ENOUGH * 60 * timing.minutes:
        enough = f"enough for this data: not all of {counted((1 + folds) * timing.minutes, 'minute')}"
    recomputed = "the activations of each block are recomputed"
    lines = [
        *([("dtype", timing.precision, "--train.dtype")] if timing.precision else []),
        ("length", f"{counted(steps, 'step')}, {epochs:.1f} epochs", "--train.steps, --minutes"),
        *([("", enough, "--train.epochs")] if enough else []),
        ("time", about.format(duration((1 + folds) * seconds)), "--minutes"),
        *([("", f"{counted(folds, 'fold')} and a final training of {each} each", "--data.folds")] if folds else []),
        ("memory", about.format(gibibytes(timing.memory)), "--train.batch"),
        *([("", recomputed, "--train.recompute")] if train.recompute else []),
        ("folder", str(made.recipe.out), "--out"),
    ]
    return [*table(lines), *too_short(made, timing, 1 + folds)]


def table(lines: Iterable[tuple[str, str, str]]) -> list[str]:
    return [f"  {name:7} {value:44} {option}".rstrip() for name, value, option in lines]


def too_short(made: Plan, timing: StepTiming, trainings: int = 1) -> list[str]:
    """A warning where the given minutes let a model see less than all of its data, and what to give instead."""
    epoch = steps_of_epoch(made)
    if timing.minutes is None or require(made.recipe.train.steps) >= epoch:
        return []
    needed = -(-trainings * timing.seconds(epoch, 2) // 60)
    whole = "one epoch" if trainings == 1 else f"one epoch in each of {trainings} trainings"
    said = f"too short: about {needed:.0f} minutes for {whole}; give --minutes {needed:.0f} or more"
    smaller = smaller_preset(made, timing, epoch)
    return [said, *([f"or a smaller model: --preset {smaller}"] if smaller else [])]


def steps_of_epoch(made: Plan) -> int:
    return max(1, round(made.encoded.tokens / units_of_step(made)))


def smaller_preset(made: Plan, timing: StepTiming, epoch: int) -> str | None:
    """The largest usual preset that sees all of the data in the given minutes."""
    if made.config is None or made.start is not None:
        return None
    unit, size = made.encoded.unit, weights_per_token(made.config, made.encoded.unit)
    for name, config in made.usual_models():
        part = weights_per_token(config, unit) / size
        if part < 1 and part * timing.seconds(epoch, 2) <= 60 * require(timing.minutes):
            return name
    return None


def data_size(made: Plan) -> str:
    """How much there is to learn from."""
    prepared = made.encoded
    rows, tokens = counted(prepared.rows, "row"), f"{prepared.tokens:,} {prepared.unit}"
    return tokens if prepared.rows == prepared.tokens else f"{rows}, {tokens}"


def vocabulary(made: Plan) -> str | None:
    """The tokenizers and the sizes of their vocabularies, where the task has any."""
    data, source, target = made.recipe.data, made.setup.tokenizer, made.setup.target_tokenizer
    sides = [one for one in (source, target) if one]
    if not sides:
        return None
    if made.start and "data.tokenizer" not in made.setup.chosen:
        return f"{sides[0].vocab:,} tokens, those of the model"
    if made.teacher and "data.tokenizer" not in made.setup.chosen:
        return f"{sides[0].vocab:,} tokens, those of the teacher"
    if sides[0] is sides[-1]:
        return f"{data.tokenizer}, {sides[0].vocab:,} tokens"
    return f"{data.tokenizer}, {sides[0].vocab:,} tokens → {data.target_tokenizer}, {sides[1].vocab:,} tokens"


def model_line(made: Plan) -> str:
    count = sum(parameter.numel() for parameter in made.shape().parameters())
    start = made.recipe.model.start
    name = made.recipe.model.preset or (start.name if start else made.architecture)
    return f"{name}, {count:,} parameters"


def reuse_line(made: Plan) -> str | None:
    """What is taken over from the model that is fine-tuned."""
    found = made.reused(made.shape())
    start = made.recipe.model.start
    return None if found is None or start is None else describe_reuse(found, start.name)


def teacher_line(made: Plan) -> str | None:
    """The teacher, and how it is learned from."""
    if made.teacher is None:
        return None
    count, train = sum(one.numel() for one in made.teacher.model.model.parameters()), made.recipe.train
    how = f"T = {require(train.teacher_temperature):g}, weight {require(train.teacher_weight):g}"
    return f"{made.teacher.name.name}, {count:,} parameters; {how}"


def duration(seconds: float) -> str:
    """A time as people say it."""
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.1f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
