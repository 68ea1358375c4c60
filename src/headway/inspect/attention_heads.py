"""What each attention head does with one input: entropy, distance, and how much it attends to which tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headway.errors import UserError, listed, nearest
from headway.figures import HeatMap, Plot, printable
from headway.inspect.presentation import LazyModel, Result, finite, format_number, padded, resolve, table
from headway.look.page_data import axis_positions
from headway.look.recording import RecordedSite
from headway.ops.attention_statistics import STATISTICS, HeadStatistics, MapFacts, statistics
from headway.tasks.tracing import Axis, TokenAxis

LEGEND = """\
entropy    of the attention weights of a query, in nats
distance   mean distance between query and key, in tokens, frames or grid cells
special    weight on special tokens: [CLS], </s> and the like
previous   weight on the previous token
duplicate  weight on earlier occurrences of the same token
induction  weight on tokens that follow an earlier occurrence of the same token"""


def heads(model: LazyModel, text: str, *, by: str | None = None) -> HeadsResult:
    """The statistics of every head for one input: a text, or the name of an image or sound file.

    The table is sorted by the statistic `by`, largest first.
    """
    if by is not None and by not in STATISTICS:
        raise UserError(f"heads have no number {by!r}", allowed=listed(STATISTICS), meant=nearest(by, STATISTICS))
    recording = resolve(model).attend(text, most=1)  # a continuation would only be read along
    sites = {name: SiteStatistics.of(site) for name, site in recording.sites.items()}
    return HeadsResult(recording.title, recording.input, sites, by)


@dataclass(frozen=True, eq=False)
class SiteStatistics:
    """The statistics of each head of a site; None where one does not apply."""

    queries: int
    keys: int
    kind: str
    values: HeadStatistics

    @staticmethod
    def of(site: RecordedSite) -> SiteStatistics:
        return SiteStatistics(
            len(site.rows), len(site.columns), site.rows.kind, statistics(site.map, map_facts(site.rows, site.columns))
        )

    def column(self, name: str) -> list[float | None]:
        """One statistic of all heads."""
        values: Tensor | None = getattr(self.values, name)
        return [None] * len(self.values.entropy) if values is None else [finite(value) for value in values.tolist()]

    def by_head(self) -> list[dict[str, float | None]]:
        """All statistics of each head."""
        columns = [self.column(name) for name in STATISTICS]
        return [dict(zip(STATISTICS, values, strict=True)) for values in zip(*columns, strict=True)]


def map_facts(rows: Axis, columns: Axis) -> MapFacts:
    """What is known of the queries and keys of a map, by its axes."""
    tokens = token_numbers(rows) if isinstance(rows, TokenAxis) and rows == columns else None
    return MapFacts(columns.special, axis_positions(rows, columns), tokens)


def token_numbers(axis: Axis) -> Tensor:
    """A number for each token, equal for tokens with the same text."""
    seen: dict[str, int] = {}
    return torch.tensor([seen.setdefault(label, len(seen)) for label in axis.labels])


@dataclass(frozen=True, eq=False)
class HeadsResult(Result):
    model: str
    input: str
    sites: Mapping[str, SiteStatistics]
    by: str | None

    def to_dict(self) -> dict[str, Any]:
        sites = [
            {"site": name, "queries": site.queries, "keys": site.keys, "kind": site.kind, "heads": site.by_head()}
            for name, site in self.sites.items()
        ]
        return {"model": self.model, "input": self.input, "sites": sites}

    def to_text(self) -> str:
        found = [(name, head, row) for name, site in self.sites.items() for head, row in enumerate(site.by_head())]
        if self.by is not None:
            found.sort(key=lambda each: -(each[2][str(self.by)] or 0.0))
        rows = [(name, str(head), *(format_number(row[key]) for key in STATISTICS)) for name, head, row in found]
        return "\n\n".join([self.title, table(("site", "head", *STATISTICS), rows), LEGEND])

    @property
    def title(self) -> str:
        return f"{self.model}: {printable(self.input, 60)}"

    def plot(self) -> Plot:
        most = max(len(site.values.entropy) for site in self.sites.values())
        heads, names = [str(head) for head in range(most)], list(self.sites)
        panels = list[HeatMap]()
        for key in STATISTICS:
            rows = [site.column(key) for site in self.sites.values()]
            if any(value is not None for row in rows for value in row):
                panels.append(HeatMap(key, [padded(row, most) for row in rows], names, heads, "", "head"))
        return Plot(self.title, panels)
