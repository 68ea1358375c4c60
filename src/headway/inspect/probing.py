"""Linear probes: how well a linear classifier predicts classes from a layer.

    minimise  Σ cross-entropy(W x + b) + ½ · ridge · ‖W‖²      x standardised

The objective is convex, so a probe's accuracy is a property of the layer and not of the optimiser.  The best ridge
penalty depends on the layer: it is chosen from a few values on a part of the training samples.

Axes:  N samples   C width   K classes
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.data.kinds import LABELLED, DataKind
from headway.data.order import shuffled
from headway.errors import UserError, listed
from headway.figures import LineChart, Plot
from headway.inspect.activations import Samples, layer_means, query_of, subsample
from headway.inspect.presentation import LazyModel, Result, resolve, table

MAX_ITERATIONS = 500  # of L-BFGS; a few dozen are usual
HELD_OUT = 0.2  # of the samples
SEED = 0
RIDGES = (1.0, 10.0, 100.0, 1000.0)


def probe(
    model: LazyModel,
    data: Any,
    *,
    task: str | None = None,
    columns: str | None = None,
    header: str | None = None,
    label_from: str | None = None,
    most: int = 2000,
    ridge: float | None = None,
) -> ProbeResult:
    """Fits a linear probe of the classes of labelled data to each layer; `columns` as in text,label.

    `data` is a path, or an iterable of records: an input and its class each.
    """
    if ridge is not None and ridge <= 0:
        raise UserError(f"ridge={ridge:g}", allowed="a number above 0", do="without it, a probe has no one answer")
    query = query_of(data, task=task, columns=columns, header=header, label_from=label_from)
    found, source = query.first, query.paths[0] if query.paths else Path("records")
    if found.kind is DataKind.PAIRS and task is None:  # two columns of texts may be texts and their classes
        found = query.read(DataKind.LABELS)
    if not (found.kind in LABELLED if query.paths else all(len(record.fields) == 2 for record in found)):
        do = "give labelled texts, images, sounds or numbers"
        raise UserError(f"{found.description}: a probe needs classes", do=do)
    kept = subsample(found, lambda record: record.fields[0], most)
    split = ProbeSplit.of([record.fields[1] for record in kept])
    samples = Samples(tuple(record.handed[0] for record in kept), found.kind if query.paths else None, source)
    layers = layer_means(resolve(model), samples)
    return ProbeResult({name: split.probed(x, ridge) for name, x in layers.items()}, split, found.description)


@dataclass(frozen=True, eq=False)
class LinearProbe:
    """W (K C) and b (K) for vectors standardised by `mean` and `spread` (C each)."""

    weight: Tensor
    bias: Tensor
    mean: Tensor
    spread: Tensor

    def logits(self, x: Tensor) -> Tensor:
        """N C → N K"""
        return F.linear((x.double() - self.mean) / self.spread, self.weight, self.bias)

    def accuracy(self, x: Tensor, targets: Tensor) -> float:
        """The share of N vectors whose class (N) has the largest logit."""
        return float((self.logits(x).argmax(-1) == targets).double().mean())

    def loss(self, x: Tensor, targets: Tensor) -> float:
        """The mean cross-entropy of the classes (N) of N vectors."""
        return float(F.cross_entropy(self.logits(x), targets))


def fit_probe(x: Tensor, targets: Tensor, classes: int, ridge: float = 1.0) -> LinearProbe:
    """The probe fitted to N vectors (N C) and their classes (N)."""
    x = x.detach().double()
    mean, spread = x.mean(0), x.std(0, correction=0)
    spread = torch.where(spread > 1e-12 * x.abs().amax(0), spread, 1.0)  # a constant dimension is left as it is
    inputs = (x - mean) / spread
    weight = inputs.new_zeros(classes, x.shape[1], requires_grad=True)
    bias = inputs.new_zeros(classes, requires_grad=True)
    search = torch.optim.LBFGS(
        [weight, bias],
        max_iter=MAX_ITERATIONS,
        tolerance_grad=1e-6,
        tolerance_change=1e-12,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        search.zero_grad()
        found = objective(weight, bias, inputs, targets, ridge)
        found.backward()
        return found

    with torch.enable_grad():
        search.step(loss)
    return LinearProbe(weight.detach(), bias.detach(), mean, spread)


def objective(weight: Tensor, bias: Tensor, x: Tensor, targets: Tensor, ridge: float) -> Tensor:
    """What is minimised: a sum over samples, so that the data outweighs the ridge."""
    return F.cross_entropy(F.linear(x, weight, bias), targets, reduction="sum") + 0.5 * ridge * weight.square().sum()


@dataclass(frozen=True, eq=False)
class ProbeSplit:
    """Indices of training and held-out samples, and the class numbers of all."""

    labels: tuple[str, ...]
    targets: Tensor  # N
    training: Tensor
    held_out: Tensor

    @staticmethod
    def of(named: Sequence[str]) -> ProbeSplit:
        """Holds out a fifth of each class, always the same."""
        counts = Counter(named)
        if len(counts) < 2:
            said = f"all {len(named)} samples are of one class, {listed(counts)!r}" if named else "no samples"
            raise UserError(said, allowed="2 classes or more", do="give samples of several classes")
        if max(counts.values()) < 2:
            raise UserError("no class has more than one sample", do="give several samples of each class")
        labels = tuple(sorted(counts))
        targets = torch.tensor([labels.index(name) for name in named])
        training, held_out = list[int](), list[int]()
        for at, label in enumerate(labels):
            members = (targets == at).nonzero()[:, 0][torch.from_numpy(shuffled(counts[label], "probe", SEED, label))]
            held = max(1, round(HELD_OUT * len(members))) if len(members) > 1 else 0  # a single one is for training
            held_out += members[:held].tolist()
            training += members[held:].tolist()
        return ProbeSplit(labels, targets, torch.tensor(training), torch.tensor(held_out))

    @property
    def majority(self) -> float:
        """The held-out accuracy of always predicting the most frequent class of the training samples."""
        usual = self.targets[self.training].bincount().argmax()
        return float((self.targets[self.held_out] == usual).double().mean())

    def probed(self, x: Tensor, ridge: float | None = None) -> ProbeAccuracy:
        """The accuracy of a probe of N vectors, N C; the ridge is chosen unless it is given."""
        ridge = self.best_ridge(x) if ridge is None else ridge
        probe = self.fit(x, self.training, ridge)
        learned, tried = (probe.accuracy(x[at], self.targets[at]) for at in (self.training, self.held_out))
        return ProbeAccuracy(tried, learned, ridge)

    def best_ridge(self, x: Tensor) -> float:
        """The ridge with the lowest loss on a fifth of the training samples, after fitting to the rest."""
        held = torch.arange(len(self.training)) % round(1 / HELD_OUT) == 0  # samples are ordered by class
        rest, tried = self.training[~held], self.training[held]
        losses = {ridge: self.fit(x, rest, ridge).loss(x[tried], self.targets[tried]) for ridge in RIDGES}
        return min(losses, key=losses.__getitem__)

    def fit(self, x: Tensor, at: Tensor, ridge: float) -> LinearProbe:
        return fit_probe(x[at], self.targets[at], len(self.labels), ridge)


@dataclass(frozen=True)
class ProbeAccuracy:
    """The accuracy on held-out samples, and on those `learned` from."""

    accuracy: float
    learned: float
    ridge: float


@dataclass(frozen=True, eq=False)
class ProbeResult(Result):
    layers: Mapping[str, ProbeAccuracy]
    split: ProbeSplit
    description: str  # of the data

    def data(self) -> dict[str, Any]:
        return {
            "data": self.description,
            "learned": len(self.split.training),
            "held": len(self.split.held_out),
            "classes": self.split.labels,
            "majority": self.split.majority,
            "layers": [{"layer": name, **vars(one)} for name, one in self.layers.items()],
        }

    def blocks(self) -> Iterator[str]:
        sizes = f"trained on {len(self.split.training):,} samples, evaluated on {len(self.split.held_out):,}"
        rows = [(name, one.accuracy, one.learned, f"{one.ridge:g}") for name, one in self.layers.items()]
        yield self.description
        yield f"{len(self.split.labels)} classes; {sizes}"
        header = ("layer", "held-out accuracy", "training accuracy", "ridge")
        yield table(header, [*rows, ("(majority class)", self.split.majority, "", "")])

    def plot(self) -> Plot:
        lines = {
            "held out": [one.accuracy for one in self.layers.values()],
            "training": [one.learned for one in self.layers.values()],
        }
        levels = {"majority class": self.split.majority}
        return Plot("linear probes", [LineChart("", list(self.layers), lines, levels, "accuracy")])
