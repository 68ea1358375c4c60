"""What each attention head does with one input: entropy, distance, and how much it attends to which tokens.

Axes:  H heads
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headway.errors import UserError, listed, nearest
from headway.figures import Plot, printable
from headway.inspect.presentation import LazyModel, Result, head_map, plain, resolve, table
from headway.look.recording import RecordedSite
from headway.ops.attention_statistics import STATISTICS

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
    """Each statistic of the heads of a site, H; None where one does not apply."""

    queries: int
    keys: int
    kind: str
    columns: Mapping[str, Sequence[float | None]]

    @staticmethod
    def of(site: RecordedSite) -> SiteStatistics:
        values = site.statistics
        unknown = [None] * len(values.entropy)
        columns = {name: plain(getattr(values, name)) or unknown for name in STATISTICS}
        return SiteStatistics(len(site.rows), len(site.columns), site.rows.kind, columns)

    def by_head(self) -> list[dict[str, float | None]]:
        """All statistics of each head."""
        return [dict(zip(self.columns, values, strict=True)) for values in zip(*self.columns.values(), strict=True)]


@dataclass(frozen=True, eq=False)
class HeadsResult(Result):
    model: str
    input: str
    sites: Mapping[str, SiteStatistics]
    by: str | None

    def data(self) -> dict[str, Any]:
        sites = [
            {"site": name, "queries": site.queries, "keys": site.keys, "kind": site.kind, "heads": site.by_head()}
            for name, site in self.sites.items()
        ]
        return {"model": self.model, "input": self.input, "sites": sites}

    def blocks(self) -> Iterator[str]:
        found = [(name, head, row) for name, site in self.sites.items() for head, row in enumerate(site.by_head())]
        if self.by is not None:
            found.sort(key=lambda each: -(each[2][str(self.by)] or 0.0))
        yield self.title
        yield table(("site", "head", *STATISTICS), [(name, head, *row.values()) for name, head, row in found])
        yield LEGEND

    @property
    def title(self) -> str:
        return f"{self.model}: {printable(self.input, 60)}"

    def plot(self) -> Plot:
        maps = {key: {name: site.columns[key] for name, site in self.sites.items()} for key in STATISTICS}
        known = [key for key, sites in maps.items() if any(x is not None for row in sites.values() for x in row)]
        return Plot(self.title, [head_map(key, maps[key]) for key in known])
