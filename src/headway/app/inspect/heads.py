"""`headway inspect heads`: what each head does with one input, in a few numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

import torch
from torch import Tensor

from headway.app.inspect.cells import digits, number, table, visible
from headway.app.inspect.figures import Drawing, Heat
from headway.app.inspect.told import Found
from headway.checkpoint import Loaded
from headway.errors import UserError, listed, nearest
from headway.inspect.statistics import NUMBERS, Grid, Known, Placed, Statistics, statistics
from headway.look.attended import Site
from headway.look.axis import Axis, Cells, Tokens

LEGEND = """\
entropy    how widely it looks, in nats
distance   how far, in tokens, frames or cells
special    at [CLS], </s> and their like
previous   at the token before
duplicate  at earlier tokens that are the same
induction  at earlier tokens that stand behind the same"""


def heads(given: str, by: str | None) -> Callable[[Loaded], Heads]:
    """Looks at one input, which is a text or the name of a file; `by` is a number to sort by, the largest first."""
    if by is not None and by not in NUMBERS:
        raise UserError(f"heads have no number {by!r}", allowed=listed(NUMBERS), meant=nearest(by, NUMBERS))

    def look(loaded: Loaded) -> Heads:
        read = loaded.attend(given, most=1)  # a continuation would only be read along
        return Heads(read.title, read.input, {name: numbers_of(site) for name, site in read.sites.items()}, by)

    return look


def numbers_of(site: Site) -> Numbers:
    return Numbers(len(site.rows), len(site.columns), site.rows.kind, statistics(site.map, known(site)))


@dataclass(frozen=True, eq=False)
class Numbers:
    """The numbers of each head of a site; None where one makes no sense there."""

    queries: int
    keys: int
    kind: str
    of: Statistics

    def column(self, name: str) -> list[float | None]:
        """One number of all heads."""
        found: Tensor | None = getattr(self.of, name)
        return [None] * len(self.of.entropy) if found is None else [number(value) for value in found.tolist()]

    def each(self) -> list[dict[str, float | None]]:
        """All numbers of each head."""
        columns = [self.column(name) for name in NUMBERS]
        return [dict(zip(NUMBERS, values, strict=True)) for values in zip(*columns, strict=True)]


def known(site: Site) -> Known:
    """What can be asked of a site, by what its rows and columns are."""
    rows, columns = site.rows, site.columns
    special = columns.special
    if isinstance(rows, Cells) and isinstance(columns, Cells):
        return Known(special, Placed.on_grids(Grid(rows.grid, rows.first), Grid(columns.grid, columns.first)))
    if rows != columns:
        return Known(special)
    tokens = numbered(rows) if isinstance(rows, Tokens) else None
    return Known(special, Placed.in_order(len(rows)), tokens)


def numbered(axis: Axis) -> Tensor:
    """A number for each token, the same where they are spelled the same."""
    seen: dict[str, int] = {}
    return torch.tensor([seen.setdefault(label, len(seen)) for label in axis.labels])


@dataclass(frozen=True, eq=False)
class Heads(Found):
    model: str
    input: str
    sites: Mapping[str, Numbers]
    by: str | None

    def plain(self) -> dict[str, Any]:
        sites = [
            {"site": name, "queries": one.queries, "keys": one.keys, "kind": one.kind, "heads": one.each()}
            for name, one in self.sites.items()
        ]
        return {"model": self.model, "input": self.input, "sites": sites}

    def shown(self) -> str:
        found = [(site, head, one) for site, many in self.sites.items() for head, one in enumerate(many.each())]
        if self.by is not None:
            found.sort(key=lambda each: -(each[2][str(self.by)] or 0.0))
        rows = [(site, str(head), *(digits(one[name]) for name in NUMBERS)) for site, head, one in found]
        return "\n\n".join([self.title, table(("site", "head", *NUMBERS), rows), LEGEND])

    @property
    def title(self) -> str:
        return f"{self.model}: {visible(self.input, 60)}"

    def drawn(self) -> Drawing:
        most = max(len(many.of.entropy) for many in self.sites.values())
        heads, names = [str(head) for head in range(most)], list(self.sites)
        panels = list[Heat]()
        for name in NUMBERS:
            rows = [many.column(name) for many in self.sites.values()]
            if any(value is not None for row in rows for value in row):
                panels.append(Heat(name, [filled(row, most) for row in rows], names, heads, "", "head"))
        return Drawing(self.title, panels)


def filled(row: Sequence[float | None], most: int) -> list[float]:
    """A row of a map, as long as the others: what is not known is NaN."""
    return [nan if value is None else value for value in (*row, *[None] * (most - len(row)))]
