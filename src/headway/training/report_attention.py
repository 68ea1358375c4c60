"""What a trained model attends to, for a few validation inputs: maps of their recordings, cut to what can be read.

A model that writes is shown by its cross-attention, in the layer with the lowest entropy; another by its last layer.
Where the answer is about the whole input, such as a class, only what it is read from is shown.

Axes:  H heads   T queries   S keys   Y X rows and columns of an image's cells
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from headway.errors import UserError
from headway.look.recording import WHOLE_INPUT, RecordedSite, Recording, find_attention_sites, pooled_token
from headway.nn.attention import CrossAttention
from headway.nn.trunk import Trunk, encoder_of
from headway.nn.window_attention import LocalAttention
from headway.tasks.base import Task
from headway.tasks.media_encoding import encoded
from headway.tasks.results import PictureStrip, TracedInput
from headway.tasks.tracing import Axis, GridAxis, InputImage, TraceOptions

MAX_SIDE = 40  # rows and columns of a map
MAX_HEADS = 3  # that are drawn besides their mean
MAX_FRAMES = 16  # written tokens of a caption that are drawn
FRAME_PIXELS = 64  # of an image under each map: a page of larger ones would be some megabytes
DARK = 0.15  # of its brightness is left to a cell without attention
VISIBLE = str.maketrans({" ": "␣", "\n": "↵", "\t": "⇥", "\u00a0": "␣"})
WRITTEN = (
    "Rows are the {rows} that were written, from top to bottom; columns are the {columns} that the decoder attends to. "
    "Weights are the mean over the heads of {site}, the layer of cross-attention with the lowest entropy."
)
WITHIN = "Rows are {rows}; columns are those that each of them attends to in {site}, the last layer."
READ = (
    "What the answer is read from attends to in {site}, the last layer: the first or last token or, where the model "
    "pools all of them, their mean. Rows are {rows}; the first column is the mean over heads."
)
CAPTION = (
    "An image as the model reads it, and for each token of its caption where it looked before it wrote that: the mean "
    "over the heads of {site}, the layer of cross-attention with the lowest entropy."
)
SEEN = (
    "An image as the model reads it, and what {site}, the last layer, attends to: from the class token or, where there "
    "is none, from all patches together."
)


@dataclass(frozen=True)
class WeightMap:
    """Attention weights of rows over columns."""

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    weights: Sequence[Sequence[float]]


@dataclass(frozen=True)
class AttentionExamples:
    """Attention for some inputs, and how it is to be read."""

    description: str = ""
    figures: tuple[WeightMap | PictureStrip, ...] = ()


NO_ATTENTION = AttentionExamples()
TitledRecording = tuple[str, Recording]


def recorded(
    task: Task, model: nn.Module, inputs: Sequence[TracedInput], architecture: str, context: int | None
) -> list[TitledRecording]:
    """Recordings of inputs with their titles; none of a model without attention, or of what it cannot read whole."""
    found, options = list[TitledRecording](), TraceOptions(1, context)
    for title, given in inputs if find_attention_sites(model) else ():
        try:
            recording = Recording.of_input(task, model, given, options, title=architecture, architecture=architecture)
        except UserError:  # longer than the model's context: evaluation cuts it, and nobody asked for its map
            continue
        if recording.sites:
            found.append((title, recording))
    return found


def attention_examples(found: Sequence[TitledRecording], model: nn.Module) -> AttentionExamples:
    """The maps of recordings of one model; nothing where there are none, or only of an image's neighbourhoods."""
    if not found:
        return NO_ATTENTION
    first = found[0][1]
    # the layers by which a model that writes attends to what it has read, first layer first
    crossing = [name for name, source in first.sources.items() if isinstance(source.site.part, CrossAttention)]
    if written := crossing if first.forced_text is not None else []:
        entropies = {site: sum(float(one[site].entropy().mean()) for _, one in found) for site in written}
        return written_examples(found, min(entropies, key=entropies.__getitem__))
    name = list(first.sites)[-1]
    columns = first.sites[name].columns
    if first.picture is not None:
        near = isinstance(first.sources[name].site.part, LocalAttention)
        return NO_ATTENTION if near or not isinstance(columns, GridAxis) else seen_examples(found, name, model)
    if first.outcome.kind in WHOLE_INPUT:
        maps = tuple(read_map(title, recording.sites[name], model) for title, recording in found)
        return AttentionExamples(READ.format(rows=noun(columns), site=name), maps)
    site = first.sites[name]
    views = head_views(site.map.full()[0])
    maps = tuple(weight_map(view, site.rows, site.columns, weights) for view, weights in views)
    return AttentionExamples(WITHIN.format(rows=noun(site.rows), site=name), maps)


