"""From a recipe to a run that can begin: the data is read and encoded, and what the recipe leaves open is chosen.

A resolved recipe has no choice left: the same recipe, data and number of threads make the same run, bit for bit.
Choices follow from the recipe and the data alone, never from the clock: a model by the size of the data and the time,
and how to train it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from headway.console import phase
from headway.data.order import WHOLE, StepShare, keyed
from headway.data.splits import DataSplits
from headway.dtype import INT8, device_named
from headway.errors import UserError
from headway.loading import load
from headway.model import Model
from headway.recipe import Recipe, flat, from_flat
from headway.tasks.base import Task, TaskSetup, task_class
from headway.tasks.model_parts import CUSTOM, CountsWeights
from headway.tasks.registry import TASKS
from headway.tasks.text_tasks import given
from headway.training.dataset import EncodedDataset, encoded_dataset
from headway.training.defaults import (
    MINUTES,
    THROUGHPUT,
    check_blocks,
    config_dim,
    default_batch,
    default_epochs,
    default_lr,
    epochs_in,
    fine_tuning_lr,
    fitted_to_memory,
    max_epochs,
    max_length_of,
    preset_by_size,
    preset_configs,
    requirements,
    row_length,
    smaller_presets,
    steps_of,
    weights_per_token,
    with_checkpointing,
)
from headway.training.fold_scores import CrossValidation
from headway.training.groups import (
    ENCODER,
    ReusedWeights,
    reused_config,
    reused_part,
    reused_weights,
    sizes_of,
    take_over,
)
from headway.training.lora import LORA_LR, LoRA, attach
from headway.training.recipe_data import load_splits
from headway.training.recipe_sources import RecipeLayers, check_recipe, preset_values, resolve
from headway.training.task_choice import check_suited, choose_task
from headway.training.teacher import Teacher, check_task
from headway.zoo.build import (
    architecture_of,
    build,
    check_obeyed,
    config_for,
    known_sizes,
    on_meta,
    overruled,
)
from headway.zoo.encoders import EncoderPart
from headway.zoo.presets import PRESETS

EVALUATIONS = 10  # of a run, the last at its end


# 2,000 tokens a batch learn in half the tokens that 4,000 need; the task has no noise to be smoothed or dropped out
DATES: Mapping[str, Any] = {
    "model.preset": "transformer-nano",
    "train.steps": 2400,
    "train.batch": 2000,
    "train.lr": 3e-3,
    "train.dropout": 0.0,
    "train.label_smoothing": 0.0,
}


@dataclass(frozen=True, eq=False)
class OwnParts:
    """What Python hands over that no recipe can say.

    `task` is the class of a task, `records` stand in the place of files, and a `config` of the zoo or a `module` in the
    place of a preset; vocabulary and classes of a config are replaced by those of the data.
    """

    task: type[Task] | None = None
    records: Iterable[Any] | None = None
    config: object | None = None
    module: nn.Module | None = None


NO_PARTS = OwnParts()


@dataclass(frozen=True, eq=False)
class Plan:
    """All that a run is made of."""

    recipe: Recipe
    splits: DataSplits
    setup: TaskSetup
    encoded: EncodedDataset
    config: Any
    start: Model | None = None
    part: EncoderPart | None = None  # what of `start` is reused
    module: nn.Module | None = None  # a model of your own, in the place of `config`
    share: StepShare = WHOLE  # of each step, where several processes train
    teacher: Teacher | None = None
    estimate: CrossValidation | None = None  # where all records are learned from: scores of models of folds

    @property
    def task(self) -> Task:
        return self.setup.task

    @property
    def out(self) -> Path:
        assert self.recipe.out is not None
        return self.recipe.out

    @property
    def teacher_bytes(self) -> int:
        """The memory that the teacher takes."""
        return self.teacher.bytes if self.teacher else 0

    @property
    def on_test(self) -> Plan:
        """This plan with the test data in the place of validation, to be scored by the same means."""
        encoded = replace(self.encoded, validation=self.encoded.test, held=None)
        return replace(self, splits=self.splits.on_test, encoded=encoded)

    @property
    def architecture(self) -> str:
        return CUSTOM if self.module is not None else architecture_of(self.config)

    def shape(self) -> nn.Module:
        """The model without numbers, or the own one."""
        return self.module if self.module is not None else on_meta(self.config)

    def build(self) -> nn.Module:
        """The model with its first weights: drawn by the seed, counted, or those of the model that it goes on from."""
        torch.manual_seed(keyed(self.recipe.seed, "weights"))
        model = deepcopy(self.module) if self.module is not None else build(self.config)
        if found := self.reused(model):
            take_over(model, found)
            if self.recipe.model.lora is not None:
                attach(model, LoRA.of(self.recipe.model.lora), found.tensors)
        elif (task := self.counting_task()) and self.encoded.train is not None:
            task.count_weights(model, self.encoded.train)
        device = device_named(self.recipe.device)
        if ":" in str(device):  # torch pins memory and talks to others by the current one
            torch.accelerator.set_device_index(device.index)
        return model.to(device)

    def counting_task(self) -> CountsWeights | None:
        """The task, where it counts first weights of the model."""
        drawn, task = self.module is None and self.start is None, self.task
        return task if drawn and isinstance(task, CountsWeights) and task.can_count(self.shape()) else None

    @property
    def counts_all(self) -> bool:
        """Whether counted weights that are kept are counted anew with the rows that were held out of the same data."""
        return self.counting_task() is not None and self.splits.share is not None

    def count_all(self, model: nn.Module) -> None:
        """Sets weights by all rows, those of training and those that were held out."""
        task = self.counting_task()
        assert task is not None
        assert self.encoded.train is not None
        task.count_weights(model, self.encoded.train, self.encoded.held)

    def reused(self, model: nn.Module) -> ReusedWeights | None:
        """What a model of this plan takes over from the one that it goes on from."""
        return reused_weights(model, self.start, self.part, self.task) if self.start and self.part else None

    def usual_models(self) -> Iterator[tuple[str, object]]:
        """The presets that are chosen from for the task, with their configs for this data, the largest first."""
        return self.models(reversed(self.task.presets_by_size))

    def models(self, names: Iterable[str]) -> Iterator[tuple[str, object]]:
        return preset_configs(names, requirements(self.setup, max_length_of(self.recipe, self.setup)))

    def as_model(self, model: nn.Module) -> Model:
        """Weights of this plan as a model that can be used and saved."""
        setup, start = self.setup, self.start
        target = None if setup.target_tokenizer is setup.tokenizer else setup.target_tokenizer
        taken = start.extra_config if start else self.teacher.settings if self.teacher else {}
        extra = {**taken, **self.task.extra_config()}
        kind = start.model_type if start and start.architecture == self.architecture else None
        name, task = self.task.name, type(self.task)
        own_task = None if name in TASKS and task_class(name) is task else task
        found = Model(model, self.config, self.architecture, kind, extra, setup.tokenizer, target)
        return replace(found, preprocess=setup.preprocess, task_name=name, own_task=own_task)


def plan(
    layers: RecipeLayers,
    scratch: Path | None = None,
    own: OwnParts = NO_PARTS,
    splits: DataSplits | None = None,
) -> Plan:
    """All that follows from a recipe.  With `scratch`, what is prepared on disk is prepared there.

    `splits` are the data of the recipe, where they have been read already.
    """
    draft = resolve(layers)
    check_recipe(draft, own.records, own.module)
    splits = load_splits(draft, own.task, own.records) if splits is None else splits
    start, teacher = None if draft.model.start is None else load(draft.model.start), Teacher.of(draft)
    if start is not None and start.dtype == INT8:
        given = f"{draft.model.start} holds int8 weights, which cannot be trained"
        raise UserError(given, do="start from the model that it was converted from")
    builtin = splits.builtin and own.config is None and own.module is None
    if builtin and start is None and draft.model.preset is None:
        draft = resolve(layers, DATES)
    chosen = own.task or choose_task(draft, splits, start, own.config)
    part = reused_part(start, chosen) if start else None
    if part is not None and not part.place and draft.model.preset is not None:
        said = f"model.preset {draft.model.preset} with model.from {draft.model.start}, which is a model already"
        raise UserError(said, do="leave one of them out")
    if start is not None and part is not None and part.place:  # its words and classes are not those of the new model
        start = replace(start, tokenizer=None, target_tokenizer=None, extra_config={})
    if teacher is not None:
        check_task(chosen)
    with phase("preparing the data", moving=True):  # a tokenizer is trained, classes are counted
        setup = chosen.from_data(splits, draft, start if teacher is None else teacher.lent(draft, start))
    if teacher is not None:
        teacher.loss(setup.task, draft)
    if draft.data.augment and "data.augment" not in setup.chosen:
        said = f"data.augment {','.join(draft.data.augment)} changes images and sounds, and this task ({chosen.name})"
        raise UserError(f"{said} has neither", do="leave out data.augment")
    if draft.train.class_weights and "train.class_weights" not in setup.chosen:
        said = (
            f"train.class_weights {draft.train.class_weights} weighs classes, and this task ({chosen.name}) learns none"
        )
        raise UserError(said, do="leave out train.class_weights")

    encoded = encoded_dataset(draft, setup, splits, max_length_of(draft, setup), scratch)
    parts = [(splits.skipped, splits.train), (splits.validation_skipped, splits.validation)]
    for skipped, read in (*parts, (splits.test_skipped, splits.test)):
        # where all was in the cache, nobody has read it yet
        if skipped is not None and read is not None and not skipped.counts:
            deque(read(), maxlen=0)
    draft_plan = Plan(draft, splits, setup, encoded, own.config, start, part, own.module, teacher=teacher)
    found = finish_plan(layers, draft_plan)
    length = row_length(found.task, cast(int, found.recipe.train.batch))
    if draft.data.max_length is None and length < max_length_of(draft, setup):
        setup = replace(setup, chosen={**setup.chosen, "data.max_length": length})
        encoded = encoded_dataset(draft, setup, splits, length, scratch)
        found = finish_plan(layers, replace(draft_plan, setup=setup, encoded=encoded))
    if teacher is not None:
        teacher.check_length(cast(int, found.recipe.data.max_length))
    return found


def reseeded(made: Plan, seed: int) -> Plan:
    """The same plan on the same split of the data, with other first weights and another order of batches."""
    recipe = replace(made.recipe, seed=seed)
    encoded = encoded_dataset(recipe, made.setup, made.splits, max_length_of(recipe, made.setup))
    return replace(made, recipe=recipe, encoded=encoded)


def finish_plan(layers: RecipeLayers, found: Plan) -> Plan:
    """The plan with its model and every choice made, once there are tokens to count."""
    draft, threads = found.recipe, given(found.recipe.train.threads, torch.get_num_threads())
    setup, part, task, values = found.setup, found.part, type(found.task), dict[str, Any]()
    required = requirements(setup, max_length_of(draft, setup))
    if found.module is not None:
        layers.check_sizes(())
    elif found.config is not None:
        layers.check_sizes(known_sizes(found.architecture, sizes_of(found.config)))
        check_suited(found.architecture, found.architecture, task)
    elif part is None or part.place:
        minutes = given(draft.train.minutes, MINUTES)
        name = draft.model.preset or preset_by_size(setup, found.encoded, minutes, threads)
        check_suited(name, PRESETS[name].architecture, task)
        layers.check_sizes(known_sizes(PRESETS[name].architecture, PRESETS[name].sizes))
        values = {**preset_values(name), **(DATES if found.splits.builtin else {})}
    recipe = resolve(layers, values)
    sizes, dropout, config = recipe.model.sizes, recipe.train.dropout, None
    if found.config is not None:
        config = config_for(found.architecture, {**sizes_of(found.config), **sizes}, required, dropout)
    elif part is not None and not part.place:
        config = reused_config(recipe, setup, part, required)
    elif found.module is None:
        if part is not None and "encoder" in layers.given_sizes():
            said = f"model.encoder {sizes['encoder']} with model.from {recipe.model.start}, which is an encoder already"
            raise UserError(said, do="leave one of them out")
        encoder = {} if part is None else {"encoder": part.config}
        architecture = PRESETS[cast(str, recipe.model.preset)].architecture
        config = config_for(architecture, {**sizes, **encoder}, required, dropout)
    if config is not None:
        check_obeyed(layers.given_sizes(), config)
    found = replace(found, config=config)
    found = replace(found, recipe=resolved_recipe(recipe, found, threads))
    if config is not None:
        others = chain(found.models(smaller_presets(found.architecture, found.recipe)), found.usual_models())
        recipe = fitted_to_memory(config, found.recipe, found.encoded, others, found.teacher_bytes)
    else:
        recipe = with_checkpointing(found.recipe, found.recipe.train.recompute or False)
    check_blocks(found.shape(), recipe)
    return replace(found, recipe=recipe)


def resolved_recipe(recipe: Recipe, found: Plan, threads: int) -> Recipe:
    """The recipe with every choice made."""
    train, encoded, module, chosen = recipe.train, found.encoded, found.module, found.setup.chosen
    weights = sum(map(torch.numel, module.parameters())) if module else weights_per_token(found.config, encoded.unit)
    possible = epochs_in(given(train.minutes, MINUTES), encoded, weights, threads)
    tokens = given(train.epochs, min(possible, max_epochs(found.task, encoded.unit))) * encoded.tokens
    batch = given(train.batch, chosen.get("train.batch", default_batch(found.task, encoded, tokens)))
    update, steps = batch * train.grad_accumulation, train.steps
    if steps is None and train.minutes is None:
        usual = min(max(THROUGHPUT[encoded.unit].epochs[0], possible), default_epochs(found.task, encoded, update))
        steps = steps_of(given(train.epochs, usual), encoded.tokens, update)
    lr = train.lr
    if lr is None:
        [[first]] = encoded.batches(batch, 1).between(1, 2)
        dim = config_dim(found.config)
        good = fine_tuned(recipe, found.part) or found.counting_task()
        times = 1.0 if recipe.model.lora is None else LORA_LR
        new, tuned = default_lr(dim, encoded.unit, first.targets), times * fine_tuning_lr(dim)
        lr = tuned * found.task.fine_tuning_lr_factor if good else new * found.task.lr_factor
    values = {
        "data.task": found.task.kind,
        "data.objective": found.task.objective,
        "data.max_length": max_length_of(recipe, found.setup),
        "data.validation_split": given(recipe.data.validation_split, found.splits.share),
        "train.steps": steps,
        "train.epochs": None,
        "train.batch": batch,
        "train.lr": lr,
        "train.threads": threads,
        "out": given(recipe.out, free_folder(Path(f"{found.splits.name.split('.')[0]}-model"))),
        **chosen,
        **(found.teacher.choices(recipe) if found.teacher else {}),
        **{f"model.{name}": built for name, built in overruled(recipe.model.sizes, found.config).items()},
    }
    recipe = from_flat({**flat(recipe), **values})
    return recipe if steps is None else with_steps(recipe, steps)


def fine_tuned(recipe: Recipe, part: EncoderPart | None) -> bool:
    """Whether what is trained has been trained before, and not a new head or decoder alone or for the most part."""
    return part is not None and not part.place and recipe.model.freeze != (ENCODER,)


def with_steps(recipe: Recipe, steps: int, evaluations: int = EVALUATIONS) -> Recipe:
    """The recipe for so many steps, with what is counted in them."""
    train = recipe.train
    chosen = {
        "train.steps": steps,
        "train.minutes": None,
        "train.warmup_steps": given(train.warmup_steps, min(steps // 10, 2000)),
        "train.evaluate_every": given(train.evaluate_every, max(1, -(-steps // evaluations))),
        "train.checkpoint_every": given(train.checkpoint_every, max(1, steps // 20)),
        "train.log_every": given(train.log_every, max(1, steps // 100)),
    }
    return from_flat({**flat(recipe), **chosen})


def free_folder(folder: Path) -> Path:
    """A name that nothing has yet."""
    names = (folder if number == 1 else folder.with_name(f"{folder.name}-{number}") for number in range(1, 10**6))
    return next(name for name in names if not name.exists())
