"""IDX files that a person hands over: images and the labels that belong to them, by their names.

MNIST's family calls them train-images-idx3-ubyte and train-labels-idx1-ubyte, t10k-… for what it is measured on.
"""

from __future__ import annotations

import re
from pathlib import Path

from headway.data.given import Asked, Given, goal
from headway.data.idx import header, idx_source, told
from headway.data.kinds import Kind
from headway.errors import UserError, listed

NAME = re.compile(r"images?[-_.]idx[34]")


def recognise_idx(asked: Asked) -> Given | None:
    """Images of one size and, unless they are learned from without, their labels; None for other files."""
    if asked.kind not in (None, Kind.IMAGES):
        return None
    files = [file for path in asked.paths for file in (idx_files(path) if path.is_dir() else [path])]
    images = [file for file in files if NAME.search(file.name) and file.is_file()]
    if not images:
        return None
    chosen, left = [one for one in images if "train" in one.name.lower()] or images, ""
    if len(images) > 1 and len(asked.paths) == 1:
        if len(chosen) != 1:
            raise UserError(
                f"{asked.paths[0]} has several sets of images: {listed(f.name for f in images)}", do="name one"
            )
        others = [file for file in images if file not in chosen]
        left = f" ({listed(str(file) for file in others)} is left for --validation)"
    images = chosen if len(asked.paths) == 1 else images
    sources = tuple(idx_source(file, None if asked.nameless else labels_for(file)) for file in images)
    size = header(images[0]).shape[1:]
    total = sum(header(file).shape[0] for file in images)
    goals = goal(Kind.IMAGES, nameless=asked.nameless)
    labels = "" if asked.nameless else " and labels"
    why = f"{listed(map(str, images), 3)}: {total:,} images of {told(size)} pixels{labels}{left}, {goals}"
    return Given(Kind.IMAGES, sources, why, asked.paths)


def idx_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if NAME.search(file.name))


def labels_for(images: Path) -> Path:
    """The labels that belong to images, packed or not."""
    name = re.sub(r"idx[34]", "idx1", images.name.replace("images", "labels").replace("image", "label"))
    for other in (name, f"{name}.gz", name.removesuffix(".gz")):
        if (found := images.with_name(other)).is_file():
            return found
    do = f"put {name} into its folder, or learn without classes, as in --objective masked"
    raise UserError(f"{images} has no labels beside it", do=do)
