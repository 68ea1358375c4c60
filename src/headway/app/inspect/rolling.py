"""Attention rolled out over one recording: along each set of tokens, and from a decoder across to its encoder.

As heads look (`Looked`), or only as far as that speaks for one outcome (`Spoken`).

Axes:  H heads   T tokens, of a target where there are two   S tokens of a source
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from headway.app.inspect.towards import Derived
from headway.errors import UserError
from headway.inspect.rollout import (
    Across,
    Own,
    Reach,
    gradient_rollout,
    gradient_rollout_across,
    identity,
    rollout,
    rollout_across,
)
from headway.look.attended import LONG, Attended
from headway.look.axis import Axis, Cells


def shared_axes(read: Attended) -> dict[Axis, list[str]]:
    """The sites of self-attention along each axis, of which there must be some, and none too long."""
    found = read.along()
    if not found:
        raise UserError("this model has no self-attention to roll out", do="see headway inspect heads")
    longest = max(map(len, found))
    if longest > LONG:
        said = f"the input has {longest:,} tokens, and a rollout of them is a matrix of their square for each layer"
        raise UserError(said, allowed=f"up to {LONG:,} tokens", do="shorten it; headway inspect heads takes any length")
    return found


@dataclass(frozen=True, eq=False)
class Crossing:
    """The sites of a decoder in their order, over its own tokens (`rows`) and `across`, at those of an encoder.

    `hidden` is how many of the encoder's tokens come before those that the decoder is shown: a class token.
    """

    rows: Axis
    columns: Axis
    sites: tuple[str, ...]
    across: frozenset[str]
    hidden: int

    def layers(self, weights: Callable[[str], Tensor]) -> list[Own | Across]:
        return [
            Across(self.placed(weights(site))) if site in self.across else Own(weights(site)) for site in self.sites
        ]

    def placed(self, weights: Tensor) -> Tensor:
        """Weights at what the decoder is shown, as weights at all tokens of the encoder."""
        return F.pad(weights, (self.hidden, 0))


def crossing_of(read: Attended, families: Mapping[Axis, Sequence[str]]) -> Crossing | None:
    """The way from a decoder to its encoder; None where there is no decoder that looks at itself and at a memory.

    A memory whose own tokens do not attend, as that of convolutions, is followed no further than to itself.
    """
    axes = read.scene.axes
    rows, memory = axes.streams.get("decoder"), axes.memory
    across = [name for name, site in read.sites.items() if site.rows == axes.written and site.columns == memory]
    if rows is None or memory is None or rows not in families or not across:
        return None
    columns = next((axis for axis in families if axis == memory or shows(axis, memory)), memory)
    sites = tuple(name for name in read.sites if name in (*families[rows], *across))
    return Crossing(rows, columns, sites, frozenset(across), len(columns) - len(memory))


def shows(axis: Axis, memory: Axis) -> bool:
    """Whether a memory is the cells of an axis that has tokens of other kinds before them."""
    return isinstance(axis, Cells) and isinstance(memory, Cells) and axis.grid == memory.grid and memory.first == 0


class Rolling(ABC):
    """A way to roll attention out."""

    @abstractmethod
    def along(self, sites: Sequence[str]) -> list[Tensor]:
        """T T after each site of self-attention that shares its tokens with the others."""

    @abstractmethod
    def across(self, crossing: Crossing, memory: Tensor) -> list[Reach]:
        """What is in the tokens of a decoder after each of its sites, where `memory` (S S) is in its encoder's."""

    @abstractmethod
    def told(self, within: Tensor) -> Tensor:
        """What is told of tokens among themselves, T T."""


@dataclass(frozen=True, eq=False)
class Looked(Rolling):
    """As heads look."""

    read: Attended

    def along(self, sites: Sequence[str]) -> list[Tensor]:
        return rollout([self.read.mean(site) for site in sites])

    def across(self, crossing: Crossing, memory: Tensor) -> list[Reach]:
        return rollout_across(crossing.layers(self.read.mean), memory)

    def told(self, within: Tensor) -> Tensor:
        return within


@dataclass(frozen=True, eq=False)
class Spoken(Rolling):
    """As far as what heads look at speaks for a target, beyond what each token is to itself."""

    found: Mapping[str, Derived]

    def along(self, sites: Sequence[str]) -> list[Tensor]:
        return gradient_rollout(
            [self.found[site].weights for site in sites], [self.found[site].gradient for site in sites]
        )

    def across(self, crossing: Crossing, memory: Tensor) -> list[Reach]:
        layers = crossing.layers(lambda site: self.found[site].weights)
        gradients = [
            crossing.placed(self.found[site].gradient) if site in crossing.across else self.found[site].gradient
            for site in crossing.sites
        ]
        return gradient_rollout_across(layers, gradients, memory)

    def told(self, within: Tensor) -> Tensor:
        return within - identity(within)
