"""A sparse autoencoder of what a site of a model holds of data, and what activates each of its features.

Every tenth row of the data is held out, to measure how much of the variance the SAE explains, and how much the loss of
the model increases when the vectors of the site are replaced by their reconstructions; for comparison, by their mean
and by zeros.

Axes:  N vectors   C width   A features
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import log10
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from headway.errors import UserError
from headway.figures import BarChart, Drawing, LineChart, Panel, Plot, printable
from headway.inspect.ablation import edited
from headway.inspect.activations import one_site, query_of, vector_edit
from headway.inspect.loss_batches import LossBatch, RowTokens, SiteVectors, check_query, collect, loss_source, mean_loss
from headway.inspect.presentation import LazyModel, Result, format_number, resolve, table
from headway.inspect.sparse_autoencoder import (
    CHUNK,
    Penalty,
    SAEConfig,
    SAEQuality,
    SAEStep,
    SAETraining,
    SparseAutoencoder,
    Sparseness,
    Top,
    quality,
    train_sae,
    usage,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DEFAULT_TOP = 16  # features for each vector, where neither `top` nor `l1` is given
MAX_FEATURES, MAX_EXAMPLES = 16, 5  # the most frequent features, and activations of each
BEFORE, AFTER = 12, 6  # tokens of context around an activation
TEXT_CONTEXT, FIGURE_CONTEXT = 28, 10  # characters on either side of a token
FIGURE_FEATURES = 12  # with a line in the figure
COLUMNS = (-0.1, 0.0, 0.18, 0.6)  # of such a line


def sae(
    model: LazyModel,
    data: Any,
    site: str,
    *,
    task: str | None = None,
    columns: str | None = None,
    header: str | None = None,
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
    `task`, `columns`, `header` and `label_from` are those of `headway.evaluate`: a path or several, or an iterable of
    records.  Errors call the model `named`.
    """
    sparse, training = sparseness(top, l1), SAETraining(steps=steps, seed=seed)
    SAEConfig(1, atoms, sparse)  # sizes are checked before the model is loaded
    check_output(vectors, out)
    query = query_of(data, task=task, columns=columns, header=header, label_from=label_from)
    check_query(query)
    loaded = resolve(model)
    name = one_site(loaded.model, site)
    source = loss_source(loaded, query, named)
    collected = collect(loaded.model, name, source, vectors)
    config = SAEConfig(collected.vectors.shape[1], atoms, sparse, name)
    trained, history = train_sae(collected.training, config, training, callback)
    if out is not None:
        trained.save(out)
    good = quality(trained, collected.training, collected.held_out)
    lost = (
        None if source.target is None else replacement_losses(loaded.model, trained, collected.batches, source.target)
    )
    shares, features = most_frequent(trained, collected)
    return SAEResult(source.description, config, training, collected.counts, history, good, lost, shares, features, out)


def sparseness(top: int | None, l1: float | None) -> Sparseness:
    if top is not None and l1 is not None:
        raise UserError("top= and l1= are two kinds of sparsity", do="give one of them")
    return Top(DEFAULT_TOP if top is None else top) if l1 is None else Penalty(l1)


def check_output(vectors: int, out: Path | None) -> None:
    if vectors < 2:
        raise UserError(f"vectors={vectors}", allowed="2 or more")
    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} is there already", do="name a new or empty folder")


def replacement_losses(
    model: nn.Module, trained: SparseAutoencoder, batches: Sequence[LossBatch], target: str
) -> ReplacementLosses:
    """The loss on held-out rows, unchanged and with each vector of the site replaced."""
    site = trained.config.site

    def mean(x: Tensor) -> Tensor:
        return trained.centre.to(x.dtype).expand_as(x)

    losses = [mean_loss(batches)]
    for change in (trained, mean, torch.zeros_like):
        with edited(model, {site: vector_edit(site, change)}):
            losses.append(mean_loss(batches))
    return ReplacementLosses(target, *losses)


@torch.no_grad()
def most_frequent(trained: SparseAutoencoder, collected: SiteVectors) -> tuple[list[float], list[Feature]]:
    """The share of vectors in which each feature is active, and the most frequent ones with their top activations."""
    shares = usage(trained, collected.vectors) / len(collected.vectors)  # A
    best = [one for one in shares.argsort(descending=True, stable=True)[:MAX_FEATURES].tolist() if shares[one] > 0]
    codes = torch.cat([trained.codes(chunk)[:, best] for chunk in collected.vectors.split(CHUNK)])  # N MAX_FEATURES
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


class Activation(NamedTuple):
    """Where a feature is active: its code, the token, and the context."""

    code: float
    token: str
    before: str = ""
    after: str = ""

    def to_text(self, context: int = TEXT_CONTEXT) -> str:
        """The token in brackets, with so many characters on either side."""
        return f"{printable(self.before[-context:])}[{printable(self.token)}]{printable(self.after[:context])}"


class Feature(NamedTuple):
    """One feature: the share of vectors in which it is active, and its top activations."""

    number: int
    share: float
    places: list[Activation]

    def to_text(self) -> str:
        lines = [f"  {format_number(place.code, '.2f'):>6}  {place.to_text()}" for place in self.places]
        return "\n".join([f"feature {self.number}, active in {100 * self.share:.1f} % of the vectors", *lines])


