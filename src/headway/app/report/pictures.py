"""Small images in the report itself: what a model was shown, what it said, and what was there.

Axes:  B batch   Ch channels   H height   W width
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO

import numpy as np
from PIL import Image
from torch import Tensor, nn

from headway.app.report.markup import Markup, tag
from headway.data.keyed import random_for
from headway.data.preprocess import ImagePreprocess
from headway.data.sources import Record
from headway.tasks.hidden import HiddenPatches, restored
from headway.tasks.task import ids

HIDDEN = ("as it was shown", "with what the model says of the hidden parts", "as it is")


@dataclass(frozen=True)
class Picture:
    """Images side by side, as PNG files, and what each is."""

    title: str
    files: tuple[bytes, ...]
    names: tuple[str, ...]


def drawn_picture(one: Picture) -> Markup:
    images = [
        tag("img", src=f"data:image/png;base64,{b64encode(file).decode()}", alt=name, title=name)
        for file, name in zip(one.files, one.names, strict=True)
    ]
    return tag("figure", tag("figcaption", one.title, dir="auto"), *images)


def hidden_pictures(task: HiddenPatches, model: nn.Module, records: Sequence[Record]) -> list[Picture]:
    """A few images with what was hidden of them, by draws that are always the same."""
    rows = [tuple(map(ids, row)) for row in task.encode([record.handed for record in records])]
    batch = task.collate(rows, random_for("pictures"))
    panels = zip(*restored(model, batch), batch.images, strict=True)
    ready = task.sense.ready
    return [
        Picture(record.name, tuple(png(image, ready) for image in images), HIDDEN)
        for record, images in zip(records, panels, strict=True)
    ]


def png(image: Tensor, ready: ImagePreprocess) -> bytes:
    """An image as a model reads it, Ch H W, as a file."""
    mean, std = (image.new_tensor(of)[:, None, None] for of in (ready.mean, ready.std))
    pixels = ((image * std + mean).clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()
    file = BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels)).save(file, "PNG")
    return file.getvalue()
