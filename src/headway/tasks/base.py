"""A task: what a model is for, and all that is true of it.

A task says which data it learns from, how records become rows, rows a batch and a batch a loss, how a model of it
answers (`predict`), how good these answers are (`evaluate`), and what a recording of one answer is (`trace`).  The
command line, training, evaluation, inspection and the page ask the task and never name one.  It is a frozen value,
cheap to pickle.  `encode` is done once and kept on disk; `collate` draws what is drawn anew (masks, crops) from the
random numbers that it is handed; `loss` is a sum over targets, so that a step over several batches equals one large
batch.  `registry.py` has a line for each task of headway, which help reads without torch.

Axes:  B batch   R rows   C columns   T tokens
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from headway.data.kinds import DataKind
from headway.data.order import batched, random_for
from headway.data.tokenizer import Tokenizer
from headway.distributed.sharing import shared
from headway.errors import UserError, listed, nearest
from headway.nn.trunk import device_of
from headway.tasks.batches import DataRow, EncoderInput, Row, ids, to_device
from headway.tasks.generation import GREEDY_OPTIONS, GenerationOptions
from headway.tasks.model_parts import CUSTOM, ModelParts
from headway.tasks.registry import TASKS
from headway.tasks.results import (
    DEFAULT_EVALUATION,
    BaselineData,
    BaselineResult,
    EmbeddingVector,
    EvalOptions,
    EvalResult,
    NextCommand,
    Prediction,
    ReportDetails,
    Sample,
    example_of,
    traced_samples,
)

if TYPE_CHECKING:
    from headway.data.preprocess import Preprocess
    from headway.data.records import Record
    from headway.data.shards import Shards
    from headway.data.splits import DataSplits
    from headway.metrics.scores import Scores
    from headway.recipe import Recipe
    from headway.tasks.causal_decoder import CausalDecoder
    from headway.tasks.tracing import TracedRun, TraceOptions

ENCODED_TOGETHER = 256  # records that are encoded before the next are read
UNKNOWN_TOKENS = 64  # about, of a sample whose tokens are not counted
VALIDATION_ANSWERS = 200  # held-out records that are answered at each evaluation of a run
VALIDATION_CLASSES = 2000  # where an answer is a class, which takes no longer than the loss


@dataclass(frozen=True, eq=False)
class TaskSetup:
    """A task made for data: its tokenizers, the settings that were chosen on the way, and what the model must fit.

    `config` follows from the data, `head` stands on an encoder that can have several, `note` says why tokenizers suit.
    """

    task: Task
    tokenizer: Tokenizer | None = None
    target_tokenizer: Tokenizer | None = None
    chosen: Mapping[str, Any] = field(default_factory=dict[str, Any])
    classes: int = 0
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    head: str | None = None
    preprocess: Preprocess | None = None
    note: str = ""


class Task(ABC):
    """What a model is for.  Subclasses are frozen dataclasses; the class says what is true of all of them."""

    name: ClassVar[str]  # in config.json, and after --task
    kind: ClassVar[str]  # the word for the kind of data, which --task takes too
    objective: ClassVar[str | None] = None  # where data of one kind may be learned from in several ways
    data_kind: ClassVar[DataKind | None] = None  # of the data that it learns from
    goal: ClassVar[str]  # ends the sentence that says what data is for
    does: ClassVar[str]  # what a model of it does, behind "the model"
    target: ClassVar[str] = "target"  # what the loss is the mean over
    architectures: ClassVar[tuple[str, ...]] = ()  # that can learn it
    encoder_place: ClassVar[str] = ""  # the part of its models that a trained encoder of images can become
    presets_by_size: ClassVar[tuple[str, ...]] = ()  # of which one is chosen, the smallest first
    max_epochs: ClassVar[float] = math.inf  # of training from scratch: after more, the model knows the data by heart
    fine_tuning_lr_factor: ClassVar[float] = 1.0  # times that of weights that are good already
    compares_rows: ClassVar[bool] = False  # whether its loss of a row depends on the other rows of the batch
    needs_labels: ClassVar[bool] = True  # whether records must say something about their samples
    asks_together: ClassVar[bool] = False  # whether the inputs of one call are one question
    beams: ClassVar[bool] = False  # whether its evaluation decodes, so that beams make a difference
    decoding: ClassVar[tuple[str, ...]] = ()  # the options of `generation_options` that change its answers
    sample_names: ClassVar[tuple[str, str, str]] = ("source", "answer", "should be")  # heads of a table of samples
    graded: ClassVar[bool] = True  # whether an answer is right or wrong, not more or less good
    on_other_data: ClassVar[NextCommand] = NextCommand("headway eval {} DATA", "evaluate it on other data")
    sampling: ClassVar[Mapping[str, float]] = {}  # the options to try its models with, where greedy text repeats itself
    validation_records: ClassVar[int] = 0  # held-out records that are answered at each evaluation of a run
    encoder_batch: ClassVar[int] = 32  # rows that `headway.inspect` encodes together

    def __init_subclass__(cls) -> None:
        entry = TASKS.get(cls.__dict__.get("name", ""))
        if entry is not None:
            cls.kind, cls.goal, cls.objective = entry.word, entry.goal, entry.objective
            cls.data_kind = DataKind[entry.data] if entry.data else None
            cls.needs_labels = not entry.unlabelled

    # ---- from data, and from a model

    @classmethod
    def from_data(cls, splits: DataSplits, recipe: Recipe, start: ModelParts | None) -> TaskSetup:
        """The task for data: tokenizers, classes, and what the model must fit.  `start` is a model to go on from."""
        raise UserError(f"a model cannot be trained for {cls.goal} here", do="train one for another task")

    @classmethod
    @abstractmethod
    def from_model(cls, parts: ModelParts) -> Self | None:
        """The task of a model folder, or of a foreign one by its head; None where the model is for something else."""

    # ---- learning

    @property
    def lr_factor(self) -> float:
        """What the default learning rate of new weights is multiplied by."""
        return 1.0

    @abstractmethod
    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> Any:
        """One batch of rows."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """The loss of all targets together."""

    def loss_parts(self, model: nn.Module, batch: Any) -> Iterator[tuple[float, int]]:
        """The loss of each part of a batch, and its targets: an interval is computed from many such parts."""
        yield self.loss(model, batch).item(), batch.targets

    def without_augmentation(self) -> Self:
        """The task as validation measures it: without what only helps learning."""
        return self

    def extra_config(self) -> Mapping[str, Any]:
        """What config.json keeps of it: special tokens by their parts, names of classes."""
        return {}

    # ---- use

    @abstractmethod
    def predict(
        self, model: nn.Module, inputs: Sequence[str], options: GenerationOptions = GREEDY_OPTIONS
    ) -> Iterator[Prediction]:
        """The answer to each input: a text, or the name of a file where the model reads images or sounds."""

    @abstractmethod
    def evaluate(
        self, model: nn.Module, records: Iterable[Record], options: EvalOptions = DEFAULT_EVALUATION
    ) -> EvalResult:
        """How good a model is on records, which may be read more than once."""

    @abstractmethod
    def validate(self, model: nn.Module, batches: Sequence[Any], records: Iterable[Record]) -> EvalResult:
        """How good a model in training is: by its loss on validation batches, and by answers to some records."""

    def baselines(self, model: nn.Module, data: BaselineData, found: EvalResult) -> Iterator[BaselineResult]:
        """Simple methods on the records that a model was evaluated on; the first knows nothing of the inputs."""
        return iter(())

    def causal_decoder(self, model: nn.Module) -> CausalDecoder | None:
        """What continues texts and conversations token by token, many at a time; None: nothing."""
        return None

    @abstractmethod
    def trace(self, model: nn.Module, input: str, options: TraceOptions) -> TracedRun:
        """One input with the call that answers it, to be recorded: the axes of its attention, and what came out."""

    def embed(self, model: nn.Module, inputs: Sequence[str]) -> Tensor:
        """A vector of length 1 for each input, B C."""
        raise UserError(f"a model that {self.does} gives no vectors", do="leave out embed=")

    def embeddings(self, model: nn.Module, inputs: Sequence[str]) -> list[EmbeddingVector]:
        return list(map(EmbeddingVector, inputs, map(tuple, self.embed(model, inputs).tolist())))

    # ---- inspection: by default, of texts without a loss

    @property
    def noun(self) -> str:
        """What models of it read: texts, images, sounds or numbers."""
        return "texts"

    @property
    def takes_files(self) -> bool:
        """Whether its inputs are names of files."""
        return self.noun in ("images", "sounds")

    def locate(self, given: str) -> str:
        """An input as a person names it, as `encoder_rows` takes it."""
        return given

    def inputs_named(self, given: str) -> list[str]:
        """The inputs that a person names at once: the files of a folder, where models of it read files."""
        if not self.takes_files:
            return [given]
        from headway.data.recognise_media import media_inputs  # late: models of texts do not need it

        return media_inputs(given, self.noun.removesuffix("s"))

    def encoder_rows(self, model: nn.Module, inputs: Sequence[str]) -> Iterator[DataRow]:
        """Inputs as rows for the encoder alone: each has a key of its own, so that none is padded."""
        for at, one in enumerate(inputs):
            yield DataRow((at,), UNKNOWN_TOKENS, one, one, at)

    def encoder_input(self, model: nn.Module, rows: Sequence[DataRow]) -> EncoderInput:
        """Rows as the encoder reads them."""
        raise UserError(f"a model that {self.does} has no encoder to look into")

    def has_loss(self, model: nn.Module, described: bool) -> bool:
        """Whether data has a loss; `described` says whether there are texts about its images or sounds."""
        return False

    def loss_rows(self, model: nn.Module, records: Iterable[Record]) -> Iterator[DataRow]:
        """Records as rows with a loss."""
        raise UserError(f"a model that {self.does} has no loss on records")

    def unlabelled_rows(self, inputs: Sequence[str]) -> Iterator[DataRow] | None:
        """Inputs as rows with a loss, where a task needs nothing but these."""
        return None

    def loss_batch(self, model: nn.Module, rows: Sequence[DataRow]) -> Any:
        """Rows with the same key as a batch, on the device of the model."""
        return to_device(self.collate([one.row for one in rows], random_for("unused")), device_of(model))

    # ---- for people

    @abstractmethod
    def sample_input(self, folder: Path, context: int | None) -> str:
        """An input that a model of this context can read; an image or a sound is written into the folder."""

    @property
    def heading(self) -> str:
        """What a model of it is trained for, behind the name of the data."""
        return self.goal

    def report_details(
        self, model: nn.Module, batches: Sequence[Any], records: Sequence[Record], found: EvalResult
    ) -> ReportDetails:
        """What a report shows besides scores: of the last evaluation, of validation batches, or of a few records."""
        return ReportDetails(found.scores, found.samples, traced=traced_samples(found.samples, graded=self.graded))

    def example(self, splits: DataSplits, samples: Sequence[Sample]) -> str:
        """An input that the model can be tried with."""
        return example_of(samples) or "some text"

    @classmethod
    def next_commands(cls, folder: str, example: str) -> list[NextCommand]:
        """What to type after a training."""
        options = "".join(f" --{name} {value:g}" for name, value in cls.sampling.items())
        return [NextCommand(f"headway run {folder}{options} {example}", "use the model")]


class RecordTask(Task):
    """A task whose rows are records: `columns` lists of ids each, in batches that are counted in `unit`."""

    columns: ClassVar[int] = 2
    max_id: ClassVar[int] = 0  # the largest number of a row that is neither a token nor a class
    validation_records: ClassVar[int] = VALIDATION_ANSWERS  # 0: the loss alone decides
    unit: str

    @abstractmethod
    def encode(self, fields: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        """The ids of records, column by column."""

    @abstractmethod
    def sizes(self, rows: Shards) -> np.ndarray:
        """How much each row counts for in a batch, R or R C."""

    def check(self, records: Sequence[Record]) -> None:
        """Refuses records with labels that are none of the model's."""

    def validate(self, model: nn.Module, batches: Sequence[Any], records: Iterable[Record]) -> EvalResult:
        """By answers to held-out records, beside the loss; by the loss alone where none are answered."""
        if not self.validation_records:
            return EvalResult(loss_scores(self, model, batches, self.target))
        loss = validation_loss(self, model, batches)
        if not math.isfinite(loss):  # a model that has diverged answers nothing
            from headway.metrics.scores import Scores  # late, as all metrics: to run a model needs none

            return EvalResult(Scores({"loss": loss}, 0, "targets"))
        return replace(self.without_augmentation().evaluate(model, records), loss=loss)

    def has_loss(self, model: nn.Module, described: bool) -> bool:
        return True

    def loss_rows(self, model: nn.Module, records: Iterable[Record]) -> Iterator[DataRow]:
        for part in batched(records, ENCODED_TOGETHER):
            self.check(part)
            for record, row in zip(part, self.encode([record.handed for record in part]), strict=True):
                key = tuple(map(len, row))
                yield DataRow(key, sum(key), tuple(map(ids, row)), record.name)

    def batch(self, model: nn.Module, records: Sequence[Record]) -> Any:
        """Some records as one batch, without augmentation, on the device of the model."""
        rows = [tuple(map(ids, row)) for row in self.encode([record.handed for record in records])]
        return to_device(self.collate(rows, random_for("unused")), device_of(model))


