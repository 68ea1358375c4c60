"""Folders whose tables or texts are named as the parts of a data set: train.csv, validation.csv and test.csv.

So `datasets` writes them, and the Hub keeps them: train-00000-of-00002.parquet in data/, or a folder for each part.
The test part is for `headway eval`, which takes it out of the folder by itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from headway.data.text_lines import MEDIA_SUFFIXES, PARTS, TABLE_SUFFIXES, suffix_of

ROLES = {"train": "train", "training": "train", "test": "test", "testing": "test"}  # all others are for validation
MAX_FILES = 10_000  # of a folder that is looked at


class NamedSplits(NamedTuple):
    """The files of each part; those of validation or of the test may be none."""

    train: tuple[Path, ...]
    validation: tuple[Path, ...]
    test: tuple[Path, ...]

    @property
    def held_back(self) -> tuple[Path, ...]:
        """What a trained model is evaluated on: the test part, else that of validation."""
        return self.test or self.validation


def named_splits(paths: Sequence[Path]) -> NamedSplits | None:
    """The parts of the only folder that is given; None where its files are not all named as parts."""
    if len(paths) != 1 or not paths[0].is_dir():
        return None
    found: dict[str, list[Path]] = {"train": [], "validation": [], "test": []}
    for file in files_below(paths[0]):
        if any(suffix_of(file) in suffixes for suffixes in MEDIA_SUFFIXES.values()):
            return None
        if suffix_of(file) not in (".txt", *TABLE_SUFFIXES) or file.suffix.lower() in (".md", ".markdown"):
            continue
        part = part_of(file.relative_to(paths[0]))
        if part is None:
            return None
        found[ROLES.get(part, "validation")].append(file)
    if not found["train"] or not (found["validation"] or found["test"]):
        return None
    return NamedSplits(*(tuple(files) for files in found.values()))


def files_below(folder: Path) -> list[Path]:
    """The first files below a folder, in the order of their names; what is hidden is left out."""
    found = list[Path]()
    for above, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [Path(above, name) for name in sorted(names) if not name.startswith(".")]
        if len(found) > MAX_FILES:
            return []
    return sorted(found)


def part_of(file: Path) -> str | None:
    """The part that a name says, or else a folder above: train-00000-of-00002, snli_1.0_dev, test/1.csv."""
    for name in (file.name, *reversed(file.parts[:-1])):
        words = {word for word in re.split(r"[-_.\s]", name.lower()) if word in PARTS}
        if len(words) == 1:
            return words.pop()
        if words:
            return None
    return None
