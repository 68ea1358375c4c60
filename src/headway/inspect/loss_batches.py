"""Data as batches of a model with their loss, where the data says what is right; else as batches that are only read.

The rows of a batch have equal lengths.  So nothing is padded or packed, every site holds real tokens only, and these
come row by row.

Axes:  B rows of a batch   T tokens
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headway.data.kinds import DataKind
from headway.data.order import batched
from headway.data.recognise_media import is_table, pool_at, tables_of
from headway.data.records import is_builtin
from headway.data.tokenizer import Tokenizer
from headway.errors import UserError
from headway.evaluation import EvalData, EvalQuery
from headway.inspect.activations import inputs_of, layers_of, samples_in
from headway.model import Model
from headway.nn.trace import sites_of
from headway.nn.trunk import encoder_of
from headway.tasks.base import Task
from headway.tasks.batches import DataRow
from headway.tasks.registry import data_kind

MAX_TOKENS, MAX_ROWS = 4096, 64  # of a batch


class RowTokens(NamedTuple):
    """What is shown of a row: its tokens, or where it has none its name."""

    name: str
    ids: tuple[int, ...] = ()
    tokenizer: Tokenizer | None = None


class LossBatch(NamedTuple):
    """Some rows that a model reads together; `loss` is the sum over all `targets`, or 0 where there is none."""

    loss: Callable[[], float]
    targets: int
    rows: list[RowTokens]


@dataclass(frozen=True, eq=False)
class LossSource(ABC):
    """Data as batches of a model.  `why` describes the data, `target` what the loss is per."""

    why: str
    model: Model
    task: Task

    @property
    @abstractmethod
    def target(self) -> str | None: ...

    @abstractmethod
    def rows(self) -> Iterator[DataRow]: ...

    @abstractmethod
    def batch(self, rows: Sequence[DataRow], site: str) -> LossBatch:
        """Rows with the same key, with the tokens that a site has vectors for."""

    def row_tokens(self, rows: Sequence[DataRow], tokens: Tensor | None, site: str) -> list[RowTokens]:
        """Rows with their tokens at a site, B T; None where they are no text."""
        target = self.model.target_tokenizer if site.startswith("decoder.") else None
        tokenizer = target or self.model.tokenizer
        ids = [()] * len(rows) if tokens is None else [tuple(row) for row in tokens.tolist()]
        return [RowTokens(one.name, row, tokenizer) for one, row in zip(rows, ids, strict=True)]


class TaskBatches(LossSource):
    """Batches of a task, with their loss."""

    @property
    def target(self) -> str:
        return self.task.target

    def batch(self, rows: Sequence[DataRow], site: str) -> LossBatch:
        model = self.model.model
        batch: Any = self.task.loss_batch(model, rows)
        tokens = self.row_tokens(rows, batch.tokens_at(site), site)
        return LossBatch(lambda: float(self.task.loss(model, batch)), batch.targets, tokens)


@dataclass(frozen=True, eq=False)
class RecordBatches(TaskBatches):
    """Records, which say what is right."""

    data: EvalData

    def rows(self) -> Iterator[DataRow]:
        return self.task.loss_rows(self.model.model, self.data)


@dataclass(frozen=True, eq=False)
class UnlabelledBatches(TaskBatches):
    """Samples of a task that needs no labels."""

    inputs: Sequence[str]

    def rows(self) -> Iterator[DataRow]:
        found = self.task.unlabelled_rows(self.inputs)
        assert found is not None
        return found


@dataclass(frozen=True, eq=False)
class EncoderBatches(LossSource):
    """Samples that are encoded, and nothing more: there is no loss."""

    inputs: Sequence[str]

    @property
    def target(self) -> None:
        return None

    def rows(self) -> Iterator[DataRow]:
        return self.task.encoder_rows(self.model.model, self.inputs)

    def batch(self, rows: Sequence[DataRow], site: str) -> LossBatch:
        self.check_site(site)
        model = self.model.model
        read = self.task.encoder_input(model, rows)

        def loss() -> float:
            encoder_of(model).features(read.inputs, read.context)
            return 0.0

        tokens = read.inputs if self.task.noun == "texts" else None
        return LossBatch(loss, 0, self.row_tokens(rows, tokens, site))

    def check_site(self, site: str) -> None:
        """Refuses a site of a decoder, or of another input."""
        model, noun = self.model.model, self.task.noun
        module, _ = sites_of(model)[site]
        if module not in set(encoder_of(model).modules()):
            near = layers_of(model, encoder_of(model))[-1]
            said = f"{site!r} shows nothing where {noun} are read and nothing is written about them"
            raise UserError(said, do=f"give {noun} with texts about them, or another --site, such as {near}")


def loss_source(model: Model, query: EvalQuery, named: str = "the model") -> LossSource:
    """The batches of a model, with a loss wherever the data says what is right; errors call the model `named`."""
    first = query.first if mentions_texts(query) else None
    described = first is not None and first.kind not in (DataKind.IMAGES, DataKind.SOUNDS)
    if model.task.has_loss(model.model, described):
        task, data = query.fitted(model, first or query.first, named)
        return RecordBatches(data.description, model, task.without_augmentation(), data)
    if len(query.paths) != 1:
        said = f"{len(query.paths)} files or folders"
        raise UserError(said, allowed="one, where nothing says what is right")
    [path], task = query.paths, model.task.without_augmentation()
    inputs = inputs_of(samples_in(path), task)
    source = EncoderBatches if task.unlabelled_rows(()) is None else UnlabelledBatches
    return source(str(path), model, task, inputs)


def mentions_texts(query: EvalQuery) -> bool:
    """Whether there may be texts about images or sounds: in a table, in their names, or as the user said."""
    if query.task or query.columns or query.label_from:
        return True
    return any(is_table(path) or bool((pool := pool_at(path)) and tables_of(pool)) for path in query.paths)


def check_query(query: EvalQuery) -> None:
    """Reports what is wrong with data as far as that can be seen without the model."""
    data_kind(query.task)
    if not query.paths:
        raise UserError("no data was given", do="name a file or folder of what the model reads")
    absent: Path | None = next((path for path in query.paths if not path.exists()), None)
    if absent is not None and not is_builtin(query.paths):
        raise UserError(f"{absent} does not exist", do="name a file or folder of what the model reads")


def equal_length_batches(rows: Iterable[DataRow]) -> Iterator[list[DataRow]]:
    """Rows with the same key, as many as a batch takes."""
    for _, same in groupby(sorted(rows, key=lambda row: row.key), lambda row: row.key):
        together = list(same)
        yield from batched(together, max(1, min(MAX_ROWS, MAX_TOKENS // max(1, together[0].size))))


@torch.inference_mode()
def mean_loss(batches: Sequence[LossBatch]) -> float:
    """The loss of a target."""
    return sum(batch.loss() for batch in batches) / max(1, sum(batch.targets for batch in batches))
