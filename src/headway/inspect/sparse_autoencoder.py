"""Sparse autoencoder (SAE, dictionary learning): each vector as the sum of a few out of many features.

x ≈ centre + scale · Σ codes · atoms, where codes = sparse(relu(W (x − centre) / scale + b)) are mostly 0.  The rows of
the decoder, `atoms`, have norm 1, so that a code is the activation of its feature.  Sparsity is a choice: `Top` keeps
the k largest codes, `Penalty` adds an L1 term to the loss.

The loss is the mean of ‖x − x̂‖² + the cost of the codes, minimised by Adam.  A feature that no vector has activated for
a while is dead: it gets no gradient.  It is resampled as the residual of a vector that is reconstructed badly (Bricken
et al. 2023), with a probability that grows with the square of the error.

Some models have a few vectors many times longer than all others (of a first token that serves as an attention sink).
An SAE would represent these alone, so vectors beyond `limit` are left out: they pass unchanged.

Axes:  N vectors   B batch   C width   A features (atoms)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import cos, pi
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.data.order import keyed
from headway.errors import UserError
from headway.inspect.presentation import check_counts
from headway.interop.weights import read_weights, write_weights
from headway.nn.trunk import tensors_of
from headway.ops.principal_components import principal_directions
from headway.system import read_json, write_json
from headway.zoo.build import from_plain, to_plain

LAYOUT = 1  # of an SAE's folder; what is newer is refused
OUTLIER = 10.0  # times the median norm: sinks of GPT-2 are 30 to 50 times as long, words differ by less than 3
CHECKS = 10  # for dead features, in the first part of the steps
MIN_INTERVAL = 10  # steps within which a feature may be silent without being dead
RESAMPLING = 0.8  # of the steps; in the rest features converge
CHUNK = 4096  # vectors that are encoded at a time
ENCODER_SCALE = 0.8  # of a resampled encoder row to the others: at 1 it displaces good features, at 0.5 it dies again
MIN_VECTORS = 2


@dataclass(frozen=True)
class Sparseness:
    """How codes are kept sparse; by default, not at all."""

    def sparsify(self, codes: Tensor) -> Tensor:
        """Sets all but some codes to 0, N A → N A; none is negative."""
        return codes

    def cost(self, codes: Tensor) -> Tensor:
        """The term that they add to the squared error, N A → a number."""
        return codes.new_zeros(())


@dataclass(frozen=True)
class Top(Sparseness):
    """Keeps the `count` largest codes of a vector (k-sparse)."""

    count: int = 16

    def __post_init__(self) -> None:
        if self.count < 1:
            raise UserError(f"{self.count} atoms for each vector", allowed="1 or more")

    def sparsify(self, codes: Tensor) -> Tensor:
        if self.count >= codes.shape[-1]:
            return codes
        largest = codes.topk(self.count, sorted=False)
        return torch.zeros_like(codes).scatter(-1, largest.indices, largest.values)


@dataclass(frozen=True)
class Penalty(Sparseness):
    """Keeps all codes, with an L1 penalty of `weight`; vectors have a mean squared norm of 1."""

    weight: float = 0.1

    def __post_init__(self) -> None:
        if not 0.0 < self.weight < float("inf"):
            raise UserError(f"a penalty of {self.weight:g}", allowed="a number above 0, such as 0.1")

    def cost(self, codes: Tensor) -> Tensor:
        return self.weight * codes.sum(-1).mean()


@dataclass(frozen=True)
class SAEConfig:
    """Sizes and sparsity of an SAE, and the site of its vectors; its file has the same names."""

    dim: int
    atoms: int
    sparse: Sparseness
    site: str = ""

    def __post_init__(self) -> None:
        if self.dim < 1 or self.atoms < 1:
            raise UserError(f"{self.atoms} atoms for vectors of width {self.dim}", allowed="1 or more of each")
        if isinstance(self.sparse, Top) and self.sparse.count > self.atoms:
            said = f"{self.sparse.count} atoms for each vector out of {self.atoms}"
            raise UserError(said, allowed=f"1 to {self.atoms}", do="give fewer to each, or more atoms")


class SparseAutoencoder(nn.Module):
    """centre + scale · codes @ atoms: … C → … C, the reconstruction of each vector.

    `encoder` is initialised as the atoms, which are random.
    """

    centre: Tensor  # C
    scale: Tensor
    limit: Tensor

    def __init__(self, config: SAEConfig, random: torch.Generator | None = None):
        super().__init__()
        self.config = config
        self.atoms = nn.Parameter(F.normalize(torch.randn(config.atoms, config.dim, generator=random), dim=1))  # A C
        self.encoder = nn.Parameter(self.atoms.detach().clone())  # A C
        self.bias = nn.Parameter(torch.zeros(config.atoms))  # A
        self.register_buffer("centre", torch.zeros(config.dim))
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("limit", torch.full((), float("inf")))

    def forward(self, x: Tensor) -> Tensor:
        rebuilt = self.centre + self.scale * self.decode(self.codes(x))
        return torch.where(self.inlier(x)[..., None], rebuilt.to(x.dtype), x)

    def codes(self, x: Tensor) -> Tensor:
        """The feature activations of each vector, … C → … A."""
        return self.encode(self.normalised(x))

    def normalised(self, x: Tensor) -> Tensor:
        """Vectors around 0, with a mean squared norm of 1."""
        return (x.to(self.centre.dtype) - self.centre) / self.scale

    def encode(self, x: Tensor) -> Tensor:
        return self.config.sparse.sparsify(F.relu(F.linear(x, self.encoder, self.bias)))

    def decode(self, codes: Tensor) -> Tensor:
        return codes @ self.atoms

    def inlier(self, x: Tensor) -> Tensor:
        """Which vectors are not many times longer than all others, … C → …"""
        return x.to(self.limit.dtype).norm(dim=-1) <= self.limit

    @torch.no_grad()
    def fit_to(self, vectors: Tensor) -> None:
        """Sets centre, scale and limit from vectors, N C."""
        self.limit.copy_(OUTLIER * vectors.norm(dim=1).median())
        inliers = vectors[self.inlier(vectors)]
        self.centre.copy_(inliers.mean(0))
        spread = (inliers - self.centre).square().sum(1).mean().sqrt()
        if not spread > 0 or not spread.isfinite():
            raise UserError(f"{len(vectors):,} vectors that are all the same", do="choose another site=, or more data")
        self.scale.copy_(spread)

    def save(self, folder: Path) -> None:
        """Writes config.json and model.safetensors."""
        folder.mkdir(parents=True, exist_ok=True)
        write_weights(folder, tensors_of(self))
        write_json(folder / "config.json", {"headway_dictionary": LAYOUT, **to_plain(self.config)})

    def extra_repr(self) -> str:
        return f"{self.config.atoms} features of width {self.config.dim}, {self.config.sparse}"


def load_sae(folder: Path) -> SparseAutoencoder:
    """An SAE that `SparseAutoencoder.save` has written."""
    values = read_json(folder / "config.json")
    layout = values.pop("headway_dictionary", None)
    if layout != LAYOUT:
        said = "is no dictionary's" if layout is None else f"is of layout {layout!r}"
        raise UserError(f"{folder / 'config.json'} {said}", do="give a folder that headway inspect dictionary has made")
    absent = [name for name in ("dim", "atoms", "sparse") if name not in values]
    if absent:
        raise UserError(f"{folder / 'config.json'} has no {absent[0]!r}", do="make the dictionary again")
    sae, tensors = SparseAutoencoder(from_plain(SAEConfig, values)), read_weights(folder)
    expected = {name: tensor.shape for name, tensor in sae.state_dict().items()}
    if expected != {name: tensor.shape for name, tensor in tensors.items()}:
        raise UserError(f"the tensors in {folder} are not those of its config.json", do="make the dictionary again")
    sae.load_state_dict(tensors)
    return sae.eval()


@dataclass(frozen=True)
class SAETraining:
    """How an SAE is trained."""

    steps: int = 2000
    batch: int = 512
    lr: float = 5e-3  # 0.963 of the variance of a small GPT after 600 steps; 0.952 at 2e-3, and 1e-2 kills features
    seed: int = 0

    def __post_init__(self) -> None:
        check_counts(steps=self.steps, batch=self.batch)
        if not self.lr > 0:
            raise UserError(f"lr={self.lr:g}", allowed="above 0")

    def lr_at(self, step: int) -> float:
        """Linear warmup over the first twentieth of the steps, then cosine decay to 0."""
        warm = max(1, self.steps // 20)
        return self.lr * min(1.0, (step + 1) / warm) * 0.5 * (1 + cos(pi * step / self.steps))

    @property
    def interval(self) -> int:
        """Steps between two checks for dead features."""
        return max(MIN_INTERVAL, int(RESAMPLING * self.steps) // CHECKS)


@dataclass(frozen=True)
class SAEStep:
    """A step of training: explained variance of its batch, and active features of a vector."""

    step: int
    explained: float
    active: float
    dead: int  # features that were not active since the last check
    revived: int  # of them, resampled now


@dataclass(frozen=True)
class SAEQuality:
    """How well an SAE represents held-out vectors."""

    explained: float  # share of the variance
    active: float  # features of a vector, on average
    dead: int  # features that no vector activates, held out or not
    left: int  # outliers, which pass unchanged
    principal: float  # the share that as many principal components explain

    @property
    def components(self) -> int:
        return max(1, round(self.active))


def train_sae(
    vectors: Tensor, config: SAEConfig, training: SAETraining, callback: Callable[[SAEStep], None] = lambda step: None
) -> tuple[SparseAutoencoder, list[SAEStep]]:
    """An SAE of vectors, N C, and its training history."""
    if vectors.dim() != 2 or vectors.shape[1] != config.dim:
        raise UserError(f"vectors are {tuple(vectors.shape)}", allowed=f"N {config.dim}")
    if len(vectors) < MIN_VECTORS:
        raise UserError(f"{len(vectors)} vectors to learn from", allowed=f"{MIN_VECTORS} or more", do="give more data")
    if not bool(vectors.isfinite().all()):
        raise UserError("some vectors hold numbers that are not finite", do="check the model, or choose another site=")
    random = torch.Generator().manual_seed(keyed("dictionary", training.seed))
    sae = SparseAutoencoder(config, random)
    sae.fit_to(vectors)
    inputs = sae.normalised(vectors[sae.inlier(vectors)])
    optimiser = torch.optim.Adam(sae.parameters(), training.lr)
    history, used = list[SAEStep](), torch.zeros(config.atoms, dtype=torch.bool)
    for step in range(training.steps):
        x = inputs[torch.randint(len(inputs), (training.batch,), generator=random)]
        optimiser.param_groups[0]["lr"] = training.lr_at(step)
        codes, error = train_step(sae, x, optimiser)
        used |= (codes > 0).any(0)
        if (step + 1) % training.interval == 0 or step + 1 == training.steps:
            dead = (~used).nonzero()[:, 0]
            resamples = step + 1 <= RESAMPLING * training.steps and len(dead) > 0
            if resamples:
                resample(sae, dead, inputs, optimiser, random)
            explained, active = 1 - float(error / x.square().sum()), float((codes > 0).sum(1).float().mean())
            history.append(SAEStep(step + 1, explained, active, len(dead), len(dead) if resamples else 0))
            callback(history[-1])
            used = torch.zeros_like(used)
    return sae.eval().requires_grad_(False), history


def train_step(sae: SparseAutoencoder, x: Tensor, optimiser: torch.optim.Adam) -> tuple[Tensor, Tensor]:
    """One step on a batch, B C: the codes, and the summed squared error.  Atoms are rescaled to norm 1."""
    codes = sae.encode(x)
    error = (sae.decode(codes) - x).square().sum()
    (error / len(x) + sae.config.sparse.cost(codes)).backward()
    optimiser.step()
    optimiser.zero_grad()
    with torch.no_grad():
        sae.atoms.copy_(F.normalize(sae.atoms, dim=1))
    return codes.detach(), error.detach()


@torch.no_grad()
def resample(
    sae: SparseAutoencoder, dead: Tensor, inputs: Tensor, optimiser: torch.optim.Adam, random: torch.Generator
) -> None:
    """Replaces dead features by residuals of vectors with a large error."""
    chunk = inputs[torch.randint(len(inputs), (CHUNK,), generator=random)]
    residual = chunk - sae.decode(sae.encode(chunk))
    probabilities = residual.square().sum(1).square() + 1e-12
    picks = torch.multinomial(probabilities, len(dead), replacement=len(dead) > len(chunk), generator=random)
    alive = torch.ones(len(sae.bias), dtype=torch.bool).index_fill(0, dead, False)
    length = sae.encoder[alive].norm(dim=1).mean() if bool(alive.any()) else 1.0
    sae.atoms[dead] = F.normalize(residual[picks], dim=1)
    sae.encoder[dead] = sae.atoms[dead] * (ENCODER_SCALE * length)
    sae.bias[dead] = 0.0
    for parameter in sae.parameters():  # the moments in Adam are those of the old features
        for moment in optimiser.state[parameter].values():
            if moment.dim() > 0:
                moment[dead] = 0.0


@torch.no_grad()
def quality(sae: SparseAutoencoder, learned: Tensor, held: Tensor) -> SAEQuality:
    """Measured on the vectors `held`, N C; principal components are those of the vectors `learned`."""
    learned, inliers = learned[sae.inlier(learned)], held[sae.inlier(held)]
    if len(inliers) < MIN_VECTORS:
        raise UserError(f"{len(inliers)} vectors to measure on", allowed=f"{MIN_VECTORS} or more", do="give more data")
    error = sum(float((sae(chunk) - chunk).double().square().sum()) for chunk in inliers.split(CHUNK))
    used = usage(sae, inliers)
    active, dead = float(used.sum()) / len(inliers), int(((used + usage(sae, learned)) == 0).sum())
    principal = explained_by_principal(learned, inliers, max(1, round(active)))
    return SAEQuality(1 - error / variance(inliers), active, dead, len(held) - len(inliers), principal)


@torch.no_grad()
def usage(sae: SparseAutoencoder, vectors: Tensor) -> Tensor:
    """How many vectors (N C) activate each feature, A."""
    return torch.stack([(sae.codes(chunk) > 0).sum(0) for chunk in vectors.split(CHUNK)]).sum(0)


def explained_by_principal(learned: Tensor, held: Tensor, count: int) -> float:
    """The share of the variance of `held` that the first `count` principal components of `learned` explain."""
    centre = learned.mean(0)
    around = (learned - centre).double()
    directions = principal_directions(around, count)
    residual = (held - centre).double()
    residual = residual - residual @ directions @ directions.mT
    return 1 - float(residual.square().sum()) / variance(held)


def variance(vectors: Tensor) -> float:
    """Σ ‖x − mean‖²"""
    return float((vectors - vectors.mean(0)).double().square().sum())
