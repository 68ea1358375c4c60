"""`headway inspect rollout`: what of the input reaches the place where the answer is read, through all layers.

Axes:  T tokens, of a target where there are two   S tokens of a source
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headway.app.inspect.cells import digits, number, table, visible
from headway.app.inspect.figures import Drawing, Heat, Panel
from headway.app.inspect.rolling import Crossing, Looked, Rolling, Spoken, crossing_of, shared_axes
from headway.app.inspect.told import Found
from headway.app.inspect.towards import Target, derivatives, target_of
from headway.checkpoint import Loaded
from headway.errors import UserError
from headway.look.attended import Attended
from headway.look.axis import Axis, Cells

FIRST = 12  # tokens that a table tells
READ = {"next": "text", "fill": "text", "tags": "text", "written": "prefix", "heard": "frames"}  # axes of outcomes
WORDS = ("next", "fill", "written")  # outcomes of which the last is told unless another is asked for


def follow(given: str, wanted: str | None, row: int | None) -> Callable[[Loaded], Followed]:
    """Rolls attention out over one input; `wanted` is the class or the token whose score is followed back.

    `row` is the place that it is read at; unless given, it is where the model's answer is read.
    """

    def look(loaded: Loaded) -> Followed:
        read = loaded.attend(given, most=1)
        families = shared_axes(read)
        crossing = crossing_of(read, families)
        target = None if wanted is None else target_of(read, wanted)
        if target is None:
            rolling: Rolling = Looked(read)
        else:
            sites = [*(site for family in families.values() for site in family), *(crossing.across if crossing else ())]
            rolling = Spoken(derivatives(read, target, sites))
        streams = list(rolled(rolling, families, crossing, Row(read, target, row)))
        return Followed(read.title, read.input, read.outcome.text if target is None else target.label, target, streams)

    return look


def rolled(
    rolling: Rolling, families: Mapping[Axis, Sequence[str]], crossing: Crossing | None, row: Row
) -> Iterator[Stream]:
    """What reaches a decoder of source and target first, where there is one; then what flows along each other axis."""
    along = {axis: rolling.along(sites) for axis, sites in families.items() if not crossing or axis != crossing.rows}
    if crossing is not None:
        memory = along[crossing.columns][-1] if crossing.columns in along else torch.eye(len(crossing.columns))
        reached = rolling.across(crossing, memory)
        at, sites = row.of(crossing.rows), crossing.sites
        yield Stream(crossing.rows, crossing.columns, at, sites, [reach.source for reach in reached])
        yield Stream(crossing.rows, crossing.rows, at, sites, [rolling.told(reach.target) for reach in reached])
    for axis, layers in along.items():
        at = row.of(axis) if crossing is None else None  # what is asked for is a token of the target
        yield Stream(axis, axis, at, tuple(families[axis]), [rolling.told(layer) for layer in layers])


@dataclass(frozen=True, eq=False)
class Row:
    """The row that is told: as asked; where the target, or the last word, is read; the class token of a class."""

    read: Attended
    target: Target | None
    asked: int | None

    def of(self, axis: Axis) -> int | None:
        """None, the mean of all rows, where the answer is read at each of them, or is itself a mean."""
        if self.asked is not None:
            if not 0 <= self.asked < len(axis):
                raise UserError(f"--row {self.asked}", allowed=f"0 to {len(axis) - 1}")
            return self.asked
        kind, steps = self.read.outcome.kind, self.read.outcome.steps
        at = self.target.at if self.target is not None else steps[-1].at if kind in WORDS and steps else None
        if at is not None and axis.name == READ.get(kind):
            return at
        return 0 if kind == "classes" and 0 in axis.special else None


@dataclass(frozen=True, eq=False)
class Stream:
    """What of each token of `axis` is in the tokens of `rows` after each layer, and the row that is told (None: mean).

    The two axes are the same but where what is told is what a decoder has from its source.
    """

    rows: Axis
    axis: Axis
    row: int | None
    sites: tuple[str, ...]
    layers: Sequence[Tensor]

    def told(self) -> list[list[float]]:
        """What of each token is in the row after each layer."""
        return [(layer.mean(0) if self.row is None else layer[self.row]).tolist() for layer in self.layers]

    @property
    def place(self) -> str:
        of = "" if self.rows == self.axis else f" of the {self.rows.name}"
        return f"the mean of all{of}" if self.row is None else f"{self.row}{of} ({self.label(self.row)})"

    def label(self, row: int) -> str:
        return visible(self.rows.labels[row], 16)

    def plain(self) -> dict[str, Any]:
        layers = [
            {"site": site, "weights": [number(value) for value in row]}
            for site, row in zip(self.sites, self.told(), strict=True)
        ]
        told = {"axis": self.axis.name, "tokens": list(self.axis.labels), "rows": self.rows.name, "row": self.row}
        return {**told, "layers": layers}

    def shown(self) -> str:
        last = self.told()[-1]
        order = sorted(range(len(last)), key=lambda at: -last[at])[:FIRST]
        rows = [(visible(self.axis.labels[at]), str(at), digits(last[at], ".4f")) for at in order]
        return f"{self.axis.name}, after {self.sites[-1]}, at {self.place}\n" + table(("token", "at", "weight"), rows)

    def panels(self) -> list[Panel]:
        title = f"{self.axis.name}, at {self.place}"
        if not isinstance(self.axis, Cells):
            return [Heat(title, self.told(), self.sites, self.axis.labels, "layer")]
        down, along = self.axis.grid
        last = self.told()[-1][self.axis.first :]
        cells = [last[y * along : (y + 1) * along] for y in range(down)]
        return [Heat(title, cells, [str(y + 1) for y in range(down)], [str(x + 1) for x in range(along)])]


@dataclass(frozen=True, eq=False)
class Followed(Found):
    """`said` is the model's answer, or the target whose score was followed."""

    model: str
    input: str
    said: str
    target: Target | None
    streams: Sequence[Stream]

    def plain(self) -> dict[str, Any]:
        target = None if self.target is None else self.target._asdict()
        told = {"model": self.model, "input": self.input, "said": self.said, "gradient": target}
        return {**told, "streams": [stream.plain() for stream in self.streams]}

    def shown(self) -> str:
        how = "rollout" if self.target is None else f"gradient-weighted rollout of {visible(self.said)!r}"
        return "\n\n".join([self.title, how, *(stream.shown() for stream in self.streams)])

    @property
    def title(self) -> str:
        return f"{self.model}: {visible(self.input, 60)}"

    def drawn(self) -> Drawing:
        return Drawing(self.title, [panel for stream in self.streams for panel in stream.panels()], abreast=2)
