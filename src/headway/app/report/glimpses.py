"""Where a captioner looked for each word: its image, and beside it the same under a light for each word it wrote.

Axes:  B batch   Ch channels   H height   W width   Y X rows and columns of places   T words
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.answer import Wish
from headway.app.report.pictures import Picture, png
from headway.app.report.sight import NOTHING, Sights, attention_sites, latest, piece
from headway.data.preprocess import ImagePreprocess
from headway.data.sources import Record
from headway.nn.attention import CrossAttention
from headway.nn.captioner import Captioner
from headway.nn.trace import record, sites_of
from headway.observer import Observer
from headway.ops.reading import Readable
from headway.tasks.captioning import SITE

WORDS = 16  # of a caption, that are drawn
SIDE = 64  # pixels of an image for each word: a page of larger ones would be some megabytes
DARK = 0.15  # of its light is left to a place that was not looked at
HOW = "An image as the model reads it, and for each piece of its caption where it looked before it wrote that: {site}."


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
    names = [piece(observer.words, token) for token in tokens]
    maps = model.maps(weights, image)[0]  # T Y X
    small = F.interpolate(image, scale_factor=min(1.0, SIDE / max(image.shape[-2:])), mode="area")
    files = (png(image[0], ready), *(png(one, ready) for one in lit(small, maps, ready)))
    return Picture(f"{name} → {answer['output']}", files, ("the image", *names))


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


def lit(image: Tensor, maps: Tensor, ready: ImagePreprocess) -> Iterator[Tensor]:
    """The image under the light of each map, T Y X: brightest where the model looked most."""
    black = (0.0 - image.new_tensor(ready.mean)) / image.new_tensor(ready.std)  # as the model reads it
    black = black[:, None, None]
    large = F.interpolate(maps[:, None], image.shape[-2:], mode="bilinear")  # T 1 H W
    for light in large / large.amax((1, 2, 3), keepdim=True).clamp(min=1e-9):
        yield black + (image[0] - black) * (DARK + (1 - DARK) * light)
