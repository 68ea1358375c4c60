"""One input as a model read it: every map in the coordinates of the input, what came out, and what else would have.

Axes:  H heads   T queries   S keys
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from operator import index
from typing import SupportsIndex

import torch
from torch import Tensor

from headway.errors import UserError, listed
from headway.inspect.edits import Edit, How
from headway.inspect.rollout import mean_of_heads, rollout
from headway.look.axis import Axis
from headway.look.detail import Detail, detail_of
from headway.look.outcome import Outcome, Picture, Sound, Step
from headway.look.placed import Tiling
from headway.look.said import Said
from headway.look.scene import Scene, Spot, laid, spots
from headway.nn.trace import Trace, record, unmatched
from headway.ops.map import AttentionMap
from headway.ops.reading import Readable, Weights

__all__ = ["Attended", "Change", "Outcome", "Picture", "Site", "Sound", "Step", "read_by"]

LONG = 2048  # rows of a map that is rolled out: a layer of them is 16 MB


@dataclass(frozen=True, eq=False)
class Site:
    """The attention at one place of a model: a map 1 H T S whose rows and columns are those of the axes."""

    name: str
    rows: Axis
    columns: Axis
    map: Readable

    @property
    def heads(self) -> int:
        return self.map.shape[1]

    def head(self, number: object) -> int:
        """The number of one of its heads, checked, whoever gives it."""
        # True is an int, and no head
        if isinstance(number, bool) or not isinstance(number, SupportsIndex) or index(number) not in range(self.heads):
            raise UserError(f"{self.name} has no head {number!r}", allowed=f"0 to {self.heads - 1}")
        return index(number)


@dataclass(frozen=True)
class Change:
    """An edit of one head of one site."""

    site: str
    head: int
    how: How


@dataclass(frozen=True, eq=False)
class Source:
    """Where a site's map comes from: a spot of the model, which of its calls, of how many, and how it was cut."""

    spot: Spot
    turn: int
    turns: int
    tiling: Tiling | None


