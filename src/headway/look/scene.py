"""A model before one input: what is called, what the rows and columns of each site are, how the outcome is told.

`look.speaking` and `look.observing` make scenes, of texts and of all else; what is done with a scene does not know
which it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor, nn

from headway.errors import UserError
from headway.look.axis import Axis, cells, items
from headway.look.outcome import Picture, Sound, Told
from headway.look.placed import Grid, Placed, Still, Tiling, pooled_grids, tiling_of
from headway.look.said import Said
from headway.nn.attention import Attention, CrossAttention
from headway.nn.grid import LocalAttention, PooledAttention, Windowed
from headway.nn.trace import Trace, sites_of
from headway.ops.reading import Readable


@dataclass(frozen=True, eq=False)
class Axes:
    """What stands at the rows and columns of sites: `streams` by the first word of their names, "" for all others.

    Cross-attention looks at `memory`, from the rows of `written`.
    """

    streams: Mapping[str, Axis] = field(default_factory=dict[str, Axis])
    memory: Axis | None = None
    written: Axis | None = None

    def of(self, name: str, part: Attention, queries: int, keys: int) -> tuple[Axis, Axis]:
        """The rows and the columns of a site that has so many."""
        stream = self.streams.get(name.split(".")[0]) or self.streams.get("")
        if not isinstance(part, CrossAttention):
            return fitting(stream, queries), fitting(stream, keys)
        if self.memory is None:  # a learned query that pools the stream
            return items("query", queries), fitting(stream, keys)
        return fitting(self.written, queries), fitting(self.memory, keys)


@dataclass(frozen=True, eq=False)
class Scene:
    """`call` runs the model once and gives what `told` reads; `text` is what it says, where that is known before.

    `said` is what it read of its own words, or of another's.
    """

    model: nn.Module
    call: Callable[[], Tensor]
    told: Told
    axes: Axes
    text: str | None = None
    picture: Picture | None = None
    sound: Sound | None = None
    said: Said | None = None


class Spot(NamedTuple):
    """Where attention happens: a site's name without its last word, its part, and what hands it a grid, if any."""

    name: str
    part: Attention
    within: nn.Module | None
    handed: str  # the name under which `within` shows its input


class Laid(NamedTuple):
    """A recorded map in the coordinates of what was read."""

    rows: Axis
    columns: Axis
    map: Readable
    tiling: Tiling | None  # where it came in tiles


def spots(model: nn.Module) -> list[Spot]:
    """All attention of a model, the first layer first."""
    names = {part: name for name, (part, what) in sites_of(model).items() if what == "input"}
    around: dict[Attention, nn.Module] = {part.attention: part for part in names if isinstance(part, Windowed)}
    found = list[Spot]()
    for part, name in names.items():
        if isinstance(part, Attention):
            on_grid = isinstance(part, LocalAttention | PooledAttention)
            within = around.get(part) or (part if on_grid else None)
            found.append(Spot(name.removesuffix("input").removesuffix("."), part, within, names[within or part]))
    return found


def check_attends(model: nn.Module, called: str) -> None:
    """A model without attention is told to the person before anything is computed."""
    if not spots(model):
        raise UserError(
            f"{called} has no attention to look at", do="take a model that attends: headway list shows them"
        )


def laid(spot: Spot, map: Readable, trace: Trace, turn: int, axes: Axes) -> Laid:
    """A map that was recorded at a spot, its axes, and how it was cut."""
    if spot.within is None:
        rows, columns = axes.of(spot.name, spot.part, *map.shape[2:])
        return Laid(rows, columns, Still(map), None)
    handed = trace.all(spot.handed)[turn]
    assert isinstance(handed, Tensor)
    grid: Grid = (handed.shape[1], handed.shape[2])
    if isinstance(spot.part, PooledAttention):
        asked, seen = pooled_grids(spot.part, grid)
        return Laid(cells(asked), cells(seen), Still(map), None)
    tiling = tiling_of(spot.part, spot.within, grid, map.shape[2])
    return Laid(cells(tiling.q_grid), cells(tiling.k_grid), Placed(map, tiling), tiling)


def fitting(axis: Axis | None, count: int) -> Axis:
    """An axis, or where none has so many rows one of numbers."""
    return axis if axis is not None and len(axis) == count else items(f"items-{count}", count)
