"""What a page holds: all recordings in plain data, and as many of their pieces as keep the file small.

First the thumbnails and the coarsest level of every head, so coarse that they fit; then the numbers behind the weights
of a few sites; then finer tiles, head by head, from the site that the page opens with.  What is left out, the page
says; a server has all of it.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from gzip import compress

from headway.errors import UserError, listed, nearest
from headway.look.attended import Attended
from headway.look.axis import Axis
from headway.look.effects import Effect
from headway.look.exhibit import Exhibit
from headway.look.plain import PARTS, Plain, halves, plain_detail
from headway.look.tiles import LEVELS, POWER

FORMAT = 1
SIDES = (512, 256, 128, 64, 32)  # cells to a side of the coarsest level: the first with which all heads fit
DENSE = 2**28  # cells of a level that are all compressed to see what fits; of a larger one, only the chosen head
AROUND = 120  # bytes that a piece takes besides its own: its element, and its place in the list
CHOICES = (  # parts of a detail: the first that fit
    PARTS,
    ("x", "q", "k", "v", "bias", "additive"),
    ("q", "k", "v", "bias", "additive"),
    ("q", "k", "bias", "additive"),
)


@dataclass(frozen=True)
class Limits:
    """Bytes of a page: at most `page`, of which `code` is the page's own.

    The numbers behind the weights may fill a page up to `light`; in a larger one they get a share of its size.
    """

    page: int
    light: int = 1_480_000
    share: float = 0.25
    code: int = 200_000


FILE = Limits(15_000_000)
NOTEBOOK = Limits(4_000_000, light=600_000)  # it is saved in the notebook, each time it is shown


@dataclass(frozen=True)
class Focus:
    """What a page opens with: a head of a site of the first recording, perhaps less that of the one to `compare`."""

    site: str
    head: int = 0
    compare: int | None = None


@dataclass(frozen=True, eq=False)
class Bundle:
    """Plain data, and pieces by name: base64 of gzip."""

    plain: Plain
    blobs: Mapping[str, str]


def bundle(
    runs: Sequence[Attended],
    focus: Focus | None = None,
    effects: Mapping[int, Sequence[Effect]] | None = None,
    limits: Limits = FILE,
) -> Bundle:
    """A page's contents; `effects` are what edits of the runs' heads give, where that is known."""
    focus, known = focus or focus_of(runs[0]), effects or {}
    exhibits = [Exhibit(run, number, SIDES[0]) for number, run in enumerate(runs)]
    bare = sum(len(written(exhibit.told(known.get(exhibit.number), {}, nowhere))) for exhibit in exhibits)
    packing = coarse(exhibits, limits, limits.code + bare)
    details = {exhibit.number: dict[int, Plain]() for exhibit in exhibits}
    pack_details(exhibits, focus, packing, details, limits)
    pack_finer(exhibits, focus, packing)
    runs_told = [exhibit.told(known.get(n), details[n], packing.names.get) for n, exhibit in enumerate(exhibits)]
    return Bundle(opened(runs_told, focus), packing.blobs)


def opened(runs: list[Plain], focus: Focus | None, *, live: bool = False) -> Plain:
    """All recordings, and where to begin."""
    told = {name: value for name, value in asdict(focus).items() if value is not None} if focus else None
    at = None if told is None else {"run": 0, **told}
    quant = {"levels": LEVELS, "power": POWER}
    return {"format": FORMAT, "live": live, "focus": at, "quant": quant, "runs": runs}


def written(value: object) -> str:
    """JSON that no HTML can misread, all in ASCII: a `<` of a text never stands in the file."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def focus_of(attended: Attended, site: str | None = None, beside: Attended | None = None) -> Focus:
    """The site to begin with: the one asked for; else the last that looks across; else one in the middle.

    With another recording `beside` it, the page begins with their difference, where both have a site of the same form.
    """
    names, compare = list(attended.sites), None if beside is None else 1
    if site is not None:
        name = site.removesuffix(".weights")
        if name not in names:
            raise UserError(f"the model has no site {site!r}", allowed=listed(names), meant=nearest(site, names))
        return Focus(name, compare=compare)
    names = [name for name in names if beside is None or formed(attended, name) == formed(beside, name)] or names
    across = [name for name in names if attended.sites[name].rows.name != attended.sites[name].columns.name]
    return Focus(across[-1] if across else names[len(names) // 2], compare=compare)


def formed(attended: Attended, name: str) -> tuple[int, ...] | None:
    """The form of a site's map; None where there is no such site."""
    return attended.sites[name].map.shape if name in attended.sites else None


def agreed(first: Attended, second: Attended) -> None:
    """Two recordings can be compared where what their maps share has the same rows and columns."""
    ours, theirs = axes_of(first), axes_of(second)
    for name in [name for name in ours if name in theirs]:
        if not alike(ours[name], theirs[name]):
            one, other = (len(axes[name]) for axes in (ours, theirs))
            told = f"{one} and {other}" if one != other else f"{one}, but not the same"
            said = f"{first.title} and {second.title} do not see the same {name}: {told}"
            raise UserError(said, do="take models with the same tokens")
    if not ours.keys() & theirs.keys():
        said = f"{first.title} sees {listed(ours)} and {second.title} {listed(theirs)}: nothing can be compared"
        raise UserError(said, do="look at each by itself")


def alike(one: Axis, other: Axis) -> bool:
    """Whether both stand for the same; how special tokens are spelled does not matter."""
    apart = {*one.special} & {*other.special}
    return len(one) == len(other) and all(
        ours == theirs or at in apart for at, (ours, theirs) in enumerate(zip(one.labels, other.labels, strict=True))
    )


def axes_of(attended: Attended) -> dict[str, Axis]:
    return {axis.name: axis for site in attended.sites.values() for axis in (site.rows, site.columns)}


class Packing:
    """Pieces that are in, under the name of the first that is the same, and the size of the page so far."""

    def __init__(self, limit: int, size: int):
        self.limit, self.size = limit, size
        self.names, self.first = dict[str, str](), dict[str, str]()

    @property
    def blobs(self) -> dict[str, str]:
        return {id: blob for blob, id in self.first.items()}

    def add(self, blobs: Mapping[str, str], limit: int | None = None) -> bool:
        """Takes all of these pieces, or none of them where they would not fit."""
        fresh = {blob for blob in blobs.values() if blob not in self.first}
        size = self.size + AROUND * len(blobs) + sum(map(len, fresh))
        if size > (self.limit if limit is None else limit):
            return False
        for id, blob in blobs.items():
            self.names[id] = self.first.setdefault(blob, id)
        self.size = size
        return True


def folded(data: bytes) -> str:
    return b64encode(compress(data, 6, mtime=0)).decode("ascii")


def coarse(exhibits: Sequence[Exhibit], limits: Limits, size: int) -> Packing:
    """A packing with thumbnails and the coarsest level of everything, as fine as fits (or as coarse as can be)."""
    packing = Packing(limits.page, size)
    for side in SIDES:
        packing = Packing(limits.page if side != SIDES[-1] else 2**40, size)
        for exhibit in exhibits:
            exhibit.cut(side)
        if all(packing.add(pieces) for exhibit in exhibits for pieces in coarsest(exhibit)):
            break
    return packing


def coarsest(exhibit: Exhibit) -> Iterator[dict[str, str]]:
    """Thumbnails and coarsest level, site by site."""
    for at, tiled in enumerate(exhibit.tiled):
        tiles = exhibit.tiles(at, len(tiled.levels) - 1)
        yield {
            exhibit.thumbs_id(at): folded(exhibit.thumbs(at)),
            **{tile.id: folded(exhibit.cells(tile)) for tile in tiles},
        }


def pack_details(
    exhibits: Sequence[Exhibit], focus: Focus, packing: Packing, details: dict[int, dict[int, Plain]], limits: Limits
) -> None:
    """The numbers behind the weights, from the focus on, until one site's do not fit."""
    heavy = packing.size >= limits.light
    end = min(limits.page, round(packing.size * (1 + limits.share)) if heavy else limits.light)
    for exhibit, at in in_order(exhibits, focus):
        detail = exhibit.detail(at)
        if detail is None:
            continue
        id = exhibit.detail_id(at)
        fitting = (parts for parts in CHOICES if packing.add({id: folded(halves(detail, parts))}, end))
        parts = next(fitting, None)
        if parts is None:
            return
        details[exhibit.number][at] = plain_detail(detail, packing.names[id], parts)


def pack_finer(exhibits: Sequence[Exhibit], focus: Focus, packing: Packing) -> None:
    """Finer tiles, coarse ones first, until a head's do not fit; those of a head at one level are all in, or none."""
    near = [(exhibit, at) for exhibit, at in in_order(exhibits, focus) if exhibit.sites[at].name == focus.site]
    for sites in (near, [each for each in in_order(exhibits, focus) if each not in near]):
        deepest = max((len(exhibit.tiled[at].levels) for exhibit, at in sites), default=0)
        for level in range(deepest - 2, -1, -1):
            for exhibit, at in sites:
                if level < len(exhibit.tiled[at].levels) - 1 and not pack_level(exhibit, at, level, focus, packing):
                    return


def pack_level(exhibit: Exhibit, at: int, level: int, focus: Focus, packing: Packing) -> bool:
    """One level of a site, the chosen head first; whether all of it is in."""
    heads, (rows, columns) = exhibit.sites[at].heads, exhibit.tiled[at].levels[level].shape
    first = min(focus.head, heads - 1)
    wanted = {first} if heads * rows * columns > DENSE else set(range(heads))
    by_head = {head: dict[str, str]() for head in (first, *sorted(wanted - {first}))}
    for tile in exhibit.tiles(at, level):
        if tile.head is not None and tile.head in wanted:
            by_head[tile.head][tile.id] = folded(exhibit.cells(tile))
    return all(packing.add(blobs) for blobs in by_head.values()) and len(wanted) == heads


def in_order(exhibits: Sequence[Exhibit], focus: Focus) -> list[tuple[Exhibit, int]]:
    """All sites of all recordings, those of the focus first."""
    every = [(exhibit, at, site.name) for exhibit in exhibits for at, site in enumerate(exhibit.sites)]
    near, far = ([one for one in every if (one[2] == focus.site) is wanted] for wanted in (True, False))
    return [(exhibit, at) for exhibit, at, _ in near + far]


def nowhere(_: str) -> str | None:
    return None