class StreamTask(Task):
    """A task whose rows are spans of one long stream of documents, of `columns` numbers each, all below `vocab`."""

    columns: int
    unit: str  # what places of the stream are called
    has_history: ClassVar[bool] = False  # whether validation asks for each place after those before it

    @property
    @abstractmethod
    def vocab(self) -> int: ...

    @abstractmethod
    def document(self, pieces: Iterable[str]) -> list[Iterable[int]]:
        """A document that comes in pieces, column by column."""

    @abstractmethod
    def stride(self, context: int) -> int:
        """How far apart spans begin, each of which has one token more, for a model that reads `context` tokens."""


@torch.inference_mode()
def validation_loss(task: Task, model: nn.Module, batches: Sequence[Any]) -> float:
    """The loss of a target over validation batches."""
    task, device = task.without_augmentation(), device_of(model)

    def loss(at: int) -> tuple[float, int]:
        batch = batches[at]
        return task.loss(model, to_device(batch, device)).item(), batch.targets

    found = [one for _, one in shared(loss, range(len(batches)))]
    return sum(one for one, _ in found) / max(1, sum(count for _, count in found))


@torch.inference_mode()
def loss_scores(task: Task, model: nn.Module, batches: Sequence[Any], target: str, *more: str) -> Scores:
    """The loss of a target over validation batches as a score, and what follows from it: "perplexity"."""
    from headway.metrics.scoring import score_losses

    task, device = task.without_augmentation(), device_of(model)

    def losses_of(at: int) -> list[tuple[float, int]]:
        return list(task.loss_parts(model, to_device(batches[at], device)))

    parts = [part for _, found in shared(losses_of, range(len(batches))) for part in found]
    losses, counts = zip(*(parts or [(0.0, 0)]), strict=True)
    return score_losses(losses, counts, f"{target}s", ("loss", *more))


def task_class(name: str) -> type[Task]:
    """The task of a name."""
    if name not in TASKS:
        raise UserError(f"no task {name!r}", allowed=listed(TASKS, 20), meant=nearest(name, TASKS))
    module, _, cls = TASKS[name].path.partition(":")
    return getattr(import_module(f"headway.tasks.{module}"), cls)


def tasks_for(data_kind: DataKind | None) -> list[type[Task]]:
    """The tasks of a kind of data, the usual one first; all of them where the kind is not known."""
    return [task_class(name) for name, entry in TASKS.items() if data_kind is None or entry.data == data_kind.name]


def task_of(parts: ModelParts, name: str | None = None, data_kind: DataKind | None = None) -> Task:
    """The task of a model: the one its folder names, or the first whose head it has; data decides between several."""
    known = name if name in TASKS and (data_kind is None or parts.architecture == CUSTOM) else None
    if known and (found := task_class(known).from_model(parts)) is not None:
        return found
    # a task is imported when its turn comes
    for name in sorted(TASKS, key=lambda name: data_kind is None or TASKS[name].data != data_kind.name):
        if (found := task_class(name).from_model(parts)) is not None:
            return found
    raise UserError(f"there is no way to run a {type(parts.model).__name__}", do="give a model that a task knows")
