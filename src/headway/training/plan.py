"""From a recipe to a run that can begin: the data is read and encoded, and what the recipe leaves open is chosen.

A resolved recipe has no choice left: the same recipe, data and number of threads make the same run, bit for bit.
Choices follow from the recipe and the data alone, never from the clock: a model by the size of the data and the time,
and how to train it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from math import inf
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from headway.data.order import keyed
from headway.data.shards import digest
from headway.data.splits import DataSplits
from headway.data.tokenizer import Tokenizer
from headway.errors import UserError, listed
from headway.model import Model, load
from headway.recipe import Recipe, flat, from_flat
from headway.tasks.base import Task, TaskSetup, task_class, tasks_for
from headway.tasks.model_parts import CUSTOM
from headway.tasks.registry import TASKS
from headway.tasks.text_tasks import MAX_LENGTH, given
from headway.training.dataset import EncodedDataset, ShardCache, encoded_dataset, load_splits
from headway.training.groups import ENCODER, ReusedWeights, describe_task, reused_part, reused_weights, take_over
from headway.training.recipe_sources import RecipeLayers, preset_values, resolve
from headway.zoo.build import DataRequirements, architecture, architecture_of, config_for, config_of, known_sizes
from headway.zoo.encoders import EncoderPart, encoder_config
from headway.zoo.presets import PRESETS, preset

EVALUATIONS = 10  # of a run, the last at its end
CUSTOM_WIDTH = 256  # of a model of your own, as far as the learning rate is concerned
MINUTES = 10.0  # of training, where nothing else is given


@dataclass(frozen=True)
class Throughput:
    """What training reaches on a CPU, in round numbers."""

    rate: float  # operations of one thread in a second
    epochs: tuple[float, float]  # a model that sees the data less often is too large; more often helps little
    weights: float  # for each token of the data at most
    batches: tuple[int, int, int]  # an epoch has so many batches, of so many tokens at least and at most


THROUGHPUT = {
    "tokens": Throughput(4e10, (4.0, 40.0), 10.0, (100, 512, 4096)),
    "images": Throughput(1.5e10, (10.0, 60.0), inf, (50, 8, 128)),
    "frames": Throughput(1e10, (20.0, 40.0), inf, (50, 400, 4000)),
    "vectors": Throughput(1e10, (10.0, 60.0), inf, (50, 64, 4096)),
}

# 2,000 tokens a batch learn in half the tokens that 4,000 need; the task has no noise to be smoothed or dropped out
DATES: Mapping[str, Any] = {
    "model.preset": "transformer-nano",
    "train.steps": 2400,
    "train.batch": 2000,
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

    @property
    def task(self) -> Task:
        return self.setup.task

    @property
    def out(self) -> Path:
        assert self.recipe.out is not None
        return self.recipe.out

    @property
    def architecture(self) -> str:
        return CUSTOM if self.module is not None else architecture_of(self.config)

    def shape(self) -> nn.Module:
        """The model with whatever weights it is drawn with."""
        return self.module if self.module is not None else architecture(self.architecture).build(self.config)

    def build(self) -> nn.Module:
        """The model with its first weights: drawn by the seed, or those of the model that it goes on from."""
        torch.manual_seed(keyed(self.recipe.seed, "weights"))
        model = deepcopy(self.module) if self.module is not None else self.shape()
        if found := self.reused(model):
            take_over(model, found)
        return model

    def reused(self, model: nn.Module) -> ReusedWeights | None:
        """What a model of this plan takes over from the one that it goes on from."""
        return reused_weights(model, self.start, self.part, self.task) if self.start and self.part else None

    def as_model(self, model: nn.Module) -> Model:
        """Weights of this plan as a model that can be used and saved."""
        setup, start = self.setup, self.start
        target = None if setup.target_tokenizer is setup.tokenizer else setup.target_tokenizer
        extra = {**(start.extra_config if start else {}), **self.task.extra_config()}
        kind = start.model_type if start and start.architecture == self.architecture else None
        name, task = self.task.name, type(self.task)
        own_task = None if name in TASKS and task_class(name) is task else task
        found = Model(model, self.config, self.architecture, kind, extra, setup.tokenizer, target)
        return replace(found, preprocess=setup.preprocess, task_name=name, own_task=own_task)


def plan(layers: RecipeLayers, scratch: Path | None = None, own: OwnParts = NO_PARTS) -> Plan:
    """All that follows from a recipe.  With `scratch`, what is prepared on disk is prepared there."""
    draft = resolve(layers)
    if own.records is None and not draft.data.path and draft.data.source is None:
        do = "headway train FILE, or headway train dates, the built-in data set"
        raise UserError("headway train needs data", do=do)
    splits = load_splits(draft, own.task, own.records)
    start = None if draft.model.start is None else load(draft.model.start)
    builtin = splits.builtin and own.config is None and own.module is None
    if builtin and start is None and draft.model.preset is None:
        draft = resolve(layers, DATES)
    if start is not None and draft.model.preset is not None:
        said = f"model.preset {draft.model.preset} with model.from {draft.model.start}, which is a model already"
        raise UserError(said, do="leave one of them out")
    chosen = own.task or choose_task(draft, splits, start, own.config)
    part = reused_part(start, chosen) if start else None
    setup = chosen.from_data(splits, draft, start)
    longest = max_length_of(draft, setup)
    shape = str((draft.seed, splits.share, draft.data.stratify, longest))
    key = digest((), splits.digest, repr(setup.task), *tokenizer_texts(setup), shape)
    encoded = encoded_dataset(setup, splits, draft.seed, longest, ShardCache(key, scratch))
    for skipped, read in ((splits.skipped, splits.train), (splits.validation_skipped, splits.validation)):
        if skipped is not None and not skipped.counts:  # where all was in the cache, nobody has read it yet
            deque(read(), maxlen=0)
    found = Plan(draft, splits, setup, encoded, own.config, start, part, own.module)
    return finish_plan(layers, draft, found)


def finish_plan(layers: RecipeLayers, draft: Recipe, found: Plan) -> Plan:
    """The plan with its model and every choice made, once there are tokens to count."""
    threads = given(draft.train.threads, torch.get_num_threads())
    setup, part, task, values = found.setup, found.part, type(found.task), dict[str, Any]()
    required = requirements(setup, max_length_of(draft, setup))
    if found.module is not None:
        layers.check_sizes(())
    elif found.config is not None:
        layers.check_sizes(known_sizes(found.architecture, sizes_of(found.config)))
        check_suited(found.architecture, found.architecture, task)
    elif part is None:
        minutes = given(draft.train.minutes, MINUTES)
        name = draft.model.preset or preset_by_size(setup, found.encoded, minutes, threads)
        check_suited(name, PRESETS[name].architecture, task)
        layers.check_sizes(known_sizes(PRESETS[name].architecture, PRESETS[name].sizes))
        values = {**preset_values(name), **(DATES if found.splits.builtin else {})}
    recipe = resolve(layers, values)
    sizes, dropout, config = recipe.model.sizes, recipe.train.dropout, None
    if found.config is not None:
        config = config_for(found.architecture, {**sizes_of(found.config), **sizes}, required, dropout)
    elif part is not None:
        config = reused_config(recipe, setup, part, required)
    elif found.module is None:
        config = config_for(PRESETS[cast(str, recipe.model.preset)].architecture, sizes, required, dropout)
    found = replace(found, config=config)
    return replace(found, recipe=resolved_recipe(recipe, found, threads))


def choose_task(recipe: Recipe, splits: DataSplits, start: Model | None, config: object | None) -> type[Task]:
    """How the data is learned from: as asked, or as the model does that was asked for, or as usual for its kind."""
    if start is not None:
        inner = encoder_config(start.config).architecture
        task = task_for(recipe, splits, inner)
        # what the whole model alone can learn, as a CLIP captions
        return task if inner in task.architectures else task_for(recipe, splits, start.architecture)
    if config is not None:
        return task_for(recipe, splits, architecture_of(config))
    return task_for(recipe, splits, preset(recipe.model.preset).architecture if recipe.model.preset else None)


def task_for(recipe: Recipe, splits: DataSplits, architecture: str | None) -> type[Task]:
    """The task for data of a kind, an objective and an architecture."""
    if recipe.data.task in TASKS and recipe.data.objective is None:
        return task_class(recipe.data.task)
    tasks = [task for task in tasks_for(splits.kind) if task.architectures]
    objective = recipe.data.objective
    if objective is None:
        return next((task for task in tasks if architecture in task.architectures), tasks[0])
    found = next((task for task in tasks if task.objective == objective), None)
    if found is None:
        known = [task.objective for task in tasks if task.objective]
        said = f"data.objective {objective} has no meaning for {tasks[0].kind}"
        raise UserError(said, allowed=listed(known) if known else None, do=None if known else "leave it out")
    return found


def check_suited(name: str, architecture: str, task: type[Task]) -> None:
    if architecture not in task.architectures:
        names = [other for other, one in PRESETS.items() if one.architecture in task.architectures]
        raise UserError(f"{name} cannot learn this task ({describe_task(task)})", allowed=listed(names, 6))


def requirements(setup: TaskSetup, max_length: int) -> DataRequirements:
    """What the data asks of a model."""
    source, target = setup.tokenizer, setup.target_tokenizer
    return DataRequirements(
        longest=max_length,
        source_vocab=source.vocab if source else None,
        target_vocab=target.vocab if target and target is not source else None,
        classes=setup.classes,
        head=setup.head,
        fields=setup.config,
    )


def reused_config(recipe: Recipe, setup: TaskSetup, part: EncoderPart, required: DataRequirements) -> object:
    """The config of a model that is fine-tuned: its own, but for what the recipe and the new data change."""
    dropout, sizes = recipe.train.dropout, sizes_of(part.config)
    if dropout is not None:
        sizes.pop("embed_dropout", None)
    sizes |= recipe.model.sizes
    new_tokenizer = "data.tokenizer" in setup.chosen  # the model had none
    same = () if new_tokenizer else ("vocab", "source_vocab", "target_vocab", "context", "tied")
    kept = {name: sizes[name] for name in same if name in sizes}
    return replace(cast(Any, config_for(part.architecture, sizes, required, dropout)), **kept)


def sizes_of(config: Any) -> dict[str, Any]:
    return {field.name: getattr(config, field.name) for field in fields(config)}


def resolved_recipe(recipe: Recipe, found: Plan, threads: int) -> Recipe:
    """The recipe with every choice made."""
    train, tokens, unit = recipe.train, found.encoded.tokens, found.encoded.unit
    chosen, (many, smallest, largest) = found.setup.chosen, THROUGHPUT[unit].batches
    usual = min(max(tokens // many, smallest), largest)  # small data needs many updates
    batch = given(train.batch, chosen.get("train.batch", usual))
    update = batch * train.grad_accumulation
    steps = train.steps
    if steps is None and train.epochs is not None:
        steps = steps_of(train.epochs, tokens, update)
    if steps is None and train.minutes is None:
        steps = default_steps(found, update, threads)
    values = {
        "data.task": found.task.kind,
        "data.objective": found.task.objective,
        "data.max_length": max_length_of(recipe, found.setup),
        "data.validation_split": given(recipe.data.validation_split, found.splits.share),
        "train.steps": steps,
        "train.epochs": None,
        "train.batch": batch,
        "train.lr": given(train.lr, default_lr(recipe, config_dim(found.config))),
        "train.threads": threads,
        "out": given(recipe.out, free_folder(Path(f"{found.splits.name.split('.')[0]}-model"))),
        **chosen,
    }
    recipe = from_flat({**flat(recipe), **values})
    return recipe if steps is None else with_steps(recipe, steps)


def default_lr(recipe: Recipe, dim: int) -> float:
    """A learning rate by width; trained weights are changed by less, unless only a new head learns."""
    fine_tuning = recipe.model.start is not None and recipe.model.freeze != (ENCODER,)
    return 5e-5 * (768 / dim) ** 0.5 if fine_tuning else min(3e-3, 0.3 / dim)


def default_steps(found: Plan, update: int, threads: int) -> int:
    """Updates that take about the usual time, within a sensible number of epochs."""
    tokens, unit, module = found.encoded.tokens, found.encoded.unit, found.module
    throughput = THROUGHPUT[unit]
    count = weights_per_token(found.config, unit) if module is None else sum(w.numel() for w in module.parameters())
    epochs = MINUTES * 60 * throughput.rate * threads / (6 * count * tokens)
    return steps_of(min(max(epochs, throughput.epochs[0]), throughput.epochs[1]), tokens, update)


def with_steps(recipe: Recipe, steps: int, evaluations: int = EVALUATIONS) -> Recipe:
    """The recipe for so many steps, with what is counted in them."""
    train = recipe.train
    chosen = {
        "train.steps": steps,
        "train.minutes": None,
        "train.warmup_steps": given(train.warmup_steps, min(steps // 10, 2000)),
        "train.evaluate_every": given(train.evaluate_every, -(-steps // evaluations)),
        "train.checkpoint_every": given(train.checkpoint_every, max(1, steps // 20)),
        "train.log_every": given(train.log_every, max(1, steps // 100)),
    }
    return from_flat({**flat(recipe), **chosen})


def steps_of(epochs: float, tokens: int, update: int) -> int:
    """The steps that read so many tokens so often, at `update` of them in each."""
    return max(1, round(epochs * tokens / update))


def preset_by_size(setup: TaskSetup, encoded: EncodedDataset, minutes: float, threads: int) -> str:
    """The largest preset that the data can teach and the time lets see it a few times; or the smallest."""
    required, sizes = requirements(setup, MAX_LENGTH), dict[str, int]()
    for name in setup.task.presets_by_size:
        config = config_for(preset(name).architecture, preset(name).sizes, required, None)
        sizes[name] = weights_per_token(config, encoded.unit)
    throughput = THROUGHPUT[encoded.unit]
    per_weight = 6 * encoded.tokens * throughput.epochs[0]  # operations
    limit = min(throughput.weights * encoded.tokens, minutes * 60 * throughput.rate * threads / per_weight)
    fitting = [name for name, count in sizes.items() if count <= limit]
    return fitting[-1] if fitting else min(sizes, key=sizes.__getitem__)


def weights_per_token(config: Any, unit: str) -> int:
    """The parameters that each token meets, all but tables that are looked up; or how often an image meets any."""
    if unit != "tokens":
        from headway.zoo.cost import cost

        costs = cost(config)
        return (costs.total.flops if unit == "images" else costs.per_token(costs.total.flops)) // 2
    with torch.device("meta"):
        model = architecture(architecture_of(config)).build(config)
    tables = {id(part.weight) for part in model.modules() if isinstance(part, nn.Embedding)}
    return sum(weight.numel() for weight in model.parameters() if id(weight) not in tables)


def config_dim(config: Any) -> int:
    """The width of a model."""
    if config is None:
        return CUSTOM_WIDTH
    encoder = getattr(config, "encoder", None)
    if encoder and not hasattr(config, "dim"):  # a model that is an encoder and little else
        return config_dim(config_of(encoder) if isinstance(encoder, str) else encoder)
    return max(getattr(config, "dim", 0), getattr(config, "hidden", 0) if hasattr(config, "cell") else 0)


def max_length_of(recipe: Recipe, setup: TaskSetup) -> int:
    """Tokens of a row at most: as asked, as chosen by the data, or as usual."""
    return setup.chosen.get("data.max_length", given(recipe.data.max_length, MAX_LENGTH))


def tokenizer_texts(setup: TaskSetup) -> list[str]:
    """The tokenizers, to be hashed."""
    found: tuple[Tokenizer | None, ...] = (setup.tokenizer, setup.target_tokenizer)
    return [one.backend.to_str() for one in found if one]


def free_folder(folder: Path) -> Path:
    """A name that nothing has yet."""
    names = (folder if number == 1 else folder.with_name(f"{folder.name}-{number}") for number in range(1, 10**6))
    return next(name for name in names if not name.exists())
