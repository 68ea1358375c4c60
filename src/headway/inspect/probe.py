"""Linear probes: what can be read off a layer by a linear classifier alone.

    minimise  Σ cross-entropy(W x + b) + ½ · ridge · ‖W‖²      x in units of its own spread

It has one minimum, so that a probe's accuracy is a fact about the layer and not about how it was searched for.  How
large the ridge should be depends on the layer: of a few it is the one that does best on a part of what is learned from.

Axes:  N samples   C width   K classes
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.data.keyed import shuffled
from headway.errors import UserError, listed

STEPS = 500  # of L-BFGS at most; a few dozen are usual
SHARE = 0.2  # of the samples that are held out
SEED = 0
RIDGES = (1.0, 10.0, 100.0, 1000.0)


@dataclass(frozen=True, eq=False)
class Probe:
    """W (K C) and b (K) for vectors from which `mean` is taken and which are divided by `spread` (C each)."""

    weight: Tensor
    bias: Tensor
    mean: Tensor
    spread: Tensor

    def logits(self, x: Tensor) -> Tensor:
        """N C → N K"""
        return F.linear((x.double() - self.mean) / self.spread, self.weight, self.bias)

    def accuracy(self, x: Tensor, wanted: Tensor) -> float:
        """The share of N vectors whose class (N) is the likeliest."""
        return float((self.logits(x).argmax(-1) == wanted).double().mean())

    def loss(self, x: Tensor, wanted: Tensor) -> float:
        """The mean cross-entropy of the classes (N) of N vectors."""
        return float(F.cross_entropy(self.logits(x), wanted))


def fit(x: Tensor, wanted: Tensor, classes: int, ridge: float = 1.0) -> Probe:
    """The probe of N vectors (N C) and their classes (N)."""
    x = x.detach().double()
    mean, spread = x.mean(0), x.std(0, correction=0)
    spread = torch.where(spread > 1e-12 * x.abs().amax(0), spread, 1.0)  # what never changes says nothing
    told = (x - mean) / spread
    weight = told.new_zeros(classes, x.shape[1], requires_grad=True)
    bias = told.new_zeros(classes, requires_grad=True)
    search = torch.optim.LBFGS(
        [weight, bias], max_iter=STEPS, tolerance_grad=1e-6, tolerance_change=1e-12, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        search.zero_grad()
        found = objective(weight, bias, told, wanted, ridge)
        found.backward()
        return found

    with torch.enable_grad():
        search.step(loss)
    return Probe(weight.detach(), bias.detach(), mean, spread)


def objective(weight: Tensor, bias: Tensor, x: Tensor, wanted: Tensor, ridge: float) -> Tensor:
    """What is minimised: a sum over samples, so that more of them outweigh the ridge."""
    return F.cross_entropy(F.linear(x, weight, bias), wanted, reduction="sum") + 0.5 * ridge * weight.square().sum()


@dataclass(frozen=True, eq=False)
class Split:
    """Samples to learn from and samples to be tried on, as indices, and the classes of all as numbers."""

    labels: tuple[str, ...]
    wanted: Tensor  # N
    learned: Tensor
    tried: Tensor

    @staticmethod
    def of(named: Sequence[str]) -> Split:
        """A fifth of each class is held out, always the same one."""
        counts = Counter(named)
        check(counts)
        labels = tuple(sorted(counts))
        wanted = torch.tensor([labels.index(name) for name in named])
        learned, tried = list[int](), list[int]()
        for at, label in enumerate(labels):
            members = (wanted == at).nonzero()[:, 0][torch.from_numpy(shuffled(counts[label], "probe", SEED, label))]
            held = max(1, round(SHARE * len(members))) if len(members) > 1 else 0  # one alone can only be learned
            tried += members[:held].tolist()
            learned += members[held:].tolist()
        return Split(labels, wanted, torch.tensor(learned), torch.tensor(tried))

    @property
    def majority(self) -> float:
        """The accuracy of whoever always says the class that is most frequent among what is learned from."""
        usual = self.wanted[self.learned].bincount().argmax()
        return float((self.wanted[self.tried] == usual).double().mean())

    def probed(self, x: Tensor, ridge: float | None = None) -> Probed:
        """How well the classes can be read off N vectors, N C; the ridge is chosen unless it is given."""
        ridge = self.best_ridge(x) if ridge is None else ridge
        probe = self.fit(x, self.learned, ridge)
        learned, tried = (probe.accuracy(x[at], self.wanted[at]) for at in (self.learned, self.tried))
        return Probed(tried, learned, ridge)

    def best_ridge(self, x: Tensor) -> float:
        """The ridge with which a probe of four fifths of what is learned from foresees the last fifth best."""
        held = torch.arange(len(self.learned)) % round(1 / SHARE) == 0  # classes lie one after the other
        rest, tried = self.learned[~held], self.learned[held]
        losses = {ridge: self.fit(x, rest, ridge).loss(x[tried], self.wanted[tried]) for ridge in RIDGES}
        return min(losses, key=losses.__getitem__)

    def fit(self, x: Tensor, at: Tensor, ridge: float) -> Probe:
        return fit(x[at], self.wanted[at], len(self.labels), ridge)


@dataclass(frozen=True)
class Probed:
    """The accuracy on what was held out, and on what was learned from."""

    accuracy: float
    learned: float
    ridge: float


def check(counts: Counter[str]) -> None:
    if len(counts) < 2:
        said = f"all {sum(counts.values())} samples are of one class, {listed(counts)!r}" if counts else "no samples"
        raise UserError(said, allowed="2 classes or more", do="give samples of several classes")
    if max(counts.values()) < 2:
        raise UserError("no class has more than one sample", do="give several samples of each class")
