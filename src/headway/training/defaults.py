"""What a run chooses where its recipe is silent: preset, batch, learning rate, length of rows and number of epochs.

All follow together from the data and the time, never from the clock.  A run should have enough updates, so little time
or data makes small batches; a small batch of a stream has short rows, so that it has enough of them; and a batch with
few targets is noisy, so the learning rate falls.  docs/DEFAULTS.md shows what they reach on small data.

The memory that a run needs is known from shapes alone, before any weight is made, and a run is refused that has less.
Numbers are 32 bits wide, and activations are counted so in mixed precision too.  A step holds weights, in mixed
precision with copies in bf16, gradients, the optimiser's state, the EMA of the weights, and the activations that its
largest batch keeps for the gradient.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from math import inf, log2
from typing import Any

from torch import nn

from headway.dtype import BF16, FP16
from headway.errors import UserError
from headway.nn.recompute import innermost_blocks
from headway.recipe import Recipe
from headway.system import gibibytes, memory_limit, resident_memory
from headway.tasks.base import StreamTask, Task, TaskSetup
from headway.tasks.text_tasks import MAX_LENGTH, given
from headway.training.dataset import EncodedDataset
from headway.training.groups import freeze
from headway.zoo.build import DataRequirements, architecture_of, config_for, config_of, on_meta
from headway.zoo.cost import SHORT, activation_bytes, cost
from headway.zoo.presets import PRESETS, preset

MINUTES = 10.0  # of training, where nothing else is given
CUSTOM_WIDTH = 256  # of a model of your own, as far as the learning rate is concerned


@dataclass(frozen=True)
class Throughput:
    """What training reaches on a CPU, in round numbers, and what it needs."""

    rate: float  # operations of one thread in a second
    overhead: int  # weights that could be applied in the time that a token takes besides
    epochs: tuple[float, float]  # a model that sees the data less often is too large; more often helps little
    weights: float  # for each token of the data at most
    batch: tuple[int, int]  # tokens at least and at most
    targets: int  # of a batch; fewer are noisier, and the learning rate falls with their square root


# targets: 256 and 32 were compared in one minute, one to three trainings each on a busy machine.  2,000 series: 43 %
# and 45 to 57; 300 images: 74 % and 75 to 77; 500 sounds: 91 % and 88
THROUGHPUT = {
    "tokens": Throughput(6e10, 200_000, (4.0, 40.0), 10.0, (512, 4096), 256),
    "images": Throughput(1.5e10, 0, (10.0, 60.0), 1000.0, (1, 128), 32),
    "frames": Throughput(1e10, 0, (20.0, 40.0), 20.0, (400, 4000), 256),
    "vectors": Throughput(1e10, 0, (10.0, 60.0), inf, (64, 4096), 32),
}
UPDATES = 2000  # that a run should have: a short one has smaller batches
MIN_UPDATES = 1000  # that a run has on few records, however often it reads them
BATCH_ROWS = 32  # that a batch has, unless it would be too large
STREAM_BATCH_ROWS = 16  # of a stream of tokens that a batch should have: a small one has shorter rows
MIN_STREAM_ROW = 64  # tokens


def preset_by_size(setup: TaskSetup, encoded: EncodedDataset, minutes: float, threads: int) -> str:
    """The largest preset that the data can teach and the time lets see it a few times; or the smallest."""
    throughput, names = THROUGHPUT[encoded.unit], setup.task.presets_by_size
    for name, config in preset_configs(reversed(names), requirements(setup, MAX_LENGTH)):
        if weights_of(config) > throughput.weights * encoded.tokens:
            continue
        if epochs_in(minutes, encoded, weights_per_token(config, encoded.unit), threads) >= throughput.epochs[0]:
            return name
    return names[0]


def preset_configs(names: Iterable[str], required: DataRequirements) -> Iterator[tuple[str, object]]:
    """Presets with their configs for data."""
    for name in names:
        yield name, config_for(preset(name).architecture, preset(name).sizes, required, None)


def weights_of(config: Any) -> int:
    """The parameters of a model, all but tables that are looked up."""
    model = on_meta(config)
    tables = {id(part.weight) for part in model.modules() if isinstance(part, nn.Embedding)}
    return sum(weight.numel() for weight in model.parameters() if id(weight) not in tables)


def weights_per_token(config: Any, unit: str) -> int:
    """How often a token meets a weight, or an image or a frame, where convolutions apply each of them many times."""
    if unit == "tokens":
        return weights_of(config)
    costs = cost(config, length=SHORT if unit == "images" and hasattr(config, "vocab") else None)  # of a caption
    return (costs.total.flops if unit == "images" else costs.per_token(costs.total.flops)) // 2


def config_dim(config: Any) -> int:
    """The width of a model; of a pyramid, that of its first stage."""
    if config is None:
        return CUSTOM_WIDTH
    encoder = getattr(config, "encoder", None)
    if encoder and not hasattr(config, "dim"):  # a model that is an encoder and little else
        return config_dim(config_of(encoder) if isinstance(encoder, str) else encoder)
    first = next(iter(getattr(config, "widths", ())), 0)
    return max(getattr(config, "dim", first), getattr(config, "hidden", 0) if hasattr(config, "cell") else 0)


def default_batch(task: Task, encoded: EncodedDataset, tokens: float) -> int:
    """A batch of such a size that a run that reads so many tokens has enough updates, and each of them enough rows."""
    least, most = THROUGHPUT[encoded.unit].batch
    rows = 0 if isinstance(task, StreamTask) else BATCH_ROWS * encoded.tokens // encoded.rows
    return min(max(int(tokens / UPDATES), least, rows), most)


def row_length(task: Task, batch: int) -> int:
    """The length of rows by which a batch of a stream of tokens has enough of them."""
    if not isinstance(task, StreamTask) or task.unit != "tokens":
        return MAX_LENGTH
    return max(MIN_STREAM_ROW, 2 ** int(log2(max(1, batch // STREAM_BATCH_ROWS))))


def default_lr(dim: int, unit: str, targets: int) -> float:
    """A learning rate by width and the targets in a batch, for new weights."""
    return min(3e-3, 0.3 / dim) * min(1.0, max(1, targets) / THROUGHPUT[unit].targets) ** 0.5


def fine_tuning_lr(dim: int) -> float:
    """A learning rate by width for weights that are good already."""
    return 5e-5 * (768 / dim) ** 0.5


def max_epochs(task: Task, unit: str, times: float = 1.0) -> float:
    """Epochs after which more help little, as many times, or after which more harm the task."""
    return min(times * THROUGHPUT[unit].epochs[1], task.max_epochs)


def default_epochs(task: Task, encoded: EncodedDataset, update: int) -> float:
    """Epochs of a run that has the time; of little data more, for some updates of `update` tokens each."""
    return max(max_epochs(task, encoded.unit), MIN_UPDATES * update / encoded.tokens)


def steps_of(epochs: float, tokens: int, update: int) -> int:
    """The steps that read so many tokens so often, at `update` of them in each."""
    return max(1, round(epochs * tokens / update))


def max_length_of(recipe: Recipe, setup: TaskSetup) -> int:
    """Tokens of a row at most: as asked, as chosen by the data, or as usual."""
    return setup.chosen.get("data.max_length", given(recipe.data.max_length, MAX_LENGTH))


def epochs_in(minutes: float, encoded: EncodedDataset, weights: int, threads: int) -> float:
    """How often a token meets so many weights in some minutes, as far as can be said without measuring."""
    throughput = THROUGHPUT[encoded.unit]
    return minutes * 60 * throughput.rate * threads / (6 * (weights + throughput.overhead) * encoded.tokens)


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


# ---- memory

STATE = {"adamw": 8, "adam": 8, "muon": 4, "adafactor": 0}  # bytes of the optimiser for each number that learns
MAX_MEETINGS = 1000  # of a weight with the cells of an image or the frames of a sound, whose results are kept
MARGIN = 0.9  # of the memory there is, for a batch that is advised: a process is not always equally large
FIRST_STEP = 2**26  # bytes of libraries that a first step loads, and of what allocators leave unused


@dataclass(frozen=True)
class TrainingMemory:
    """Bytes that the steps of a run hold; `activations` are a whole batch's, `process` was there before."""

    weights: int
    gradients: int
    optimiser: int
    activations: float = 0.0
    process: int = field(default_factory=lambda: resident_memory() + FIRST_STEP)

    @property
    def total(self) -> float:
        return self.process + self.weights + self.gradients + self.optimiser + self.activations

    def __str__(self) -> str:
        return ", ".join(f"{name} {gibibytes(size)}" for name, size in asdict(self).items() if size)


