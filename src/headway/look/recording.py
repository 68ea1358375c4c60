"""A recorded run of a model on one input: every attention map in the coordinates of the input, and the outcome.

An edit of a run (`head_edits`) changes what passes through it; then the model runs again.

Axes:  H heads   T queries   S keys
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from operator import index
from typing import ClassVar, NamedTuple, Self, SupportsIndex

import torch
from torch import Tensor, nn

from headway.errors import UserError, listed
from headway.look.grid_map import (
    Detail,
    GridMap,
    GridSize,
    NoGradMap,
    Tiling,
    detail_of,
    inputs_at_queries,
    pooled_grids,
    tiling_of,
)
from headway.nn.attention import Attention
from headway.nn.head import FirstToken, LastToken, RowHead, main_head
from headway.nn.trace import Edit, Trace, record, sites_of, unmatched
from headway.nn.trunk import Trunk
from headway.nn.window_attention import LocalAttention, PooledAttention, Windowed
from headway.ops.attention_map import AttentionMap, Readable, Weights
from headway.ops.attention_rollout import mean_of_heads, rollout
from headway.ops.attention_statistics import CellGrid, HeadStatistics, MapFacts, TokenPositions, statistics
from headway.tasks.base import Task
from headway.tasks.batches import to_device
from headway.tasks.tracing import (
    Axis,
    ForcedText,
    GridAxis,
    InputImage,
    InputSound,
    Outcome,
    TokenAxis,
    TracedRun,
    TraceOptions,
    cells,
)

MAX_ROLLOUT_ROWS = 2048  # a layer of a rollout of that many rows is 16 MB
WHOLE_INPUT = ("classes", "vector")  # outcomes that are about all of an input
ROLLOUT_PREFIX = "rollout."  # of the name of a site that is the rollout up to another


@dataclass(frozen=True, eq=False)
class RecordedSite:
    """The attention at one site of a model: a map 1 H T S with the axes of its rows and columns."""

    name: str
    rows: Axis
    columns: Axis
    map: Readable

    @property
    def heads(self) -> int:
        return self.map.shape[1]

    def head(self, number: object) -> int:
        """A checked head number, from any caller."""
        # True is an int, and no head
        if isinstance(number, bool) or not isinstance(number, SupportsIndex) or index(number) not in range(self.heads):
            raise UserError(f"{self.name} has no head {number!r}", allowed=f"0 to {self.heads - 1}")
        return index(number)

    @cached_property
    def statistics(self) -> HeadStatistics:
        """What each head does: one pass over the map."""
        rows, keys, tokens = self.rows, self.columns, None
        if isinstance(rows, TokenAxis) and rows == keys:  # tokens with the same text have the same number
            numbers = {label: at for at, label in enumerate(dict.fromkeys(rows.labels))}
            tokens = torch.tensor([numbers[label] for label in rows.labels])  # statistics are gathered on the CPU
        return statistics(self.map, MapFacts(keys.special, axis_positions(rows, keys), tokens))


def axis_positions(rows: Axis, columns: Axis) -> TokenPositions | None:
    """The positions of rows and columns, if they can be compared."""
    if isinstance(rows, GridAxis) and isinstance(columns, GridAxis):
        return TokenPositions.on_grids(CellGrid(rows.grid, rows.first), CellGrid(columns.grid, columns.first))
    return TokenPositions.in_order(len(rows)) if rows == columns else None


class RunEdit(ABC):
    """A change of what passes through a run."""

    keeps_text: ClassVar[bool] = False  # it is about places of this run, so that no text can be written anew with it

    @abstractmethod
    def edits(self, recording: Recording) -> Iterator[tuple[str, Edit]]:
        """Edits by the names of a trace."""


@dataclass(frozen=True, eq=False)
class SiteSource:
    """Where a recorded map comes from: the site of the model, which of its calls, and how the grid was tiled."""

    site: AttentionSite
    call: int
    calls: int
    tiling: Tiling | None


@dataclass(frozen=True, eq=False, repr=False)
class Recording:
    """One recorded run of a model.  `recording["decoder.1.cross"]` is a lazy map over the input and output tokens."""

    title: str
    input: str
    architecture: str
    parameters: int
    sites: Mapping[str, RecordedSite]
    outcome: Outcome
    picture: InputImage | None
    sound: InputSound | None
    run: TracedRun  # its reader is settled
    sources: Mapping[str, SiteSource]
    changes: tuple[RunEdit, ...] = ()  # with which it ran

    @classmethod
    @torch.no_grad()
    def of_input(
        cls, task: Task, model: nn.Module, input: str, options: TraceOptions, *, title: str, architecture: str
    ) -> Self:
        """Record how a model of a task answers one input, with its usual kernels."""
        if not find_attention_sites(model):  # before anything is computed
            do = "take a model that attends: headway list shows them"
            raise UserError(f"{architecture} has no attention to look at", do=do)
        run = task.trace(model, input, options)
        with record(run.model, *site_names(run.model)) as trace:
            found = run.call()
        sites, sources = located_maps(run, trace)
        reader = run.reader.settled(found)
        outcome, settled = reader.outcome(found, run.text), replace(run, reader=reader)
        size = sum(parameter.numel() for parameter in run.model.parameters())
        return cls(title, input, architecture, size, sites, outcome, run.picture, run.sound, settled, sources)

    def __repr__(self) -> str:
        heads = sum(site.heads for site in self.sites.values())
        summary = f"{self.title}: {self.input[:60]!r} → {self.outcome.text[:60]!r}"
        return f"<{summary}, {heads} heads at {len(self.sites)} sites: {listed(self.sites)}>"

    def __getitem__(self, name: str) -> Readable:
        return self.sites[self.resolve(name)].map

    @property
    def forced_text(self) -> ForcedText | None:
        """The output tokens that were read, for another model to read the same; None if the model writes nothing."""
        text = self.run.forced_text
        return text if text is None or text.by is not None else replace(text, by=self.title)

    @property
    def followed_text(self) -> ForcedText | None:
        """What another model wrote, if this one read that; None if it read its own output, or none."""
        text = self.run.forced_text
        return None if text is None or text.by is None else text

    def resolve(self, name: str) -> str:
        """The name of a site, which may be given with the suffix `.weights`."""
        found = name.removesuffix(".weights")
        if found not in self.sites:
            raise unmatched(name, list(self.sites))
        return found

    @torch.no_grad()
    def edited(self, *edits: RunEdit) -> Outcome:
        """The outcome with just these edits.

        `total` scores the output before them; the text is generated anew, unless an edit is about places of this run.
        """
        with self.editing(edits):
            return self.run.reader.outcome(self.run.call(), self.kept_text(edits))

    @torch.no_grad()
    def under(self, *edits: RunEdit) -> Self:
        """The same run with these edits: its maps and its outcome."""
        with self.editing(edits, site_names(self.run.model)) as trace:
            found = self.run.call()
        with self.editing(edits):
            outcome = self.run.reader.outcome(found, self.kept_text(edits))
        sites, sources = located_maps(self.run, trace)
        return replace(self, sites=sites, sources=sources, outcome=outcome, changes=edits)

    def kept_text(self, edits: Iterable[RunEdit]) -> str | None:
        """The text, where the model writes it and an edit is about places of this run."""
        keeps = self.run.forced_text is not None and any(edit.keeps_text for edit in edits)
        return self.outcome.text if keeps else None

    @torch.no_grad()
    def effect(self, *edits: RunEdit) -> float:
        """The change in the score of the original output under these edits: one run, nothing is generated."""
        with self.editing(edits):
            found = self.run.call()
        return self.run.reader.outcome(found, self.outcome.text).total - self.outcome.total

    def editing(self, edits: Iterable[RunEdit], names: Iterable[str] = ()) -> AbstractContextManager[Trace]:
        """A context in which a run is edited, and `names` are recorded; edits of one site are composed in order."""
        found: dict[str, Edit] = {}
        for each in edits:
            for name, edit in each.edits(self):
                found[name] = compose(found[name], edit) if name in found else edit
        return record(self.run.model, *found, *names, edit=found)

    def is_hard(self, site: str) -> bool:
        """Whether a site's map is a choice: all weight on one key."""
        return site in self.sources and self.sources[site].site.is_hard

    def deciding_row(self, site: RecordedSite) -> int | None:
        """The row that the outcome is read from, where that is about the whole input; None where no row decides."""
        place = pooled_token(self.run.model) if self.outcome.kind in WHOLE_INPUT else None
        return None if place is None else place % len(site.rows)

    def self_attention(self) -> dict[Axis, list[str]]:
        """The sites of self-attention along each axis, first layer first."""
        found: dict[Axis, list[str]] = {}
        for name, site in self.sites.items():
            if site.rows == site.columns:
                found.setdefault(site.rows, []).append(name)
        return found

    def mean(self, site: str) -> Tensor:
        """The mean over a site's heads, T S: all heads of all layers at once may be large."""
        return mean_of_heads(self.sites[site].map.full()[0])

    def rollout(self) -> Mapping[str, RecordedSite]:
        """Attention rollout up to each layer, one head, where sites of self-attention share an axis.

        Axes of more than 2,048 rows are skipped: each layer of such a rollout would be a matrix of 16 MB or more.
        """
        found: dict[str, RecordedSite] = {}
        for axis, sites in self.self_attention().items():
            if len(axis) <= MAX_ROLLOUT_ROWS:
                for site, rolled in zip(sites, rollout([self.mean(site) for site in sites]), strict=True):
                    name = f"{ROLLOUT_PREFIX}{site}"
                    keep = (rolled > 0)[None]  # no path of attention leads elsewhere
                    found[name] = RecordedSite(name, axis, axis, Weights(rolled[None, None], keep))
        return found

    def detail(self, site: str) -> Detail:
        """How a site computed its weights, with the actual numbers: the model is run again to record them."""
        return self.details(site)[self.resolve(site)]

    @torch.no_grad()
    def details(self, *sites: str) -> dict[str, Detail]:
        """The details of several sites, in one run."""
        sources = {name: self.sources[name] for name in (self.resolve(site) for site in sites)}
        with record(
            self.run.model, *(name for source in sources.values() for name in source.site.trace_names)
        ) as trace:
            self.run.call()
        found: dict[str, Detail] = {}
        for name, source in sources.items():
            map, values, input = (trace.all(each)[source.call] for each in source.site.trace_names)
            assert isinstance(map, AttentionMap)
            assert isinstance(values, Tensor)
            assert isinstance(input, Tensor)
            found[name] = detail_of(source.site.part, map, values, input, source.tiling)
        return found

    @torch.no_grad()
    def site_inputs(self) -> dict[str, Tensor]:
        """What the queries of each site are made of, T C, with the edits of this run.

        A site whose queries are pooled from its input has none.
        """
        names = {source.site.input_name for source in self.sources.values()}
        if not names:
            return {}
        with self.editing(self.changes, names) as trace:
            self.run.call()
        found: dict[str, Tensor] = {}
        for name, source in self.sources.items():
            x = trace.all(source.site.input_name)[source.call]
            assert isinstance(x, Tensor)
            inputs = inputs_at_queries(source.site.part, x)
            if len(inputs) == len(self.sites[name].rows):
                found[name] = inputs
        return found


