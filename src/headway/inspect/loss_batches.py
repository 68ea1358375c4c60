"""Data as batches of a model with their loss, where the data says what is right; else as batches that are only read.

The rows of a batch have equal lengths.  So nothing is padded or packed, every site holds real tokens only, and these
come row by row.  `collect` runs batches and gathers the vectors of a site; its rows are drawn from many more, because
files are often sorted by class.

Axes:  N vectors   C width   B rows of a batch   T tokens
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headway.data.kinds import LABELLED, SCORED
from headway.data.order import batched, shuffled
from headway.data.recognise_media import is_table, pool_at, tables_of
from headway.data.records import is_builtin
from headway.data.tokenizer import Tokenizer
from headway.errors import UserError
from headway.evaluation import EvalQuery
from headway.inspect.activations import RecordsQuery, inputs_of, layers_of, samples_in, token_vectors
from headway.model import Model
from headway.nn.trace import record, sites_of
from headway.nn.trunk import encoder_of
from headway.tasks.base import Task
from headway.tasks.batches import DataRow
from headway.tasks.registry import data_kind

MAX_TOKENS, MAX_ROWS = 4096, 64  # of a batch
READ_AHEAD = 20  # times as many tokens are read as are drawn
HOLD_OUT_EVERY = 10  # rows
PORTION_TOKENS, PORTION_ROWS = 8192, 20  # rows that are sorted by length together, at least
NO_DATA = "name a file or folder of what the model reads"

TensorTriple = tuple[Tensor, Tensor, Tensor]  # vectors, numbers of their rows, positions in these


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

    description: str  # of the data
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
            call = partial(encoder_of(model).features, read.inputs, read.context, *read.marks)

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
    described = first is not None and first.kind not in LABELLED | SCORED
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
    if query.task or query.columns or query.header or query.label_from:
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


# ---- vectors of a site


@dataclass(frozen=True, eq=False)
class SiteVectors:
    """Vectors N C, those of held-out rows last; `batches` are those of the held-out rows."""

    vectors: Tensor
    owners: Tensor  # N, numbers of rows
    positions: Tensor  # N, among the vectors of a row
    rows: Sequence[RowTokens]
    held: int  # vectors of held-out rows
    batches: Sequence[LossBatch]

    @property
    def counts(self) -> tuple[int, int]:
        """Vectors for training, and held out."""
        return len(self.training), len(self.held_out)

    @property
    def training(self) -> Tensor:
        return self.vectors[: len(self.vectors) - self.held]

    @property
    def held_out(self) -> Tensor:
        return self.vectors[len(self.vectors) - self.held :]


def collect(model: nn.Module, site: str, source: LossSource, most: int) -> SiteVectors:
    """About `most` vectors of a site, or all of the data."""
    training, held = list[TensorTriple](), list[TensorTriple]()
    rows, batches = list[RowTokens](), list[LossBatch]()
    for portion in portions(draw_rows(source.rows(), READ_AHEAD * most)):
        for part, found in zip(hold_out(portion), (training, held), strict=True):
            for same in equal_length_batches(part):
                batch = source.batch(same, site)
                found += batch_vectors(model, site, batch, len(rows))
                rows += batch.rows
                batches += [batch] if found is held else []
        if sum(len(vectors) for vectors, _, _ in (*training, *held)) >= most:
            break
    if not (training and held):
        said = "the data is a single row, and one to learn from and one to measure on are needed"
        raise UserError(said, do="give more data")
    vectors, owners, positions = map(torch.cat, zip(*training, *held, strict=True))
    return SiteVectors(vectors, owners, positions, rows, sum(len(one) for one, _, _ in held), batches)


def draw_rows(rows: Iterator[DataRow], tokens: int) -> Iterator[DataRow]:
    """The first rows of about so many tokens, shuffled, always in the same order."""
    pool = list[DataRow]()
    for row in rows:
        pool.append(row)
        tokens -= row.size
        if tokens <= 0:
            break
    return (pool[at] for at in shuffled(len(pool), "gathered").tolist())


def portions(rows: Iterator[DataRow]) -> Iterator[list[DataRow]]:
    """Rows in order, some thousands of tokens at a time; more than one row wherever there is more than one."""
    while portion := list(islice(rows, PORTION_ROWS)):
        room = PORTION_TOKENS - sum(row.size for row in portion)
        while room > 0 and (more := next(rows, None)) is not None:
            portion.append(more)
            room -= more.size
        yield portion


def hold_out(portion: Sequence[DataRow]) -> tuple[list[DataRow], list[DataRow]]:
    """Rows for training, and held out: the last of every ten; of fewer the last, if there are two."""
    every = range(len(portion))
    held = every[HOLD_OUT_EVERY - 1 :: HOLD_OUT_EVERY] or every[1:][-1:]
    return [portion[at] for at in every if at not in held], [portion[at] for at in held]


@torch.no_grad()
def batch_vectors(model: nn.Module, site: str, batch: LossBatch, first: int) -> list[TensorTriple]:
    """Runs a batch: the vectors of the site, N C, the numbers of their rows, from `first` on, and positions in these.

    A site that is called several times has several vectors for each token.
    """
    with record(model, site) as trace:
        batch.loss()
    found, count = list[TensorTriple](), len(batch.rows)
    for value in trace.all(site):
        vectors = token_vectors(site, value).float()
        each, rest = divmod(len(vectors), count)
        if rest:
            raise UserError(f"{site!r} shows {len(vectors)} vectors of {count} rows", do="choose another site=")
        owners = first + torch.arange(count).repeat_interleave(each)
        found.append((vectors, owners, torch.arange(each).repeat(count)))
    return found
