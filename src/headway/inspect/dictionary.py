"""A sparse dictionary (sparse autoencoder): each vector as the sum of a few out of many atoms.

x ≈ centre + scale · Σ codes · atoms, where codes = sparse(relu(W (x − centre) / scale + b)) are 0 but for a few.  Atoms
have length 1, so that a code is how much of its atom a vector has.  What keeps codes few is a choice: `Top` keeps the
largest, `Penalty` makes each of them cost something.

Some models have a few vectors many times longer than all others (of a first token, to which heads look that look at
nothing).  A dictionary would be about these alone, so vectors beyond `limit` are none of its business: they stay.

Axes:  N vectors   C width   A atoms
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import UserError
from headway.files import read_json, write_json
from headway.interop.weights import read_weights, write_weights
from headway.nn.model import tensors_of
from headway.zoo.plain import from_plain, to_plain

LAYOUT = 1  # of a dictionary's folder; what is newer is refused
BEYOND = 10.0  # times the usual length: sinks of GPT-2 are 30 to 50 times as long, words differ by less than 3


@dataclass(frozen=True)
class Sparseness:
    """What keeps the codes of a vector few."""

    def kept(self, codes: Tensor) -> Tensor:
        """The codes that stay, N A → N A; none is below zero."""
        raise NotImplementedError

    def cost(self, codes: Tensor) -> Tensor:
        """What they cost besides the squared error, N A → a number."""
        raise NotImplementedError


@dataclass(frozen=True)
class Top(Sparseness):
    """The `count` largest codes of a vector stay."""

    count: int = 16

    def __post_init__(self) -> None:
        if self.count < 1:
            raise UserError(f"{self.count} atoms for each vector", allowed="1 or more")

    def kept(self, codes: Tensor) -> Tensor:
        if self.count >= codes.shape[-1]:
            return codes
        largest = codes.topk(self.count, sorted=False)
        return torch.zeros_like(codes).scatter(-1, largest.indices, largest.values)

    def cost(self, codes: Tensor) -> Tensor:
        return codes.new_zeros(())


@dataclass(frozen=True)
class Penalty(Sparseness):
    """All codes stay, and each costs `weight` times its size (L1), where the mean vector has a squared length of 1."""

    weight: float = 0.1

    def __post_init__(self) -> None:
        if not 0.0 < self.weight < float("inf"):
            raise UserError(f"a penalty of {self.weight:g}", allowed="a number above 0, such as 0.1")

    def kept(self, codes: Tensor) -> Tensor:
        return codes

    def cost(self, codes: Tensor) -> Tensor:
        return self.weight * codes.sum(-1).mean()


@dataclass(frozen=True)
class Config:
    """The sizes of a dictionary, its choice, and the site whose vectors it is made of."""

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


class Dictionary(nn.Module):
    """centre + scale · codes @ atoms: … C → … C, each vector as its few atoms tell it.

    `encoder` starts as the atoms themselves, which are drawn by chance.
    """

    centre: Tensor  # C
    scale: Tensor
    limit: Tensor

    def __init__(self, config: Config, random: torch.Generator | None = None):
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
        return torch.where(self.usual(x)[..., None], rebuilt.to(x.dtype), x)

    def codes(self, x: Tensor) -> Tensor:
        """How much of each atom is in each vector, … C → … A."""
        return self.encode(self.inner(x))

    def inner(self, x: Tensor) -> Tensor:
        """Vectors as the dictionary measures them: around 0, with a squared length of 1 on average."""
        return (x.to(self.centre.dtype) - self.centre) / self.scale

    def encode(self, inner: Tensor) -> Tensor:
        return self.config.sparse.kept(F.relu(F.linear(inner, self.encoder, self.bias)))

    def decode(self, codes: Tensor) -> Tensor:
        return codes @ self.atoms

    def usual(self, x: Tensor) -> Tensor:
        """Which vectors are not many times longer than all others, … C → …"""
        return x.to(self.limit.dtype).norm(dim=-1) <= self.limit

    @torch.no_grad()
    def fit_to(self, vectors: Tensor) -> None:
        """Takes centre, scale and limit from vectors, N C."""
        self.limit.copy_(BEYOND * vectors.norm(dim=1).median())
        usual = vectors[self.usual(vectors)]
        self.centre.copy_(usual.mean(0))
        spread = (usual - self.centre).square().sum(1).mean().sqrt()
        if not spread > 0 or not spread.isfinite():
            raise UserError(f"{len(vectors):,} vectors that are all the same", do="choose another --site, or more data")
        self.scale.copy_(spread)

    @torch.no_grad()
    def normalise(self) -> None:
        """Gives atoms the length 1 again after a step."""
        self.atoms.copy_(F.normalize(self.atoms, dim=1))

    def save(self, folder: Path) -> None:
        """Writes config.json and model.safetensors."""
        folder.mkdir(parents=True, exist_ok=True)
        write_weights(folder, tensors_of(self))
        write_json(folder / "config.json", {"headway_dictionary": LAYOUT, **to_plain(self.config)})

    def extra_repr(self) -> str:
        return f"{self.config.atoms} atoms of width {self.config.dim}, {self.config.sparse}"


def load_dictionary(folder: Path) -> Dictionary:
    """A dictionary that `Dictionary.save` has written."""
    values = read_json(folder / "config.json")
    layout = values.pop("headway_dictionary", None)
    if layout != LAYOUT:
        said = "is no dictionary's" if layout is None else f"is of layout {layout!r}"
        raise UserError(f"{folder / 'config.json'} {said}", do="give a folder that headway inspect dictionary has made")
    absent = [name for name in ("dim", "atoms", "sparse") if name not in values]
    if absent:
        raise UserError(f"{folder / 'config.json'} has no {absent[0]!r}", do="make the dictionary again")
    made, tensors = Dictionary(from_plain(Config, values)), read_weights(folder)
    meant = {name: tensor.shape for name, tensor in made.state_dict().items()}
    if meant != {name: tensor.shape for name, tensor in tensors.items()}:
        raise UserError(f"the tensors in {folder} are not those of its config.json", do="make the dictionary again")
    made.load_state_dict(tensors)
    return made.eval()
