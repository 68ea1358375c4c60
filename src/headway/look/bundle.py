"""The contents of a page file: all recordings as JSON, and as many of their blobs as keep the file small.

First of every head the thumbnails, the entropy of each row, its strongest key where weights are pooled, and the
coarsest level, as fine as fits; then the details of a few sites; then finer tiles, head by head, from the site that the
page opens with.  The page says what is left out; a server has all of it.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isnan

from headway.errors import UserError, listed, nearest
from headway.figures import COLOURS
from headway.look.head_edits import HeadEffect
from headway.look.output_lens import TEMPERATURES
from headway.look.page_data import PARTS, PageData, detail_bytes, detail_to_json
from headway.look.principal_plane import PointCloud, clouds_to_json
from headway.look.recording import Recording
from headway.look.run_data import Json
from headway.look.tiles import THUMB_LEVELS
from headway.look.weight_codes import CLASSES, STRONGEST
from headway.tasks.tracing import Axis

FORMAT = 2
SIDES = (512, 256, 128, 64, 32)  # cells per side of the coarsest level: the first with which all heads fit
ALL = 2**31  # weights of a row are rounded in a page that stays light
MAX_DENSE_CELLS = 2**28  # of a level, to compress all its heads; of a larger one, only the chosen head
BLOB_OVERHEAD = 120  # bytes of a blob besides its own: its element, and its entry in the JSON
DETAIL_CHOICES = (  # parts of a detail: the first that fit
    PARTS,
    ("x", "q", "k", "v", "bias", "additive"),
    ("q", "k", "v", "bias", "additive"),
    ("q", "k", "bias", "additive"),
)


@dataclass(frozen=True)
class PageLimits:
    """Sizes in bytes: at most `page`, of which `code` is the page's own.

    All weights are rounded, and details may fill a page, up to `light`; in a larger one they get a `share` of its size.
    `effects` is the share of the budget for effects of head edits.
    """

    page: int
    light: int = 1_480_000
    share: float = 0.25
    code: int = 250_000
    effects: float = 1.0


FILE_LIMITS = PageLimits(15_000_000)
NOTEBOOK_LIMITS = PageLimits(
    4_000_000, light=600_000, effects=0.2
)  # the notebook stores a copy for each time it is shown


@dataclass(frozen=True)
class Focus:
    """The head that a page opens with, of the first recording, perhaps minus that of the recording to `compare`.

    `view` is that of the page; None: what fits the site.
    """

    site: str
    head: int = 0
    compare: int | None = None
    view: str | None = None


@dataclass(frozen=True, eq=False)
class Bundle:
    """The data of a page, and blobs by id: base64 of gzip."""

    data: Json
    blobs: Mapping[str, str]


def pack_bundle(
    runs: Sequence[Recording],
    focus: Focus | None = None,
    effects: Mapping[int, Sequence[HeadEffect]] | None = None,
    limits: PageLimits = FILE_LIMITS,
    clouds: Sequence[PointCloud] = (),
) -> Bundle:
    """The contents of a page; `effects` of head edits by the index of the run, where they are known."""
    known = effects or {}
    focus = focus or choose_focus(runs[0], effects=known.get(0, ()))
    pages = [PageData(run, number, SIDES[0]) for number, run in enumerate(runs)]
    bare = sum(len(script_json(page.to_json(known.get(page.number), {}, lambda _: None))) for page in pages)
    packing = pack_coarse(pages, limits, limits.code + bare)
    details = pack_details(pages, focus, packing, limits)
    pack_finer(pages, focus, packing)
    runs_json = [page.to_json(known.get(n), details[n], packing.names.get) for n, page in enumerate(pages)]
    return Bundle(page_json(runs_json, focus, clouds), packing.blobs)


def page_json(runs: list[Json], focus: Focus, clouds: Sequence[PointCloud] = (), *, live: bool = False) -> Json:
    """The data of a page: all recordings, and what to open with."""
    opened = {"run": 0, **{name: value for name, value in asdict(focus).items() if value is not None}}
    codes = {"classes": CLASSES, "thumbs": THUMB_LEVELS, "temperatures": TEMPERATURES}
    found: Json = {"format": FORMAT, "live": live, "focus": opened, "codes": codes, "colours": COLOURS}
    return found | {"runs": runs, "clouds": clouds_to_json(clouds)}


def script_json(value: object) -> str:
    """ASCII JSON that is safe inside HTML: `<`, `>` and `&` are escaped."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def choose_focus(
    recording: Recording,
    site: str | None = None,
    beside: Recording | None = None,
    effects: Sequence[HeadEffect] = (),
) -> Focus:
    """The head to open with: of the requested site; else of cross-attention, where a model has that; else of any site.

    Of these heads it is the one that matters most when it is off, by the `effects` that are known, and else the one of
    the lowest entropy.  With another recording `beside` it, the page opens with their difference, if possible at a site
    of the same shape.
    """
    names, compare = list(recording.sites), None if beside is None else 1
    if site is not None:
        name = site.removesuffix(".weights")
        if name not in names:
            raise UserError(f"the model has no site {site!r}", allowed=listed(names), meant=nearest(site, names))
        names = [name]
    elif beside is not None:
        shapes = {name: each.map.shape for name, each in beside.sites.items()}
        names = [name for name in names if recording.sites[name].map.shape == shapes.get(name)] or names
    sites = [recording.sites[name] for name in names]
    across = [each for each in sites if each.rows.name != each.columns.name]
    sites = [each for each in across or sites if len(each.columns) > 1] or across or sites  # one key has no choice
    off = {
        (one.site, one.head): -abs(one.outcome.total - recording.outcome.total) for one in effects if one.how == "off"
    }
    ranks = [
        (off[each.name, head] if off else float(each.statistics.entropy[head]), number, head)
        for number, each in enumerate(sites)
        for head in range(each.heads)
    ]
    _, number, head = min(ranks, key=lambda rank: (isnan(rank[0]), *rank))
    return Focus(sites[number].name, head, compare)


