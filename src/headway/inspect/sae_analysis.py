"""A sparse autoencoder of what a site of a model holds of data, and what activates each of its features.

Rows are drawn from many more, because files are often sorted by class.  Every tenth is held out, to measure how much of
the variance the SAE explains, and how much the loss of the model increases when the vectors of the site are replaced by
their reconstructions; for comparison, by their mean and by zeros.

Axes:  N vectors   C width   A features
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headway.data.rng import shuffled
from headway.errors import UserError
from headway.inspect.ablation import edited
from headway.inspect.activations import one_site, query_of, token_vectors, vector_edit
from headway.inspect.loss_batches import (
    LossBatch,
    LossSource,
    RowTokens,
    check_query,
    equal_length_batches,
    loss_source,
    mean_loss,
)
from headway.inspect.presentation import LazyModel, resolve
from headway.inspect.sae_result import Activation, Feature, ReplacementLosses, SAEResult
from headway.inspect.sparse_autoencoder import (
    CHUNK,
    Penalty,
    SAEConfig,
    SAEStep,
    SAETraining,
    SparseAutoencoder,
    Sparseness,
    Top,
    quality,
    train_sae,
    usage,
)
from headway.nn.trace import record
from headway.tasks.inspection import DataRow

DEFAULT_TOP = 16  # features for each vector, where neither `top` nor `l1` is given
MAX_FEATURES, MAX_EXAMPLES = 16, 5  # the most frequent features, and activations of each
BEFORE, AFTER = 12, 6  # tokens of context around an activation
READ_AHEAD = 20  # times as many tokens are read as are drawn
HOLD_OUT_EVERY = 10  # rows
PORTION_TOKENS, PORTION_ROWS = 8192, 20  # rows that are sorted by length together, at least

TensorTriple = tuple[Tensor, Tensor, Tensor]  # vectors, numbers of their rows, positions in these


def sae(
    model: LazyModel,
    data: Any,
    site: str,
    *,
    task: str | None = None,
    columns: str | None = None,
    label_from: str | None = None,
    atoms: int = 512,
    top: int | None = None,
    l1: float | None = None,
    steps: int = 2000,
    seed: int = 0,
    vectors: int = 50_000,
    out: Path | None = None,
    callback: Callable[[SAEStep], None] = lambda step: None,
    named: str = "the model",
) -> SAEResult:
    """Trains an SAE of `atoms` features on about `vectors` vectors of a site, and writes it to the folder `out`.

    Sparsity is either `top`, the number of features of each vector, or `l1`, the weight of an L1 penalty.  `data`,
    `task`, `columns` and `label_from` are those of `headway.evaluate`: a path or several, or an iterable of records.
    Errors call the model `named`.
    """
    sparse, training = sparseness(top, l1), SAETraining(steps=steps, seed=seed)
    SAEConfig(1, atoms, sparse)  # sizes are checked before the model is loaded
    check_output(vectors, out)
    query = query_of(data, task=task, columns=columns, label_from=label_from)
    check_query(query)
    loaded = resolve(model)
    name = one_site(loaded.model, site)
    source = loss_source(loaded, query, named)
    collected = collect(loaded.model, name, source, vectors)
    config = SAEConfig(collected.vectors.shape[1], atoms, sparse, name)
    made, history = train_sae(collected.training, config, training, callback)
    if out is not None:
        made.save(out)
    good = quality(made, collected.training, collected.held_out)
    lost = None if source.target is None else replacement_losses(loaded.model, made, collected.batches, source.target)
    shares, features = most_frequent(made, collected)
    return SAEResult(source.why, config, training, collected.counts, history, good, lost, shares, features, out)


def sparseness(top: int | None, l1: float | None) -> Sparseness:
    if top is not None and l1 is not None:
        raise UserError("top= and l1= are two kinds of sparsity", do="give one of them")
    return Top(DEFAULT_TOP if top is None else top) if l1 is None else Penalty(l1)


def check_output(vectors: int, out: Path | None) -> None:
    if vectors < 2:
        raise UserError(f"vectors={vectors}", allowed="2 or more")
    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} is there already", do="name a new or empty folder")


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
    while some := list(islice(rows, PORTION_ROWS)):
        room = PORTION_TOKENS - sum(row.size for row in some)
        while room > 0 and (more := next(rows, None)) is not None:
            some.append(more)
            room -= more.size
        yield some


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


# ---- what an SAE has learned


def replacement_losses(
    model: nn.Module, made: SparseAutoencoder, batches: Sequence[LossBatch], target: str
) -> ReplacementLosses:
    """The loss on held-out rows, unchanged and with each vector of the site replaced."""
    site = made.config.site

    def mean(x: Tensor) -> Tensor:
        return made.centre.to(x.dtype).expand_as(x)

    losses = [mean_loss(batches)]
    for change in (made, mean, torch.zeros_like):
        with edited(model, {site: vector_edit(site, change)}):
            losses.append(mean_loss(batches))
    return ReplacementLosses(target, *losses)


@torch.no_grad()
def most_frequent(made: SparseAutoencoder, collected: SiteVectors) -> tuple[list[float], list[Feature]]:
    """The share of vectors in which each feature is active, and the most frequent ones with their top activations."""
    shares = usage(made, collected.vectors) / len(collected.vectors)  # A
    best = [one for one in shares.argsort(descending=True, stable=True)[:MAX_FEATURES].tolist() if shares[one] > 0]
    codes = torch.cat([made.codes(some)[:, best] for some in collected.vectors.split(CHUNK)])  # N MAX_FEATURES
    found = [Feature(one, float(shares[one]), top_activations(codes[:, at], collected)) for at, one in enumerate(best)]
    return shares.tolist(), found


def top_activations(codes: Tensor, collected: SiteVectors) -> list[Activation]:
    """The largest codes (N) of a feature, at most one of a row."""
    found: dict[int, Activation] = {}
    for at in codes.argsort(descending=True, stable=True).tolist():
        row = int(collected.owners[at])
        if len(found) == MAX_EXAMPLES or not codes[at] > 0:
            break
        if row not in found:
            found[row] = activation_in(collected.rows[row], int(collected.positions[at]), float(codes[at]))
    return list(found.values())


def activation_in(row: RowTokens, at: int, code: float) -> Activation:
    """A token with its context, or the row's name where it has no tokens."""
    if row.tokenizer is None or at >= len(row.ids):
        return Activation(code, row.name, after=f" at {at}")
    first = max(0, at - BEFORE)
    stream = row.tokenizer.stream()
    # a token without a text of its own is shown as the vocabulary spells it
    texts = [stream.push(id) or row.tokenizer.token(id) for id in row.ids[first : at + 1 + AFTER]]
    return Activation(code, texts[at - first], "".join(texts[: at - first]), "".join(texts[at - first + 1 :]))
