"""Small images in the report itself: what a model was shown, what it said, and what was there.

Axes:  B batch   Ch channels   H height   W width
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from headway.app.report.markup import Markup, tag
from headway.data.keyed import random_for
from headway.data.sources import Record
from headway.look.media import png
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
    """Each image over what it is."""
    frames = [
        tag(
            "span",
            tag("img", src=f"data:image/png;base64,{b64encode(file).decode()}", alt=name),
            tag("span", name, dir="auto"),
            class_="frame",
        )
        for file, name in zip(one.files, one.names, strict=True)
    ]
    return tag("figure", tag("figcaption", one.title, dir="auto"), *frames)


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