def training_memory(config: Any, recipe: Recipe, encoded: EncodedDataset, limit: float = inf) -> TrainingMemory:
    """What training the model of a config by a resolved recipe takes; no activations where the rest is over a limit."""
    model = on_meta(config)
    if recipe.model.freeze is not None:
        freeze(model, recipe.model.freeze)
    weights, learned = numbers(model.parameters()), numbers(one for one in model.parameters() if one.requires_grad)
    copies = (4 * weights if recipe.train.ema_decay else 0) + (2 * weights if recipe.train.dtype in (BF16, FP16) else 0)
    found = TrainingMemory(4 * weights + copies, 4 * learned, STATE[recipe.train.optimiser] * learned)
    if found.total > limit:
        return found
    row, recompute = usual_row(recipe, encoded), recipe.train.recompute or False
    each = activation_bytes(config, model, encoded.unit, row, recompute=recompute)
    return replace(found, activations=(recipe.train.batch or 1) * each)


def fits_memory(config: Any, recipe: Recipe, encoded: EncodedDataset, held: int = 0) -> bool:
    """Whether the steps of a resolved recipe fit into the memory there is beside `held` bytes."""
    limit = (memory_limit() or inf) - held
    fits = surely_fits(config, recipe, encoded.unit, limit)
    return fits or training_memory(config, recipe, encoded, limit).total <= limit


