"""A sparse dictionary is learned from vectors, by Adam; and how good it is on vectors that it has not seen.

The loss is the mean of ‖x − x̂‖² + what the codes cost.  An atom that nothing has used for a while is dead: no gradient
reaches it any more.  It is revived as what is missing of a vector that is told badly (Bricken et al. 2023), with a
probability that grows with the square of the error.

Axes:  N vectors   B batch   C width   A atoms
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import cos, pi

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.data.keyed import keyed
from headway.errors import UserError
from headway.inspect.dictionary import Config, Dictionary

LOOKS = 10  # times that dead atoms are looked for, in the first part of the steps
SOON = 10  # steps, within which an atom may rest without being dead
REVIVING = 0.8  # of the steps; in the others atoms find their place
PIECE = 4096  # vectors that are told at a time
SHORTER = 0.8  # a revived encoder than the others: at 1 it pushes good atoms out, at 0.5 and less it dies again
LEAST = 2  # vectors, below which nothing can be learned


@dataclass(frozen=True)
class Practice:
    """How a dictionary is learned."""

    steps: int = 2000
    batch: int = 512
    rate: float = 5e-3  # 0.963 of the variance of a small GPT after 600 steps; 0.952 at 2e-3, and 1e-2 kills atoms
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "batch"):
            if getattr(self, name) < 1:
                raise UserError(f"{name}={getattr(self, name)}", allowed="1 or more")
        if not self.rate > 0:
            raise UserError(f"rate={self.rate:g}", allowed="above 0")

    def rate_at(self, step: int) -> float:
        """Rises over the first twentieth of the steps, then falls to 0 along a cosine."""
        warm = max(1, self.steps // 20)
        return self.rate * min(1.0, (step + 1) / warm) * 0.5 * (1 + cos(pi * step / self.steps))

    @property
    def pause(self) -> int:
        """Steps between two looks for dead atoms."""
        return max(SOON, int(REVIVING * self.steps) // LOOKS)


@dataclass(frozen=True)
class Moment:
    """How it stands at a step: of its batch the share of variance that is told, and the codes of a vector."""

    step: int
    explained: float
    active: float
    dead: int  # atoms that nothing has used since the last look
    revived: int  # of them, now


@dataclass(frozen=True)
class Quality:
    """What a dictionary makes of vectors that it has not learned from."""

    explained: float  # share of the variance
    active: float  # atoms of a vector, on average
    dead: int  # atoms that no vector uses, of these or of those that were learned from
    left: int  # vectors that are too long to be any of its business
    principal: float  # the share that as many principal directions explain

    @property
    def components(self) -> int:
        return max(1, round(self.active))


def learn(
    vectors: Tensor, config: Config, practice: Practice, tell: Callable[[Moment], None] = lambda moment: None
) -> tuple[Dictionary, list[Moment]]:
    """A dictionary of vectors, N C, and how it came about, look by look."""
    check(vectors, config)
    random = torch.Generator().manual_seed(keyed("dictionary", practice.seed))
    made = Dictionary(config, random)
    made.fit_to(vectors)
    inner = made.inner(vectors[made.usual(vectors)])
    optimiser = torch.optim.Adam(made.parameters(), practice.rate)
    moments, used = list[Moment](), torch.zeros(config.atoms, dtype=torch.bool)
    for step in range(practice.steps):
        x = inner[torch.randint(len(inner), (practice.batch,), generator=random)]
        optimiser.param_groups[0]["lr"] = practice.rate_at(step)
        codes, error = stepped(made, x, optimiser)
        used |= (codes > 0).any(0)
        if (step + 1) % practice.pause == 0 or step + 1 == practice.steps:
            dead = (~used).nonzero()[:, 0]
            revives = step + 1 <= REVIVING * practice.steps and len(dead) > 0
            if revives:
                revive(made, dead, inner, optimiser, random)
            explained, active = 1 - float(error / x.square().sum()), float((codes > 0).sum(1).float().mean())
            moments.append(Moment(step + 1, explained, active, len(dead), len(dead) if revives else 0))
            tell(moments[-1])
            used = torch.zeros_like(used)
    return made.eval().requires_grad_(False), moments


def stepped(made: Dictionary, x: Tensor, optimiser: torch.optim.Adam) -> tuple[Tensor, Tensor]:
    """One step on a batch, B C: the codes, and the squared error of all vectors together."""
    codes = made.encode(x)
    error = (made.decode(codes) - x).square().sum()
    (error / len(x) + made.config.sparse.cost(codes)).backward()
    optimiser.step()
    optimiser.zero_grad()
    made.normalise()
    return codes.detach(), error.detach()


@torch.no_grad()
def revive(made: Dictionary, dead: Tensor, inner: Tensor, optimiser: torch.optim.Adam, random: torch.Generator) -> None:
    """Makes dead atoms anew, of what is missing of vectors that are told badly."""
    some = inner[torch.randint(len(inner), (PIECE,), generator=random)]
    missing = some - made.decode(made.encode(some))
    chances = missing.square().sum(1).square() + 1e-12
    picks = torch.multinomial(chances, len(dead), replacement=len(dead) > len(some), generator=random)
    alive = torch.ones(len(made.bias), dtype=torch.bool).index_fill(0, dead, False)
    length = made.encoder[alive].norm(dim=1).mean() if bool(alive.any()) else 1.0
    made.atoms[dead] = F.normalize(missing[picks], dim=1)
    made.encoder[dead] = made.atoms[dead] * (SHORTER * length)
    made.bias[dead] = 0.0
    for parameter in made.parameters():  # what Adam remembers of them is of other atoms
        for remembered in optimiser.state[parameter].values():
            if remembered.dim() > 0:
                remembered[dead] = 0.0


@torch.no_grad()
def quality(made: Dictionary, learned: Tensor, held: Tensor) -> Quality:
    """Measured on the vectors `held`, N C; principal directions are those of the vectors `learned`."""
    learned, usual = learned[made.usual(learned)], held[made.usual(held)]
    if len(usual) < LEAST:
        raise UserError(f"{len(usual)} vectors to measure on", allowed=f"{LEAST} or more", do="give more data")
    error = sum(float((made(some) - some).double().square().sum()) for some in usual.split(PIECE))
    used, used_before = usage(made, usual), usage(made, learned)
    mean = float(used.sum()) / len(usual)
    principal = explained_by_principal(learned, usual, max(1, round(mean)))
    dead = int(((used + used_before) == 0).sum())
    return Quality(1 - error / variance(usual), mean, dead, len(held) - len(usual), principal)


@torch.no_grad()
def usage(made: Dictionary, vectors: Tensor) -> Tensor:
    """How many vectors (N C) use each atom, A."""
    return torch.stack([(made.codes(some) > 0).sum(0) for some in vectors.split(PIECE)]).sum(0)


def explained_by_principal(learned: Tensor, held: Tensor, count: int) -> float:
    """The share of the variance of `held` in the `count` directions in which `learned` varies most."""
    centre = learned.mean(0)
    around = (learned - centre).double()
    directions = torch.linalg.eigh(around.mT @ around).eigenvectors[:, -count:]  # C count, the largest last
    missing = (held - centre).double()
    missing = missing - missing @ directions @ directions.mT
    return 1 - float(missing.square().sum()) / variance(held)


def variance(vectors: Tensor) -> float:
    """Σ ‖x − mean‖²"""
    return float((vectors - vectors.mean(0)).double().square().sum())


def check(vectors: Tensor, config: Config) -> None:
    if vectors.dim() != 2 or vectors.shape[1] != config.dim:
        raise UserError(f"vectors are {tuple(vectors.shape)}", allowed=f"N {config.dim}")
    if len(vectors) < LEAST:
        raise UserError(f"{len(vectors)} vectors to learn from", allowed=f"{LEAST} or more", do="give more data")
    if not bool(vectors.isfinite().all()):
        raise UserError("some vectors hold numbers that are not finite", do="check the model, or choose another --site")
