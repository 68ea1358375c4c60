"""One recording as a page asks for it: plain data for what is small, and pieces of bytes, by name, for what is large.

A file holds some of the pieces; a server gives each when it is asked for.  A piece is called by the number of its
recording, what it is and of which site: `0.t3` thumbnails, `0.d3` the numbers behind the weights, `0.m3.1.5.0.2` the
tile in row 0 and column 2 of head 5 at level 1 (`a` for all heads).

Axes:  H heads   T queries   S keys   h w rows and columns of cells
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from headway.errors import UserError
from headway.inspect.statistics import Grid, Known, Placed, statistics
from headway.look.attended import Attended, Site
from headway.look.axis import Axis, Cells
from headway.look.detail import Detail
from headway.look.effects import Effect
from headway.look.plain import Plain, halves, label_of, number, numbers, plain_axis, plain_effects, plain_run
from headway.look.tiles import TILE, Tiled

ROLLED = 2**25  # cells of all rollouts together, at most
DETAILED = 2**24  # weights of a site whose numbers are told: its bias may have as many


class Tile(NamedTuple):
    """Where a tile is; `head` is None for all heads in one piece."""

    run: int
    site: int
    level: int
    head: int | None
    i: int
    j: int

    @property
    def key(self) -> str:
        return f"{'*' if self.head is None else self.head}/{self.i}/{self.j}"

    @property
    def id(self) -> str:
        head = "a" if self.head is None else self.head
        return f"{self.run}.m{self.site}.{self.level}.{head}.{self.i}.{self.j}"


class Exhibit:
    """A recording and its number in a page; at their coarsest, maps have at most `side` cells to a side."""

    def __init__(self, attended: Attended, number: int, side: int):
        self.attended, self.number = attended, number
        rolled = attended.rollout() if rollable(attended) else {}
        self.sites = [*attended.sites.values(), *rolled.values()]
        self.derived = [False] * len(attended.sites) + [True] * len(rolled)
        self.cut(side)

    def cut(self, side: int) -> None:
        """Lays the maps out anew, coarser or finer."""
        self.tiled = [Tiled(site.map, side) for site in self.sites]

    def told(
        self, effects: Sequence[Effect] | None, details: Mapping[int, Plain], found: Callable[[str], str | None]
    ) -> Plain:
        """All but the pieces: `found` is the name under which one can be had, `details` how numbers are laid out."""
        return {
            "id": self.number,
            **plain_run(self.attended),
            "axes": {axis.name: plain_axis(axis) for site in self.sites for axis in (site.rows, site.columns)},
            "sites": [
                {
                    **self.described[at],
                    "stats": {**self.described[at]["stats"], "effect": self.changes(site, effects)},
                    **self.laid_out(at, found),
                    "detail": details.get(at),
                }
                for at, site in enumerate(self.sites)
            ],
            "effects": None if effects is None else plain_effects(effects),
        }

    @cached_property
    def described(self) -> list[Plain]:
        """What is told of each site whichever of its pieces are there."""
        return [
            {
                "name": site.name,
                "label": label_of(site.name),
                "derived": derived,
                "heads": site.heads,
                "rows": site.rows.name,
                "columns": site.columns.name,
                "shape": list(site.map.shape[2:]),
                "stats": measured(site),
            }
            for site, derived in zip(self.sites, self.derived, strict=True)
        ]

    def changes(self, site: Site, effects: Sequence[Effect] | None) -> list[float | None] | None:
        """By how much the outcome is likelier without each head."""
        off = [effect for effect in effects or () if effect.site == site.name and effect.how == "off"]
        before = self.attended.outcome.total
        return [number(effect.outcome.total - before) for effect in off] or None

    def laid_out(self, at: int, found: Callable[[str], str | None]) -> Plain:
        tiled = self.tiled[at]
        levels = [
            {
                "scale": level.scale,
                "tile": TILE,
                "shape": list(level.shape),
                "blobs": {tile.key: id for tile in self.tiles(at, number) if (id := found(tile.id)) is not None},
            }
            for number, level in enumerate(tiled.levels)
        ]
        return {"thumbs": {"blob": found(self.thumbs_id(at)), "shape": list(tiled.thumbs_shape)}, "levels": levels}

    def tiles(self, at: int, level: int) -> Iterator[Tile]:
        """The tiles of a level, strip by strip."""
        tiled = self.tiled[at]
        for i, j in tiled.levels[level].places():
            for head in [None] if tiled.whole else range(tiled.heads):
                yield Tile(self.number, at, level, head, i, j)

    def cells(self, tile: Tile) -> bytes:
        found = self.tiled[tile.site].tile(tile.level, tile.i, tile.j)
        return (found if tile.head is None else found[tile.head]).numpy().tobytes()

    def thumbs(self, at: int) -> bytes:
        return self.tiled[at].thumbs.numpy().tobytes()

    def thumbs_id(self, at: int) -> str:
        return f"{self.number}.t{at}"

    def detail_id(self, at: int) -> str:
        return f"{self.number}.d{at}"

    def detail(self, at: int) -> Detail | None:
        """The numbers behind the weights of a site, where they are not too many."""
        return self.attended.detail(self.sites[at].name) if self.detailed(at) else None

    def details(self) -> dict[int, Detail]:
        """The same of all sites at once, by their numbers."""
        found = self.attended.details(*(site.name for at, site in enumerate(self.sites) if self.detailed(at)))
        return {at: found[site.name] for at, site in enumerate(self.sites) if self.detailed(at)}

    def detailed(self, at: int) -> bool:
        _, heads, rows, columns = self.sites[at].map.shape
        return not self.derived[at] and heads * rows * columns <= DETAILED

    def piece(self, id: str) -> bytes:
        """Any piece by its name."""
        for at in range(len(self.sites)):
            if id == self.thumbs_id(at):
                return self.thumbs(at)
            if id == self.detail_id(at):
                return self.numbers(at)
            if id.startswith(f"{self.number}.m{at}."):
                for level in range(len(self.tiled[at].levels)):
                    for tile in self.tiles(at, level):
                        if tile.id == id:
                            return self.cells(tile)
        raise UserError(f"there is no piece {id!r} of this recording")

    def numbers(self, at: int) -> bytes:
        detail = self.detail(at)
        if detail is None:
            raise UserError(f"the numbers behind {self.sites[at].name} are too many to be told")
        return halves(detail)


def rollable(attended: Attended) -> bool:
    return sum(site.map.shape[2] * site.map.shape[3] for site in attended.sites.values()) <= ROLLED


def measured(site: Site) -> Plain:
    """The mean entropy of each head's rows, and how far each head looks where that can be said."""
    found = statistics(site.map, Known(places=places(site.rows, site.columns)))
    distance = None if found.distance is None else numbers(found.distance.tolist())
    return {"entropy": numbers(found.entropy.tolist()), "distance": distance}


def places(rows: Axis, columns: Axis) -> Placed | None:
    """Where rows and columns stand beside each other, if they do."""
    if isinstance(rows, Cells) and isinstance(columns, Cells):
        return Placed.on_grids(Grid(rows.grid, rows.first), Grid(columns.grid, columns.first))
    return Placed.in_order(len(rows)) if rows == columns else None