def check_comparable(first: Recording, second: Recording) -> None:
    """Refuse two recordings whose common axes differ, or which have none in common."""
    ours, theirs = axes_by_name(first), axes_by_name(second)
    for name in [name for name in ours if name in theirs]:
        if not same_labels(ours[name], theirs[name]):
            one, other = (len(axes[name]) for axes in (ours, theirs))
            sizes = f"{one} and {other}" if one != other else f"{one}, but not the same"
            differ = f"{first.title} and {second.title} do not see the same {name}: {sizes}"
            raise UserError(differ, do="take models with the same tokens")
    if not ours.keys() & theirs.keys():
        apart = f"{first.title} sees {listed(ours)} and {second.title} {listed(theirs)}: nothing can be compared"
        raise UserError(apart, do="look at each by itself")


def same_labels(one: Axis, other: Axis) -> bool:
    """Whether two axes have the same labels; the spelling of special tokens does not matter."""
    apart = {*one.special} & {*other.special}
    return len(one) == len(other) and all(
        ours == theirs or at in apart for at, (ours, theirs) in enumerate(zip(one.labels, other.labels, strict=True))
    )


def axes_by_name(recording: Recording) -> dict[str, Axis]:
    return {axis.name: axis for site in recording.sites.values() for axis in (site.rows, site.columns)}


class Packing:
    """The blobs included so far, each under the id of the first equal one, and the size of the page."""

    def __init__(self, limit: int, size: int):
        self.limit, self.size = limit, size
        self.names, self.first = dict[str, str](), dict[str, str]()

    @property
    def blobs(self) -> dict[str, str]:
        return {id: blob for blob, id in self.first.items()}

    def add(self, blobs: Mapping[str, str], limit: int | None = None) -> bool:
        """Add all of these blobs, or none if they do not fit."""
        fresh = {blob for blob in blobs.values() if blob not in self.first}
        size = self.size + BLOB_OVERHEAD * len(blobs) + sum(map(len, fresh))
        if size > (self.limit if limit is None else limit):
            return False
        for id, blob in blobs.items():
            self.names[id] = self.first.setdefault(blob, id)
        self.size = size
        return True