def surely_fits(config: Any, recipe: Recipe, unit: str, limit: float) -> bool:
    """Whether a model is so small that nothing needs to be counted: a token keeps fewer numbers than it meets weights.

    An image or a sound meets them many times.
    """
    kept = (recipe.train.batch or 1) * (1 if unit == "tokens" else MAX_MEETINGS)
    return resident_memory() + FIRST_STEP + 4 * numbers(on_meta(config).parameters()) * (5 + kept) <= limit


def usual_row(recipe: Recipe, encoded: EncodedDataset) -> int:
    """Tokens, frames or vectors of a usual row."""
    longest = recipe.data.max_length or 1
    usual = longest if encoded.rows == encoded.tokens else encoded.tokens // max(1, encoded.rows)
    return max(1, usual if encoded.unit == "frames" else min(longest, usual))


def numbers(parameters: Iterable[nn.Parameter]) -> int:
    return sum(one.numel() for one in parameters)


def fitted_to_memory(
    config: Any, recipe: Recipe, encoded: EncodedDataset, others: Iterable[tuple[str, Any]], held: int = 0
) -> Recipe:
    """The recipe with activation checkpointing where it is asked for, or nothing is and the memory does not suffice.

    Refuses a model that cannot be trained in the memory there is beside `held` bytes; `others` are presets to name in
    its place.
    """
    asked = recipe.train.recompute
    recipe = with_checkpointing(recipe, asked or False)
    if fits_memory(config, recipe, encoded, held):
        return recipe
    if asked is None and innermost_blocks(on_meta(config)):
        recipe = with_checkpointing(recipe, True)
        if fits_memory(config, recipe, encoded, held):
            return recipe
    limit = (memory_limit() or inf) - held
    needed = training_memory(config, recipe, encoded, limit)
    name = recipe.model.preset or architecture_of(config)
    said = f"training {name} needs {gibibytes(needed.total)} of memory or more ({needed})"
    fitting = (other for other, one in others if training_memory(one, recipe, encoded, limit).total <= limit)
    fits = next((f"model.preset {other} fits" for other in fitting), "give a smaller model")
    if needed.activations:
        room = MARGIN * (limit - needed.total + needed.activations)
        batch = int((recipe.train.batch or 1) * room / needed.activations)
        fits += f", or a train.batch of {batch}" if batch >= usual_row(recipe, encoded) else ""
    raise UserError(f"{said}, and there are {gibibytes(limit)}", do=fits)


def with_checkpointing(recipe: Recipe, on: bool) -> Recipe:
    return replace(recipe, train=replace(recipe.train, recompute=on))


def check_blocks(model: nn.Module, recipe: Recipe) -> None:
    """Refuses activation checkpointing for a model that has nothing to recompute."""
    if recipe.train.recompute and not innermost_blocks(model):
        said = f"train.recompute: {type(model).__name__} has no blocks to recompute"
        raise UserError(said, do="leave it out")


def smaller_presets(architecture: str, recipe: Recipe) -> list[str]:
    """The presets of an architecture, the largest first: those below the one of the recipe, if it has one."""
    same = [name for name, one in PRESETS.items() if one.architecture == architecture]
    largest = inf if recipe.model.preset is None else rough_size(recipe.model.preset)
    return sorted((name for name in same if rough_size(name) < largest), key=rough_size, reverse=True)


def rough_size(name: str) -> int:
    """In the order of parameters, among presets of one architecture."""
    sizes: Mapping[str, Any] = PRESETS[name].sizes
    layers = sizes.get("layers", 1)
    return sizes.get("dim", 1) ** 2 * (sum(layers) if isinstance(layers, tuple) else layers)
