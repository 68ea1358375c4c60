"""A recorded run of a model on one input: every attention map in the coordinates of the input, and the outcome.

Head ablation runs the model again with one head switched off, made uniform, or left as the only one of its site.

Axes:  H heads   T queries   S keys
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from operator import index
from typing import NamedTuple, Self, SupportsIndex

import torch
from torch import Tensor, nn

from headway.errors import UserError, listed, nearest
from headway.look.grid_map import Detail, GridMap, GridSize, NoGradMap, Tiling, detail_of, pooled_grids, tiling_of
from headway.nn.attention import Attention
from headway.nn.head import FirstToken, LastToken, RowHead, main_head
from headway.nn.trace import HEAD_EDITS, Edit, EditKind, Trace, record, sites_of, unmatched
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
MAX_FLOPS = 3 * 10**11  # of all head effects: about 15 seconds of one core, which does 1 to 6 · 10¹⁰ in a second
CALL_FLOPS = 10**7  # FLOPs that cost as much as the call of a site, measured on sites of a few tokens


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


@dataclass(frozen=True)
class HeadEdit:
    """An edit of one head of one site."""

    site: str
    head: int
    how: EditKind


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
        places = find_attention_sites(run.model)
        names = [site.used_name for site in places] + [s.input_name for s in places if s.grid_module is not None]
        with record(run.model, *names) as trace:
            found = run.call()
        sites: dict[str, RecordedSite] = {}
        sources: dict[str, SiteSource] = {}
        for site in places:
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
    def edited(self, *edits: HeadEdit) -> Outcome:
        """The outcome with just these edits.  `total` scores the output before them; the text is generated anew."""
        with self.editing(edits):
            return self.run.reader.outcome(self.run.call())

    @torch.no_grad()
    def effect(self, *edits: HeadEdit) -> float:
        """The change in the score of the original output under these edits: one run, nothing is generated."""
        with self.editing(edits):
            found = self.run.call()
        return self.run.reader.outcome(found, self.outcome.text).total - self.outcome.total

    def editing(self, edits: Iterable[HeadEdit]) -> AbstractContextManager[Trace]:
        """A context in which the weights are edited; edits of one site are composed in order."""
        found: dict[str, Edit] = {}
        for each in edits:
            name = self.resolve(each.site)
            source = self.sources[name]
            edit = edit_at_call(each.how(self.sites[name].head(each.head)), source.call, source.calls)
            weights = source.site.weights_name
            found[weights] = compose(found[weights], edit) if weights in found else edit
        return record(self.run.model, *found, edit=found)

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


def edit_at_call(edit: Edit, call: int, calls: int) -> Edit:
    """An edit of one of the calls of a layer whose parameters are shared."""
    if calls == 1:
        return edit
    counter = count()

    def chosen(weights: Tensor) -> Tensor:
        return edit(weights) if next(counter) % calls == call else weights

    return chosen


def compose(first: Edit, second: Edit) -> Edit:
    return lambda weights: second(first(weights))


@dataclass(frozen=True)
class HeadEffect:
    """The outcome with one head edited; `how` is a key of `HEAD_EDITS`."""

    site: str
    head: int
    how: str
    outcome: Outcome


def head_effects(recording: Recording, kinds: Iterable[str] = HEAD_EDITS) -> Iterator[HeadEffect]:
    """Every head of every site, with each of these kinds of edit."""
    names = list(kinds)
    for site in recording.sites.values():
        for head in range(site.heads):
            for name in names:
                outcome = recording.edited(HeadEdit(site.name, head, HEAD_EDITS[name]))
                yield HeadEffect(site.name, head, name, outcome)


def affordable_edits(recording: Recording, share: float = 1.0) -> tuple[str, ...]:
    """The kinds of edits whose effects fit the budget, or a share of it: all, only switching off, or none.

    Approximate FLOPs of a run: each parameter meets each token, and the output is generated step by step.
    """
    sites, steps = recording.sites.values(), max(1, len(recording.outcome.steps))
    tokens = steps + max((len(site.columns) for site in sites), default=0)
    flops = 2 * recording.parameters * tokens + CALL_FLOPS * len(sites) * steps
    heads, budget = sum(site.heads for site in sites), share * MAX_FLOPS
    return next((kinds for kinds in (tuple(HEAD_EDITS), ("off",)) if len(kinds) * heads * flops <= budget), ())


def edit_count(recording: Recording) -> int:
    return len(HEAD_EDITS) * sum(site.heads for site in recording.sites.values())


def parse_head_edit(recording: Recording, site: object, head: object, how: object) -> HeadEdit:
    """A checked edit from the values of a request."""
    if not isinstance(site, str) or site not in recording.sites:
        names = list(recording.sites)
        raise UserError(f"no site {site!r} to edit", allowed=listed(names), meant=nearest(str(site), names))
    number = recording.sites[site].head(head)
    if not isinstance(how, str) or how not in HEAD_EDITS:
        raise UserError(f"unknown edit {how!r}", allowed=listed(HEAD_EDITS))
    return HeadEdit(site, number, HEAD_EDITS[how])