class ReplacementLosses(NamedTuple):
    """The loss per `target` on held-out rows: of the model unchanged, and with the vectors of the site replaced."""

    target: str
    whole: float
    rebuilt: float
    mean: float
    zero: float

    @property
    def recovered(self) -> float:
        """The share of the loss increase by zeros that the reconstruction avoids: 1 where nothing is lost."""
        lost = self.zero - self.whole
        return (self.zero - self.rebuilt) / lost if lost else float("nan")

    def data(self) -> dict[str, Any]:
        losses = {name: value for name, value in self._asdict().items() if name != "target"}
        return {"per": self.target, **losses, "recovered": self.recovered}

    def to_text(self) -> str:
        rows = [
            ("original", self.whole, ""),
            ("SAE reconstruction", self.rebuilt, f"{format_number(100 * self.recovered, '.1f')} % recovered"),
            ("mean", self.mean, ""),
            ("zeros", self.zero, ""),
        ]
        return table(["activations", f"loss per {self.target}", ""], rows)


@dataclass(frozen=True, eq=False)
class SAEResult(Result):
    """An SAE's sizes, its training history, and how good it is."""

    description: str  # of the data
    config: SAEConfig
    training: SAETraining
    vectors: tuple[int, int]  # for training, and held out
    history: Sequence[SAEStep]
    quality: SAEQuality
    losses: ReplacementLosses | None
    shares: Sequence[float]  # A, of vectors in which each feature is active
    features: Sequence[Feature]  # the most frequent
    out: Path | None

    def data(self) -> dict[str, Any]:
        quality, sparse = self.quality, self.config.sparse
        return {
            "data": self.description,
            "site": self.config.site,
            "width": self.config.dim,
            "vectors": {"learned": self.vectors[0], "held": self.vectors[1], "left": quality.left},
            "atoms": self.config.atoms,
            **({"top": sparse.count} if isinstance(sparse, Top) else {"l1": getattr(sparse, "weight", None)}),
            "steps": self.training.steps,
            "seed": self.training.seed,
            "explained": quality.explained,
            "explained_by_principal": quality.principal,
            "components": quality.components,
            "active": quality.active,
            "dead": quality.dead,
            "revived": self.resampled,
            "loss": None if self.losses is None else self.losses.data(),
            "curve": list(self.history),
            "most_used": [{"atom": one.number, "share": one.share, "places": one.places} for one in self.features],
            "out": self.out,
        }

    @property
    def resampled(self) -> int:
        return sum(step.revived for step in self.history)

    def blocks(self) -> Iterator[str]:
        training, held = self.vectors
        config, quality = self.config, self.quality
        sizes = f"{training:,} vectors of width {config.dim} at {config.site} for training, {held:,} held out"
        outliers = f"; {quality.left:,} outliers, many times longer than all others, left out" if quality.left else ""
        principal = f"by {quality.components} principal components: {format_number(quality.principal)}"
        rows = [
            ("explained variance", format_number(quality.explained), principal),
            ("active features", format_number(quality.active, ".1f"), f"of {config.atoms:,}, for each vector"),
            ("dead features", f"{quality.dead:,}", f"{self.resampled:,} resampled during training"),
        ]
        yield self.description
        yield sizes + outliers
        yield "\n".join(f"{name:<18}  {value:>7}  {note}" for name, value, note in rows)
        if self.losses is not None:
            yield self.losses.to_text()
        yield from (feature.to_text() for feature in self.features)
        if self.out is not None:
            yield f"dictionary: {self.out}"

    def plot(self) -> Plot:
        steps = [f"{step.step:,}" for step in self.history]
        lines = {
            "explained variance of a batch": [step.explained for step in self.history],
            "dead features": [step.dead / self.config.atoms for step in self.history],
        }
        level = {f"{self.quality.components} principal components": self.quality.principal}
        panels: list[Panel] = [
            LineChart("training, by step", steps, lines, level, "share"),
            Drawing("feature frequency", self.draw_frequencies),
            Drawing("top activations", self.draw_activations),
        ]
        if self.losses is not None:
            names, values = ["original", "SAE", "mean", "zeros"], list(self.losses[1:])
            panels.append(BarChart("replaced activations", names, values, f"loss per {self.losses.target}"))
        explained = format_number(self.quality.explained)
        title = f"SAE of {self.config.site}, {self.config.atoms} features: explained variance {explained}"
        return Plot(title, panels, columns=2)

    def draw_frequencies(self, axes: Axes) -> None:
        """How many features are active in which share of the vectors; dead ones are in the legend."""
        alive = [log10(share) for share in self.shares if share > 0]
        axes.hist(alive, bins=30, color="C0", label=f"{len(alive):,} alive")
        axes.plot([], [], " ", label=f"{len(self.shares) - len(alive):,} dead")
        axes.set_xlabel("share of vectors with the feature active, log₁₀")
        axes.set_ylabel("features")
        axes.legend(frameon=False)

    def draw_activations(self, axes: Axes) -> None:
        """A line for each feature: its frequency, and its two top activations."""
        axes.set_axis_off()
        for line, one in enumerate(self.features[:FIGURE_FEATURES]):
            height = 1 - (line + 0.5) / FIGURE_FEATURES
            examples = (place.to_text(FIGURE_CONTEXT) for place in one.places[:2])
            texts = [f"{one.number}", f"{100 * one.share:.1f} %", *examples]
            for column, text in zip(COLUMNS, texts, strict=False):
                colour = "0.4" if column < COLUMNS[2] else "0.0"
                axes.text(column, height, printable(text), transform=axes.transAxes, va="center", color=colour)
