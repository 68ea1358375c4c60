"""One recording as a page needs it: JSON for what is small, and blobs of bytes, by id, for what is large.

A file holds some of the blobs; a server gives each on request.  The id of a blob has the number of its recording, its
kind and its site: `0.t3` thumbnails, `0.e3` the entropy of each row, `0.s3` its strongest key, `0.d3` the detail of a
site, `0.r3.17` the exact weights of query 17 in each head, `0.m3.1.5.0.2` the tile in row 0 and column 2 of head 5 at
level 1 (`a` for all heads).

Axes:  H heads   T queries   S keys   h w rows and columns of cells
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from headway.errors import UserError
from headway.look.grid_map import Detail, lacks_detail
from headway.look.head_edits import HeadEffect
from headway.look.module_flow import module_flow
from headway.look.output_lens import OutputLens, output_lens
from headway.look.principal_plane import Plane, plane_to_json, site_planes
from headway.look.recording import ROLLOUT_PREFIX, WHOLE_INPUT, RecordedSite, Recording
from headway.look.relevance import RELEVANCE_PREFIX, relevance
from headway.look.run_data import (
    Json,
    effects_to_json,
    flow_to_json,
    json_number,
    lens_to_json,
    outcome_to_json,
    run_to_json,
)
from headway.look.tiles import TILE, RowFacts, TiledMap, row_facts
from headway.look.weight_codes import STRONGEST
from headway.ops.attention_statistics import STATISTICS
from headway.tasks.tracing import Axis, FrameAxis, GridAxis, TokenAxis

EXACT_PARTS = ("q", "k", "bias", "additive")  # float32: what weights are computed from again
PARTS = (*EXACT_PARTS, "x", "v", "out")  # of a detail, in the order of their bytes
FLOAT16_MAX = 65504.0
MAX_ROLLOUT_CELLS = 2**25  # of all rollouts together
MAX_DETAIL_WEIGHTS = 2**24  # of a site that has a detail: its bias may have as many


class TileKey(NamedTuple):
    """The place of a tile; `head` is None for all heads in one blob."""

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


class PageData:
    """A recording and its number in a page.

    The coarsest level of a map has at most `side` cells per side, and the `strongest` weights of a row are rounded.
    """

    def __init__(self, recording: Recording, number: int, side: int, strongest: int = STRONGEST):
        self.recording, self.number = recording, number
        cells = sum(site.map.shape[2] * site.map.shape[3] for site in recording.sites.values())
        rolled = recording.rollout() if cells <= MAX_ROLLOUT_CELLS else {}
        rolled = {**rolled, **(relevance(recording) if rolled else {})}
        self.sites: list[RecordedSite] = [*recording.sites.values(), *rolled.values()]
        self.derived = [False] * len(recording.sites) + [True] * len(rolled)
        self.set_resolution(side, strongest)

    def set_resolution(self, side: int, strongest: int) -> None:
        """Cut the maps into levels and tiles again."""
        self.tiled = [TiledMap(site.map, side, strongest) for site in self.sites]

    def to_json(
        self, effects: Sequence[HeadEffect] | None, details: Mapping[int, Json], blob_id: Callable[[str], str | None]
    ) -> Json:
        """All but the blobs: `blob_id` gives the id of an included one, `details` the layouts of details by site."""
        return {
            "id": self.number,
            **run_to_json(self.recording),
            "outcome": self.outcome_json,
            "lens": None if self.lens is None else lens_to_json(self.lens),
            "flow": self.flow_json,
            "axes": {axis.name: axis_to_json(axis) for site in self.sites for axis in (site.rows, site.columns)},
            "sites": self.maps_json(effects, details, blob_id),
            "effects": None if effects is None else effects_to_json(effects),
        }

    def maps_json(
        self,
        effects: Sequence[HeadEffect] | None = None,
        details: Mapping[int, Json] = MappingProxyType({}),
        blob_id: Callable[[str], str | None] = str,
    ) -> list[Json]:
        """All sites; without `blob_id` every blob is there, as on a server."""
        return [
            {
                **known,
                "stats": {**known["stats"], "effect": self.effect_of_heads(site, effects)},
                **self.tiles_json(at, blob_id),
                "detail": details.get(at),
            }
            for at, (site, known) in enumerate(zip(self.sites, self.sites_json, strict=True))
        ]

    @cached_property
    def lens(self) -> OutputLens | None:
        return output_lens(self.recording)

    @cached_property
    def flow_json(self) -> Json:
        return flow_to_json(module_flow(self.recording))

    @property
    def outcome_json(self) -> Json:
        """The outcome, with what its probabilities at other temperatures follow from."""
        found = outcome_to_json(self.recording.outcome)
        if self.lens is not None and found["steps"]:
            for step, partitions in zip(found["steps"][self.lens.first :], self.lens.partitions, strict=True):
                step["partitions"] = [json_number(value) for value in partitions]
        return found

    @cached_property
    def facts(self) -> list[RowFacts]:
        """What is known of the rows of each site."""
        return [row_facts(site.map) for site in self.sites]

    @cached_property
    def planes(self) -> dict[str, Plane]:
        return site_planes(self.recording)

    @cached_property
    def sites_json(self) -> list[Json]:
        """The part of each site that does not depend on which blobs there are."""
        return [
            {
                "name": site.name,
                "label": site_label(site.name),
                "derived": derived,
                "heads": site.heads,
                "rows": site.rows.name,
                "columns": site.columns.name,
                "shape": list(site.map.shape[2:]),
                "stats": site_statistics(site),
                "hard": self.recording.is_hard(site.name),
                "opens": opening_row(self.recording, site),
                "peaks": [json_number(peak) for peak in facts.peak.tolist()],
                "plane": None if site.name not in self.planes else plane_to_json(self.planes[site.name]),
            }
            for site, derived, facts in zip(self.sites, self.derived, self.facts, strict=True)
        ]

    def effect_of_heads(self, site: RecordedSite, effects: Sequence[HeadEffect] | None) -> list[float | None] | None:
        """The change in the score of the outcome without each head."""
        off = [effect for effect in effects or () if effect.site == site.name and effect.how == "off"]
        before = self.recording.outcome.total
        return [json_number(effect.outcome.total - before) for effect in off] or None

    def tiles_json(self, at: int, blob_id: Callable[[str], str | None]) -> Json:
        tiled = self.tiled[at]
        levels = [
            {
                "scale": level.scale,
                "tile": TILE,
                "shape": list(level.shape),
                "blobs": {tile.key: id for tile in self.tiles(at, number) if (id := blob_id(tile.id)) is not None},
            }
            for number, level in enumerate(tiled.levels)
        ]
        return {
            "thumbs": {"blob": blob_id(self.thumbs_id(at)), "shape": list(tiled.thumbs_shape)},
            "entropy": blob_id(self.entropy_id(at)),
            "strongest": blob_id(self.strongest_id(at)),
            "levels": levels,
        }

    def tiles(self, at: int, level: int) -> Iterator[TileKey]:
        """The tiles of a level, strip by strip."""
        tiled = self.tiled[at]
        for i, j in tiled.levels[level].places():
            for head in [None] if tiled.whole else range(tiled.heads):
                yield TileKey(self.number, at, level, head, i, j)

    def cells(self, tile: TileKey) -> bytes:
        found = self.tiled[tile.site].tile(tile.level, tile.i, tile.j)
        return (found if tile.head is None else found.head(tile.head)).to_bytes()

    def thumbs_id(self, at: int) -> str:
        return f"{self.number}.t{at}"

    def entropy_id(self, at: int) -> str:
        return f"{self.number}.e{at}"

    def strongest_id(self, at: int) -> str:
        return f"{self.number}.s{at}"

    def detail_id(self, at: int) -> str:
        return f"{self.number}.d{at}"

    def detail(self, at: int) -> Detail | None:
        """The detail of a site, unless it is too large or the page could not add it up."""
        return self.recording.detail(self.sites[at].name) if self.has_detail(at) else None

    def details(self) -> dict[int, Detail]:
        """The details of all sites, by their index, in one run."""
        names = {at: site.name for at, site in enumerate(self.sites) if self.has_detail(at)}
        found = self.recording.details(*names.values())
        return {at: found[name] for at, name in names.items()}

    def has_detail(self, at: int) -> bool:
        _, heads, rows, columns = self.sites[at].map.shape
        if self.derived[at] or heads * rows * columns > MAX_DETAIL_WEIGHTS:
            return False
        source = self.recording.sources.get(self.sites[at].name)
        return source is None or not lacks_detail(source.site.part)

    def blob(self, id: str) -> bytes:
        """Any blob by its id."""
        for at in range(len(self.sites)):
            if id in (small := self.small_blobs(at)):
                return small[id]()
            if id == self.detail_id(at):
                detail = self.detail(at)
                if detail is None:
                    raise UserError(f"the detail of {self.sites[at].name} is too large")
                return detail_bytes(detail)
            if (row := id.removeprefix(f"{self.number}.r{at}.")) != id:
                return self.exact_row(at, row)
            if id.startswith(f"{self.number}.m{at}."):
                tiles = (tile for level in range(len(self.tiled[at].levels)) for tile in self.tiles(at, level))
                if found := next((tile for tile in tiles if tile.id == id), None):
                    return self.cells(found)
        raise UserError(f"there is no blob {id!r} of this recording")

    def small_blobs(self, at: int) -> dict[str, Callable[[], bytes]]:
        """What there is of every site: thumbnails, and facts of its rows."""
        return {
            self.thumbs_id(at): lambda: self.tiled[at].thumbs.tobytes(),
            self.entropy_id(at): lambda: self.facts[at].entropy_bytes(),
            self.strongest_id(at): lambda: self.facts[at].strongest_bytes(),
        }

    def exact_row(self, at: int, row: str) -> bytes:
        """The weights of one query in each head, H S, float32; NaN where a key is hidden."""
        site = self.sites[at]
        if not row.isdecimal() or int(row) >= len(site.rows):
            raise UserError(f"{site.name} has no row {row}", allowed=f"0 to {len(site.rows) - 1}")
        band = site.map.band(int(row), int(row) + 1)
        seen = site.map.seen(band)
        weights = band.weights if seen is None else torch.where(seen[:, None], band.weights, torch.nan)
        spread = weights.new_full((*weights.shape[:3], site.map.shape[3]), torch.nan)
        found = spread.index_copy(3, band.keys, weights)[0, :, 0]
        return found.float().cpu().numpy().astype("<f4").tobytes()


def axis_to_json(axis: Axis) -> Json:
    """An axis, without the labels that the page can derive."""
    common: Json = {"kind": axis.kind, "count": len(axis), "special": list(axis.special)}
    match axis:
        case GridAxis():
            return common | {"grid": list(axis.grid), "first": axis.first, "labels": list(axis.labels[: axis.first])}
        case FrameAxis():
            return common | {"seconds": axis.seconds}
        case TokenAxis() if 1 < len(axis.words) < len(axis):
            return common | {"labels": list(axis.labels), "words": list(axis.words)}
        case _:
            return common | {"labels": list(axis.labels)}


def detail_to_json(detail: Detail, id: str, parts: Sequence[str] = PARTS) -> Json:
    """The layout of the parts of a detail in the blob `id`."""
    found = {name: getattr(detail, name) if name in parts else None for name in PARTS}
    shapes = {name: None if part is None else list(part.shape) for name, part in found.items()}
    return {"blob": id, "score": detail.score, "scale": json_number(detail.scale), "layout": shapes}


def detail_bytes(detail: Detail, parts: Sequence[str] = PARTS) -> bytes:
    """These parts of a detail, one after the other: float32, where weights follow from them, and else float16."""
    found = [(name, getattr(detail, name)) for name in PARTS if name in parts]
    return b"".join(
        (to_float32(part) if name in EXACT_PARTS else to_float16(part)).numpy().tobytes()
        for name, part in found
        if part is not None
    )


def to_float32(part: Tensor) -> Tensor:
    """As float32: only hidden keys stay −∞."""
    part = part.detach().float().cpu()
    return torch.where(part == -torch.inf, part, part.nan_to_num(0))


def to_float16(part: Tensor) -> Tensor:
    """As float16: values are clamped to its range, and only hidden keys stay −∞."""
    part = part.detach().float().cpu()
    return torch.where(part == -torch.inf, part, part.nan_to_num(0).clamp(-FLOAT16_MAX, FLOAT16_MAX)).half()


def opening_row(recording: Recording, site: RecordedSite) -> int | None:
    """The row to open with, where no step of the outcome says it: the one that decides, else one of the input's own."""
    deciding = recording.deciding_row(site)
    if deciding is not None or recording.outcome.kind not in WHOLE_INPUT:
        return 0 if deciding is None and isinstance(site.rows, GridAxis) else deciding
    return next((row for row in range(len(site.rows)) if row not in site.rows.special), 0)


def site_label(name: str) -> str:
    """A site's name for people, with the same numbers: decoder.1.cross is decoder 1 · cross, 1.0 stage 1 · layer 0."""
    if name.startswith(ROLLOUT_PREFIX):
        return f"rollout to {site_label(name.removeprefix(ROLLOUT_PREFIX))}"
    if name.startswith(RELEVANCE_PREFIX):
        return f"gradient rollout to {site_label(name.removeprefix(RELEVANCE_PREFIX))}"
    words = list[str]()
    for part in name.split("."):
        word, _, turn = part.partition("@")
        if not word.isdecimal():
            words.append(word)
        elif len(words) == 1 and words[0].startswith("layer "):  # a number behind a number
            words = [words[0].replace("layer", "stage"), f"layer {word}"]
        elif words:
            words[-1] += f" {word}"
        else:
            words.append(f"layer {word}")
        words[-1] += f", turn {turn}" if turn else ""
    return " · ".join(words)


def site_statistics(site: RecordedSite) -> Json:
    """A number for each head, where one applies: its mean over the queries."""
    found = {name: getattr(site.statistics, name) for name in STATISTICS}
    return {
        name: value if value is None else [json_number(one) for one in value.tolist()] for name, value in found.items()
    }