def written_examples(found: Sequence[TitledRecording], name: str) -> AttentionExamples:
    figures = list[WeightMap | PictureStrip]()
    for title, recording in found:
        site = recording.sites[name]
        weights = site.map.full()[0].mean(0)  # T S
        if recording.picture is not None and isinstance(site.columns, GridAxis):
            maps = on_grid(weights[:MAX_FRAMES], site.columns)
            shown = cut_title(title, site.rows, most=MAX_FRAMES)
            figures.append(picture_strip(shown, recording.picture, maps, labels(site.rows)))
        else:
            figures.append(weight_map(title, site.rows, site.columns, weights))
    site = found[0][1].sites[name]
    text = CAPTION if isinstance(figures[0], PictureStrip) else WRITTEN
    return AttentionExamples(text.format(rows=noun(site.rows), columns=noun(site.columns), site=name), tuple(figures))


def seen_examples(found: Sequence[TitledRecording], name: str, model: nn.Module) -> AttentionExamples:
    strips = list[PictureStrip]()
    for title, recording in found:
        site = recording.sites[name]
        assert recording.picture is not None
        views = head_views(heads_seen(site, encoder_of(model)))
        maps = torch.stack([weights for _, weights in views])
        strips.append(picture_strip(title, recording.picture, maps, [view for view, _ in views]))
    return AttentionExamples(SEEN.format(site=name), tuple(strips))


def heads_seen(site: RecordedSite, encoder: Trunk) -> Tensor:
    """How much each head attends to each cell of an image, H Y X, for what the head of `encoder` reads."""
    assert isinstance(site.columns, GridAxis)
    return on_grid(torch.stack([read_row(encoder, weights) for weights in site.map.full()[0]]), site.columns)


def on_grid(weights: Tensor, axis: GridAxis) -> Tensor:
    """Weights of an image's tokens at its cells: … S → … Y X"""
    return weights[..., axis.first :].unflatten(-1, axis.grid)


def read_map(title: str, site: RecordedSite, model: nn.Module) -> WeightMap:
    """What the answer is read from attends to: keys down, the mean over heads and some heads along."""
    encoder = model if isinstance(model, Trunk) else encoder_of(model)
    views = head_views(torch.stack([read_row(encoder, weights) for weights in site.map.full()[0]]))  # each S
    weights = torch.stack([view for _, view in views], 1)[:MAX_SIDE]
    return WeightMap(
        cut_title(title, site.columns), labels(site.columns), tuple(name for name, _ in views), weights.tolist()
    )


def read_row(model: Trunk, weights: Tensor) -> Tensor:
    """The row of the token that the head reads, or the mean of all rows where it reads all: T S → S"""
    place = pooled_token(model)
    return weights.mean(0) if place is None else weights[place]


def head_views(heads: Tensor) -> list[tuple[str, Tensor]]:
    """The mean over heads and some heads one by one, by name; a single head as it is: H …"""
    if len(heads) == 1:
        return [("head 0", heads[0])]
    return [("mean over heads", heads.mean(0)), *((f"head {at}", one) for at, one in enumerate(heads[:MAX_HEADS]))]


def weight_map(title: str, rows: Axis, columns: Axis, weights: Tensor) -> WeightMap:
    """A map, cut to its first rows and columns: T S"""
    cut = weights[:MAX_SIDE, :MAX_SIDE].float().tolist()
    return WeightMap(cut_title(title, rows, columns), labels(rows), labels(columns), cut)


def cut_title(title: str, *axes: Axis, most: int = MAX_SIDE) -> str:
    """The title of a map, which says what was cut off."""
    shown = [f"{most} of {len(axis)} {noun(axis)}" for axis in axes if len(axis) > most]
    return f"{title} (the first {' and '.join(dict.fromkeys(shown))})".strip() if shown else title


def labels(axis: Axis) -> tuple[str, ...]:
    """The first labels of an axis, with visible spaces and line breaks."""
    return tuple(label.translate(VISIBLE) or "∅" for label in axis.labels[:MAX_SIDE])


def noun(axis: Axis) -> str:
    """What the rows or columns of a map are."""
    return {"text": "tokens", "frames": "frames of the sound", "grid": "patches"}.get(axis.kind, "items")


def picture_strip(title: str, picture: InputImage, maps: Tensor, names: Sequence[str]) -> PictureStrip:
    """An image, and the same under the light of each map, T Y X: brightest where the weight is largest."""
    image = Image.open(BytesIO(picture.png))
    scale = min(1.0, FRAME_PIXELS / max(image.size))
    small = np.asarray(image.resize((max(1, round(image.width * scale)), max(1, round(image.height * scale)))))
    large = F.interpolate(maps[:, None].float(), small.shape[:2], mode="bilinear")[:, 0]  # T H W
    light = (large / large.amax((1, 2), keepdim=True).clamp(min=1e-9)).numpy()
    pixels = small[None] * (DARK + (1 - DARK) * (light if small.ndim == 2 else light[..., None]))
    files = (picture.png, *(encoded(one) for one in pixels.round().astype(np.uint8)))
    return PictureStrip(title, files, ("the image", *names[: len(maps)]))