@dataclass(frozen=True, eq=False, repr=False)
class Attended:
    """A model's reading of one input.  `attended["decoder.1.cross"]` is a lazy map over what was read and written."""

    title: str
    input: str
    architecture: str
    parameters: int
    sites: Mapping[str, Site]
    outcome: Outcome
    picture: Picture | None
    sound: Sound | None
    scene: Scene  # settled: it knows what was said
    sources: Mapping[str, Source]

    def __repr__(self) -> str:
        heads = sum(site.heads for site in self.sites.values())
        told = f"{self.title}: {self.input[:60]!r} → {self.outcome.text[:60]!r}"
        return f"<{told}, {heads} heads at {len(self.sites)} sites: {listed(self.sites)}>"

    def __getitem__(self, name: str) -> Readable:
        return self.sites[self.resolve(name)].map

    @property
    def said(self) -> Said | None:
        """What was written and read, for another model to read the same; None where nothing is written."""
        said = self.scene.said
        return said if said is None or said.by is not None else replace(said, by=self.title)

    @property
    def follows(self) -> Said | None:
        """What another model wrote, where that was read; None where the model read its own words, or none."""
        said = self.scene.said
        return None if said is None or said.by is None else said

    def resolve(self, name: str) -> str:
        """The name of a site, which may be told with `.weights` behind it."""
        found = name.removesuffix(".weights")
        if found not in self.sites:
            raise unmatched(name, list(self.sites))
        return found

    @torch.no_grad()
    def edited(self, *changes: Change) -> Outcome:
        """The outcome with just these edits.  `total` scores what was said before them; the text is a new one."""
        edits = self.edits(changes)
        with record(self.scene.model, *edits, edit=edits):
            return self.scene.told.outcome(self.scene.call())

    @torch.no_grad()
    def effect(self, *changes: Change) -> float:
        """By how much edits change the score of what was said: one run, nothing is written anew."""
        edits = self.edits(changes)
        with record(self.scene.model, *edits, edit=edits):
            found = self.scene.call()
        return self.scene.told.outcome(found, self.outcome.text).total - self.outcome.total

    def edits(self, changes: Iterable[Change]) -> dict[str, Edit]:
        """Changes as edits by the names of their sites' weights; those of one site follow each other."""
        found: dict[str, Edit] = {}
        for change in changes:
            name = self.resolve(change.site)
            source = self.sources[name]
            edit = in_turn(change.how(self.sites[name].head(change.head)), source.turn, source.turns)
            weights = weights_of(source.spot)
            found[weights] = then(found[weights], edit) if weights in found else edit
        return found

    def along(self) -> dict[Axis, list[str]]:
        """The sites of self-attention along each axis, the first layer first."""
        found: dict[Axis, list[str]] = {}
        for name, site in self.sites.items():
            if site.rows == site.columns:
                found.setdefault(site.rows, []).append(name)
        return found

    def mean(self, site: str) -> Tensor:
        """The mean of a site's heads, T S, taken at once: all heads of all layers may be much."""
        return mean_of_heads(self.sites[site].map.full()[0])

    def rollout(self) -> Mapping[str, Site]:
        """Attention rollout up to each layer, one head, where sites of self-attention share an axis.

        Axes of more than 2,048 rows are left out: each layer of such a rollout would be a matrix of 16 MB or more.
        """
        found: dict[str, Site] = {}
        for axis, sites in self.along().items():
            if len(axis) <= LONG:
                for site, rolled in zip(sites, rollout([self.mean(site) for site in sites]), strict=True):
                    name = f"rollout.{site}"
                    found[name] = Site(name, axis, axis, Weights(rolled[None, None]))
        return found

    def detail(self, site: str) -> Detail:
        """How a site came by its weights, with the actual numbers: the model is run again to record them."""
        return self.details(site)[self.resolve(site)]

    @torch.no_grad()
    def details(self, *sites: str) -> dict[str, Detail]:
        """The same of several sites, in one run."""
        names = {name: self.recorded(name) for name in map(self.resolve, sites)}
        with record(self.scene.model, *(name for three in names.values() for name in three)) as trace:
            self.scene.call()
        return {name: self.detail_in(trace, name, three) for name, three in names.items()}

    def recorded(self, site: str) -> tuple[str, str, str]:
        """What is recorded of a site for its detail: weights, values and what it was handed."""
        spot = self.sources[site].spot
        return weights_of(spot), f"{spot.name}.values".lstrip("."), spot.handed

    def detail_in(self, trace: Trace, site: str, names: Iterable[str]) -> Detail:
        source = self.sources[site]
        map, values, handed = (trace.all(name)[source.turn] for name in names)
        assert isinstance(map, AttentionMap)
        assert isinstance(values, Tensor)
        assert isinstance(handed, Tensor)
        return detail_of(source.spot.part, map, values, handed, source.tiling)


@torch.no_grad()
def read_by(scene: Scene, *, title: str, input: str, architecture: str) -> Attended:
    """What happens in a scene, recorded in one run of the model with the kernels that it always takes."""
    places = spots(scene.model)
    names = [weights_of(spot) for spot in places] + [spot.handed for spot in places if spot.within is not None]
    with record(scene.model, *names) as trace:
        found = scene.call()
    sites: dict[str, Site] = {}
    sources: dict[str, Source] = {}
    for spot in places:
        maps = trace.values.get(weights_of(spot), [])  # none of a part that this input does not pass
        for turn, map in enumerate(maps):
            assert isinstance(map, Readable)
            name = spot.name if len(maps) == 1 else f"{spot.name}@{turn}"
            rows, columns, placed, tiling = laid(spot, map, trace, turn, scene.axes)
            sites[name], sources[name] = Site(name, rows, columns, placed), Source(spot, turn, len(maps), tiling)
    told = scene.told.settled(found)
    return Attended(
        title,
        input,
        architecture,
        sum(parameter.numel() for parameter in scene.model.parameters()),
        sites,
        told.outcome(found, scene.text),
        scene.picture,
        scene.sound,
        replace(scene, told=told),
        sources,
    )


def weights_of(spot: Spot) -> str:
    return f"{spot.name}.weights".lstrip(".")


def in_turn(edit: Edit, turn: int, turns: int) -> Edit:
    """An edit of one of the turns in which layers that share their parameters are called."""
    if turns == 1:
        return edit
    calls = count()

    def chosen(weights: Tensor) -> Tensor:
        return edit(weights) if next(calls) % turns == turn else weights

    return chosen


def then(first: Edit, second: Edit) -> Edit:
    return lambda weights: second(first(weights))