class AttentionSite(NamedTuple):
    """A place of attention in a model: the site's name without its last word, the part, and the module given a grid."""

    name: str
    part: Attention
    grid_module: nn.Module | None
    input_name: str  # the trace name of the input of `grid_module`, or of the part

    @property
    def weights_name(self) -> str:
        return f"{self.name}.weights".lstrip(".")

    @property
    def used_name(self) -> str:
        """The trace name of the weights that the model used: those of a choice, where attention is hard."""
        chosen = f"{self.name}.chosen".lstrip(".")
        return chosen if self.is_hard else self.weights_name

    @property
    def is_hard(self) -> bool:
        """Whether attention is a choice of one key, which the part emits."""
        return "chosen" in self.part.emits

    @property
    def trace_names(self) -> tuple[str, str, str]:
        """The trace names of the weights, the values and the input."""
        return self.weights_name, f"{self.name}.values".lstrip("."), self.input_name


def site_names(model: nn.Module) -> list[str]:
    """What a trace records to know all maps."""
    sites = find_attention_sites(model)
    return [site.used_name for site in sites] + [site.input_name for site in sites if site.grid_module is not None]


def located_maps(run: TracedRun, trace: Trace) -> tuple[dict[str, RecordedSite], dict[str, SiteSource]]:
    """Every map of a trace with its axes, and where it comes from."""
    sites: dict[str, RecordedSite] = {}
    sources: dict[str, SiteSource] = {}
    for site in find_attention_sites(run.model):
        maps = trace.values.get(site.used_name, [])  # none of a part that this input does not pass
        for call, map in enumerate(maps):
            assert isinstance(map, Readable)
            name = site.name if len(maps) == 1 else f"{site.name}@{call}"
            if site.grid_module is None:
                rows, columns = run.axes.of(site.name, site.part, *map.shape[2:])
                located, tiling = NoGradMap(map), None
            else:
                rows, columns, located, tiling = locate_on_grid(site, map, trace.all(site.input_name)[call])
            sites[name] = RecordedSite(name, rows, columns, located)
            sources[name] = SiteSource(site, call, len(maps), tiling)
    return sites, sources


