"""What a run chooses where its recipe is silent: preset, batch, learning rate, length of rows and number of epochs.

All follow together from the data and the time, never from the clock.  A run should have enough updates, so little time
or data makes small batches; a small batch of a stream has short rows, so that it has enough of them; and a batch with
few targets is noisy, so the learning rate falls.  docs/DEFAULTS.md shows what they reach on small data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf, log2
from typing import Any

from torch import nn

from headway.recipe import Recipe
from headway.tasks.base import StreamTask, Task, TaskSetup
from headway.tasks.text_tasks import MAX_LENGTH
from headway.training.dataset import EncodedDataset
from headway.training.groups import ENCODER
from headway.zoo.build import DataRequirements, config_for, config_of, on_meta
from headway.zoo.presets import preset

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
    from headway.zoo.cost import SHORT, cost

    costs = cost(config, length=SHORT if unit == "images" and hasattr(config, "vocab") else None)  # of a caption
    return (costs.total.flops if unit == "images" else costs.per_token(costs.total.flops)) // 2


def config_dim(config: Any) -> int:
    """The width of a model."""
    if config is None:
        return CUSTOM_WIDTH
    encoder = getattr(config, "encoder", None)
    if encoder and not hasattr(config, "dim"):  # a model that is an encoder and little else
        return config_dim(config_of(encoder) if isinstance(encoder, str) else encoder)
    return max(getattr(config, "dim", 0), getattr(config, "hidden", 0) if hasattr(config, "cell") else 0)


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


def default_lr(recipe: Recipe, dim: int, unit: str, targets: int) -> float:
    """A learning rate by width and the targets in a batch; trained weights are changed by less, unless frozen."""
    if recipe.model.start is not None and recipe.model.freeze != (ENCODER,):
        return 5e-5 * (768 / dim) ** 0.5
    return min(3e-3, 0.3 / dim) * min(1.0, max(1, targets) / THROUGHPUT[unit].targets) ** 0.5


def max_epochs(task: Task, unit: str, times: float = 1.0) -> float:
    """Epochs after which more help little, as many times, or after which more harm the task."""
    return min(times * THROUGHPUT[unit].epochs[1], task.max_epochs)


def default_epochs(task: Task, encoded: EncodedDataset, update: int) -> float:
    """Epochs of a run that has the time; of little data more, for some updates of `update` tokens each."""
    return max(max_epochs(task, encoded.unit), MIN_UPDATES * update / encoded.tokens)


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