def gzip_base64(data: bytes) -> str:
    """Weights hardly repeat: a filtered strategy, which looks for few matches, makes them smaller by a tenth."""
    packer = zlib.compressobj(6, zlib.DEFLATED, 31, 9, zlib.Z_FILTERED)
    return b64encode(packer.compress(data) + packer.flush()).decode("ascii")


def pack_coarse(pages: Sequence[PageData], limits: PageLimits, size: int) -> Packing:
    """Thumbnails and the coarsest level of every site, as fine as fits; at the coarsest resolution without a limit."""
    choices = [(SIDES[0], ALL, limits.light), *((side, STRONGEST, limits.page) for side in SIDES[:-1])]
    for side, strongest, limit in [*choices, (SIDES[-1], STRONGEST, 2**40)]:
        packing = Packing(limits.page, size)
        for page in pages:
            page.set_resolution(side, strongest)
        if all(packing.add(coarse_blobs(page, at), limit) for page in pages for at in range(len(page.sites))):
            return packing
    raise AssertionError("the last choice has no limit")


def coarse_blobs(page: PageData, at: int) -> dict[str, str]:
    """What there is of every site; strongest keys can be read from weights that are not pooled."""
    levels, small = page.tiled[at].levels, page.small_blobs(at)
    if len(levels) == 1:
        del small[page.strongest_id(at)]
    tiles = {tile.id: page.cells(tile) for tile in page.tiles(at, len(levels) - 1)}
    return {id: gzip_base64(data) for id, data in {**{id: make() for id, make in small.items()}, **tiles}.items()}


def pack_details(
    pages: Sequence[PageData], focus: Focus, packing: Packing, limits: PageLimits
) -> dict[int, dict[int, Json]]:
    """The details of sites by run and site, those of the focus first, until those of one do not fit."""
    details = {page.number: dict[int, Json]() for page in pages}
    heavy = packing.size >= limits.light
    end = min(limits.page, round(packing.size * (1 + limits.share)) if heavy else limits.light)
    for page, at in sites_by_focus(pages, focus):
        detail = page.detail(at)
        if detail is None:
            continue
        id = page.detail_id(at)
        for parts in DETAIL_CHOICES:
            if packing.add({id: gzip_base64(detail_bytes(detail, parts))}, end):
                details[page.number][at] = detail_to_json(detail, packing.names[id], parts)
                break
        else:
            break
    return details


def pack_finer(pages: Sequence[PageData], focus: Focus, packing: Packing) -> None:
    """Finer tiles, coarse levels first, until a head's do not fit; of a head at one level all tiles are in, or none."""
    near = [(page, at) for page, at in sites_by_focus(pages, focus) if page.sites[at].name == focus.site]
    for sites in (near, [each for each in sites_by_focus(pages, focus) if each not in near]):
        deepest = max((len(page.tiled[at].levels) for page, at in sites), default=0)
        for level in range(deepest - 2, -1, -1):
            for page, at in sites:
                if level < len(page.tiled[at].levels) - 1 and not pack_level(page, at, level, focus, packing):
                    return


def pack_level(page: PageData, at: int, level: int, focus: Focus, packing: Packing) -> bool:
    """One level of a site, the chosen head first; returns whether all of it is in."""
    heads, (rows, columns) = page.sites[at].heads, page.tiled[at].levels[level].shape
    first = min(focus.head, heads - 1)
    wanted = {first} if heads * rows * columns > MAX_DENSE_CELLS else set(range(heads))
    by_head = {head: dict[str, str]() for head in (first, *sorted(wanted - {first}))}
    for tile in page.tiles(at, level):
        if tile.head is not None and tile.head in wanted:
            by_head[tile.head][tile.id] = gzip_base64(page.cells(tile))
    return all(packing.add(blobs) for blobs in by_head.values()) and len(wanted) == heads


def sites_by_focus(pages: Sequence[PageData], focus: Focus) -> list[tuple[PageData, int]]:
    """All sites of all recordings, those of the focus first."""
    every = [(page, at) for page in pages for at in range(len(page.sites))]
    return sorted(every, key=lambda each: each[0].sites[each[1]].name != focus.site)
