"""Data as batches of a model with their loss, where the data says what is right; else as batches that are only read.

The rows of a batch have equal lengths.  So nothing is padded or packed, every site holds real tokens only, and these
come row by row.

Axes:  B rows of a batch   T tokens
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import torch

from headway.data.kinds import DataKind
from headway.data.media_tables import is_table, pool_at, tables_of
from headway.data.order import batched
from headway.data.records import is_builtin
from headway.data.tokenizer import Tokenizer
from headway.errors import UserError
from headway.evaluation import EvalQuery
from headway.inspect.activations import RecordsQuery, inputs_of, layers_of, samples_in
from headway.model import Model
from headway.nn.trace import sites_of
from headway.nn.trunk import encoder_of
from headway.tasks.base import Task
from headway.tasks.inspection import DataRow
from headway.tasks.registry import data_kind

MAX_TOKENS, MAX_ROWS = 4096, 64  # of a batch
NO_DATA = "name a file or folder of what the model reads"


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
class LossSource:
    """Data as rows and batches of a model; without a loss, samples are encoded and nothing more."""

    why: str  # a description of the data
    model: Model
    task: Task
    rows: Callable[[], Iterator[DataRow]]
    has_loss: bool = True

    @property
    def target(self) -> str | None:
        """What the loss is per."""
        return self.task.target if self.has_loss else None

    def batch(self, rows: Sequence[DataRow], site: str) -> LossBatch:
        """Rows with the same key, with the tokens that a site has vectors for."""
        model = self.model.model
        if self.has_loss:
            batch: Any = self.task.loss_batch(model, rows)
            tokens, targets, call = batch.tokens_at(site), batch.targets, partial(self.task.loss, model, batch)
        else:
            self.check_encoder_site(site)
            read = self.task.encoder_input(model, rows)
            tokens, targets = read.inputs if self.task.noun == "texts" else None, 0
            call = partial(encoder_of(model).features, read.inputs, read.context)

        def loss() -> float:
            found = call()
            return float(found) if self.has_loss else 0.0

        target_tokenizer = self.model.target_tokenizer if site.startswith("decoder.") else None
        tokenizer = target_tokenizer or self.model.tokenizer
        ids = [()] * len(rows) if tokens is None else [tuple(row) for row in tokens.tolist()]
        return LossBatch(
            loss, targets, [RowTokens(one.name, row, tokenizer) for one, row in zip(rows, ids, strict=True)]
        )

    def check_encoder_site(self, site: str) -> None:
        """Refuses a site of a decoder, or of another input."""
        model, noun = self.model.model, self.task.noun
        module, _ = sites_of(model)[site]
        if module not in set(encoder_of(model).modules()):
            near = layers_of(model, encoder_of(model))[-1]
            said = f"{site!r} shows nothing where {noun} are read and nothing is written about them"
            raise UserError(said, do=f"give {noun} with texts about them, or another site=, such as {near}")


def loss_source(model: Model, query: EvalQuery, named: str = "the model") -> LossSource:
    """The batches of a model, with a loss wherever the data says what is right; errors call the model `named`."""
    first = query.first if mentions_texts(query) else None
    described = first is not None and first.kind not in (DataKind.IMAGES, DataKind.SOUNDS)
    if model.task.has_loss(model.model, described):
        task, data = query.fitted(model, first or query.first, named)
        task = task.without_augmentation()
        return LossSource(data.description, model, task, partial(task.loss_rows, model.model, data))
    places = [query.records] if isinstance(query, RecordsQuery) else query.paths
    if len(places) != 1:
        raise UserError(f"{len(places)} files or folders", allowed="one, where nothing says what is right")
    [place], task = places, model.task.without_augmentation()
    inputs = inputs_of(samples_in(place), task)
    description = query.first.description if isinstance(query, RecordsQuery) else str(place)
    if task.unlabelled_rows(()) is None:
        return LossSource(description, model, task, partial(task.encoder_rows, model.model, inputs), has_loss=False)
    return LossSource(description, model, task, lambda: task.unlabelled_rows(inputs) or iter(()))


def mentions_texts(query: EvalQuery) -> bool:
    """Whether there may be texts about images or sounds: in a table, in their names, or as the user said."""
    if isinstance(query, RecordsQuery):
        return all(len(record.fields) > 1 for record in query.records)
    if query.task or query.columns or query.label_from:
        return True
    return any(is_table(path) or bool((pool := pool_at(path)) and tables_of(pool)) for path in query.paths)


def check_query(query: EvalQuery) -> None:
    """Reports what is wrong with data as far as that can be seen without the model."""
    data_kind(query.task)
    if not (query.paths or (isinstance(query, RecordsQuery) and query.records)):
        raise UserError("no data was given", do=NO_DATA)
    absent = next((path for path in query.paths if not path.exists()), None)
    if absent is not None and not is_builtin(query.paths):
        raise UserError(f"{absent} does not exist", do=NO_DATA)


def equal_length_batches(rows: Iterable[DataRow]) -> Iterator[list[DataRow]]:
    """Rows with the same key, as many as a batch takes."""
    for _, same in groupby(sorted(rows, key=lambda row: row.key), lambda row: row.key):
        together = list(same)
        yield from batched(together, max(1, min(MAX_ROWS, MAX_TOKENS // max(1, together[0].size))))


@torch.inference_mode()
def mean_loss(batches: Sequence[LossBatch]) -> float:
    """The loss of a target."""
    return sum(batch.loss() for batch in batches) / max(1, sum(batch.targets for batch in batches))
