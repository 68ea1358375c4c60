"""Where a model looked at an image: the image, and beside it the same under a light for each word or head.

Axes:  B batch   Ch channels   H height   W width   Y X rows and columns of places   T words or heads   S keys
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.answer import Wish
from headway.app.report.heat import label
from headway.app.report.pictures import Picture, png
from headway.app.report.sight import HEADS, NOTHING, Sights, attention_sites, latest, piece, read_row
from headway.data.preprocess import ImagePreprocess
from headway.data.sources import Record
from headway.nn.attention import CrossAttention
from headway.nn.captioner import Captioner
from headway.nn.embed import PatchEmbed
from headway.nn.grid import LocalAttention, PooledAttention, Windowed, size_of
from headway.nn.masked_image import MaskedAutoencoder, MaskedImageModel
from headway.nn.model import Trunk
from headway.nn.towers import TwoTowers
from headway.nn.trace import record, sites_of
from headway.observer import Observer
from headway.ops.patches import Grid, patch_grid
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
    begin = int(observer.kept["decoder_start_token_id"])
    weights = looks(model, image, [begin, *tokens[:-1]])
    assert observer.words is not None
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
    eye, ready = eye_of(observer.model), observer.sense.ready
    if not isinstance(eye, Trunk) or not isinstance(ready, ImagePreprocess) or not images:
        return NOTHING
    sites = attention_sites(eye, lambda part: True, "")
    if not sites or isinstance(sites_of(eye)[sites[-1]][0], LocalAttention):
        return NOTHING
    strips = [heads_strip(eye, sites[-1], observer.read([name]).inputs, title, ready) for name, title in images]
    return Sights(SEEN.format(site=sites[-1].removesuffix(".weights")), tuple(strips))


def eye_of(model: nn.Module) -> nn.Module:
    """The part of a model that reads images."""
    match model:
        case MaskedAutoencoder() | MaskedImageModel():
            return model.encoder
        case TwoTowers():
            return model.image
        case _:
            return model


def heads_strip(eye: Trunk, site: str, image: Tensor, title: str, ready: ImagePreprocess) -> Picture:
    heads = heads_seen(eye, site, image)
    few = heads[:HEADS] if len(heads) > 1 else heads[:0]
    names = ["all heads", *(f"head {at + 1}" for at in range(len(few)))]
    return film(title, image, torch.cat([heads.mean(0, keepdim=True), few]), names, ready)


def heads_seen(eye: Trunk, site: str, image: Tensor) -> Tensor:
    """How much each head looked at each place of an image, 1 Ch H W → T Y X."""
    with record(eye, site) as trace:
        features = eye.features(image)
    seen, part = latest(trace, site), sites_of(eye)[site][0]
    around = next((one for one in eye.modules() if isinstance(one, Windowed) and one.attention is part), None)
    if around is not None:
        grid = size_of(features)  # which no layer behind the last attention changes
        return around.windows.fit(*grid).merge(seen.received().mT, grid)[0].movedim(-1, 0)
    if isinstance(part, PooledAttention):
        return seen.received()[0].unflatten(1, grid_like(image, seen.shape[3]))
    patch = next(part.patch for part in eye.modules() if isinstance(part, PatchEmbed))
    rows, cols = patch_grid(image, patch)
    read = torch.stack([read_row(eye, weights) for weights in seen.full()[0]])  # T S
    return read[:, -rows * cols :].unflatten(1, (rows, cols))  # a class token stands in front


def grid_like(image: Tensor, places: int) -> Grid:
    """The grid of so many places that strides make of an image."""
    high, wide = image.shape[-2:]
    grids = ((-(-high // stride), -(-wide // stride)) for stride in range(1, max(high, wide) + 1))
    return next(grid for grid in grids if grid[0] * grid[1] == places)


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
