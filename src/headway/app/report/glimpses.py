"""Where a model looked at an image: the image, and beside it the same under a light for each word or head.

Axes:  B batch   Ch channels   H height   W width   Y X rows and columns of places   T words or heads   S keys
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.answer import Wish
from headway.app.report.heat import label
from headway.app.report.pictures import Picture, png
from headway.app.report.sight import HEADS, NOTHING, Sights, attention_sites, latest, piece, read_row
from headway.data.preprocess import ImagePreprocess
from headway.data.sources import Record
from headway.generate.settings import begin_of
from headway.look.attended import Site, read_by
from headway.look.axis import Cells
from headway.look.observing import observing
from headway.look.scene import spots
from headway.nn.attention import CrossAttention
from headway.nn.captioner import Captioner
from headway.nn.grid import LocalAttention
from headway.nn.model import Trunk
from headway.nn.trace import record, sites_of
from headway.observer import Observer, encoder_of
from headway.ops.reading import Readable
from headway.tasks.captioning import SITE

WORDS = 16  # of a caption, that are drawn
SIDE = 64  # pixels of an image for each word: a page of larger ones would be some megabytes
DARK = 0.15  # of its light is left to a place that was not looked at
HOW = "An image as the model reads it, and for each piece of its caption where it looked before it wrote that: {site}."
SEEN = (
    "An image as the model reads it, all of it visible, and what of it was looked at in {site}, the last layer of "
    "attention: by the token that the rest is read from or, where there is none, by all parts of the image together."
)


@torch.inference_mode()
def looked_at(observer: Observer, records: Sequence[Record]) -> Sights:
    """A strip for each image; nothing, where a model does not look at places."""
    model, ready = observer.model, observer.sense.ready
    if not isinstance(model, Captioner) or not isinstance(ready, ImagePreprocess) or not records:
        return NOTHING
    strips = [strip(observer, model, ready, one.name) for one in records]
    site = site_of(model)
    heads = "the mean over heads, last layer" if site != SITE else "its weights"
    return Sights(HOW.format(site=heads), tuple(strips))


def strip(observer: Observer, model: Captioner, ready: ImagePreprocess, name: str) -> Picture:
    image = observer.read([name]).inputs  # 1 Ch H W
    [answer] = observer.answer([name], Wish(most=WORDS))
    tokens: list[int] = list(answer["tokens"])
    assert observer.words is not None
    weights = looks(model, image, [begin_of(observer.kept, observer.words.bos), *tokens[:-1]])
    names = [label(piece(observer.words, token)) for token in tokens]
    return film(f"{name} → {answer['output']}", image, model.maps(weights, image)[0], names, ready)


def looks(model: Captioner, image: Tensor, read: list[int]) -> Readable:
    """The attention at the image's places, B H T S, as the decoder reads."""
    site = f"{site_of(model)}.weights"
    with record(model, site) as trace:
        model(image, torch.tensor([read]))
    return latest(trace, site)


def site_of(model: Captioner) -> str:
    """Where the decoder looks at the image: of several layers the last."""
    if f"{SITE}.weights" in sites_of(model):
        return SITE
    return attention_sites(model, lambda part: isinstance(part, CrossAttention), "decoder.")[-1].removesuffix(
        ".weights"
    )


@torch.inference_mode()
def places_seen(observer: Observer, images: Sequence[tuple[str, str]]) -> Sights:
    """A strip for each image, given by its name and a title: all heads together, and some one by one.

    Nothing, where a model has no attention, or its last one is only among neighbours.
    """
    ready = observer.sense.ready
    if not isinstance(ready, ImagePreprocess):
        return NOTHING
    strips, named = list[Picture](), ""
    for name, title in images:
        site = last_site(observer, name)
        if site is None:
            return NOTHING
        heads = heads_seen(site, encoder_of(observer.model))
        strips.append(heads_strip(heads, observer.read([name]).inputs, title, ready))
        named = site.name
    return Sights(SEEN.format(site=named), tuple(strips)) if strips else NOTHING


def last_site(observer: Observer, name: str) -> Site | None:
    """The last layer of attention at the places of an image; None for one that is only among neighbours, or none."""
    if not spots(encoder_of(observer.model)):
        return None
    scene = observing(observer, name, None)
    read = read_by(scene, title=name, input=name, architecture=type(observer.model).__name__)
    *_, last = read.sites.values()
    near = isinstance(read.sources[last.name].spot.part, LocalAttention)
    return None if near or not isinstance(last.columns, Cells) else last


def heads_seen(site: Site, eye: Trunk) -> Tensor:
    """How much each head looked at each place of an image, T Y X, for what the head of `eye` reads."""
    assert isinstance(site.columns, Cells)
    read = torch.stack([read_row(eye, weights) for weights in site.map.full()[0]])  # T S
    return read[:, site.columns.first :].unflatten(1, site.columns.grid)


def heads_strip(heads: Tensor, image: Tensor, title: str, ready: ImagePreprocess) -> Picture:
    few = heads[:HEADS] if len(heads) > 1 else heads[:0]
    names = ["all heads", *(f"head {at + 1}" for at in range(len(few)))]
    return film(title, image, torch.cat([heads.mean(0, keepdim=True), few]), names, ready)


def film(title: str, image: Tensor, maps: Tensor, names: Sequence[str], ready: ImagePreprocess) -> Picture:
    """An image, 1 Ch H W, and the same under the light of each map, T Y X."""
    small = F.interpolate(image, scale_factor=min(1.0, SIDE / max(image.shape[-2:])), mode="area")
    files = (png(image[0], ready), *(png(one, ready) for one in lit(small, maps, ready)))
    return Picture(title, files, ("the image", *names))


def lit(image: Tensor, maps: Tensor, ready: ImagePreprocess) -> Iterator[Tensor]:
    """The image under the light of each map, T Y X: brightest where the model looked most."""
    black = (0.0 - image.new_tensor(ready.mean)) / image.new_tensor(ready.std)  # as the model reads it
    black = black[:, None, None]
    large = F.interpolate(maps[:, None], image.shape[-2:], mode="bilinear")  # T 1 H W
    for light in large / large.amax((1, 2, 3), keepdim=True).clamp(min=1e-9):
        yield black + (image[0] - black) * (DARK + (1 - DARK) * light)