def find_attention_sites(model: nn.Module) -> list[AttentionSite]:
    """All attention of a model, first layer first."""
    names = {part: name for name, (part, what) in sites_of(model).items() if what == "input"}
    around: dict[Attention, nn.Module] = {part.attention: part for part in names if isinstance(part, Windowed)}
    found = list[AttentionSite]()
    for part, name in names.items():
        if isinstance(part, Attention):
            on_grid = isinstance(part, LocalAttention | PooledAttention)
            grid_module = around.get(part) or (part if on_grid else None)
            site = name.removesuffix("input").removesuffix(".")
            found.append(AttentionSite(site, part, grid_module, names[grid_module or part]))
    return found


def pooled_token(model: nn.Module) -> int | None:
    """The token that a head of whole inputs reads: 0, −1, or None where it reads all of them or there is none."""
    encoder = model if isinstance(model, Trunk) else getattr(model, "input_encoder", None)
    head = main_head(encoder.head) if isinstance(encoder, Trunk) else None
    pool = head.pool if isinstance(head, RowHead) else None
    return 0 if isinstance(pool, FirstToken) else -1 if isinstance(pool, LastToken) else None


def locate_on_grid(
    site: AttentionSite, map: Readable, input: object
) -> tuple[Axis, Axis, NoGradMap | GridMap, Tiling | None]:
    """The rows, columns, map over the grid and tiling of a site that was given the grid `input`, 1 Y X C."""
    assert isinstance(input, Tensor)
    assert site.grid_module is not None
    grid: GridSize = (input.shape[1], input.shape[2])
    if isinstance(site.part, PooledAttention):
        queries, keys = pooled_grids(site.part, grid)
        return cells(queries), cells(keys), NoGradMap(map), None
    tiling = to_device(tiling_of(site.part, site.grid_module, grid, map.shape[2]), input.device)
    return cells(tiling.q_grid), cells(tiling.k_grid), GridMap(map, tiling), tiling


def compose(first: Edit, second: Edit) -> Edit:
    return lambda weights: second(first(weights))
