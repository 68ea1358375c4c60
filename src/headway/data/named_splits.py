"""Folders whose files are named as the parts of a data set: train.csv, validation.csv and test.csv.

So `datasets` writes them, and the Hub keeps them: train-00000-of-00002.parquet in data/, or a folder for each part.
Images and sounds have a folder for each part, with their class folders or a table in it: train/cat/1.png, val/cat/2.png
and test/cat/3.png.  The test part is scored once, after training; `headway eval` takes it out of the folder by itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from headway.data.text_lines import MEDIA_SUFFIXES, PARTS, TABLE_SUFFIXES, suffix_of

ROLES = {"train": "train", "training": "train", "test": "test", "testing": "test"}  # all others are for validation
MAX_FILES = 10_000  # of a folder that is looked at


class NamedSplits(NamedTuple):
    """The files of each part, or its folders; those of validation or of the test may be none."""

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
    if folders := part_folders(paths[0]):
        return as_parts((part, folder) for folder in folders for part in [folder.name.lower()])
    found = list[tuple[str, Path]]()
    for file in files_below(paths[0]):
        if is_media(file.name):
            return None
        if suffix_of(file) not in (".txt", *TABLE_SUFFIXES) or file.suffix.lower() in (".md", ".markdown"):
            continue
        part = part_of(file.relative_to(paths[0]))
        if part is None:
            return None
        found.append((part, file))
    return as_parts(found)


def as_parts(named: Iterable[tuple[str, Path]]) -> NamedSplits | None:
    """Paths by what each is for; None without those of training, or with these alone."""
    found: dict[str, list[Path]] = {"train": [], "validation": [], "test": []}
    for part, path in named:
        found[ROLES.get(part, "validation")].append(path)
    if not found["train"] or not (found["validation"] or found["test"]):
        return None
    return NamedSplits(*(tuple(files) for files in found.values()))


def part_folders(folder: Path) -> list[Path]:
    """The folders of images or sounds in a folder that holds nothing else, where all are named as parts.

    They may be in the only folder that it has.
    """
    folders, files = visible(folder)
    if len(folders) == 1 and not files and folders[0].name.lower() not in PARTS:
        folders, files = visible(folders[0])
    tables = [suffix for suffix in TABLE_SUFFIXES if suffix != ".json"]  # which settings have, too
    named = all(one.name.lower() in PARTS for one in folders)
    if not named or any(is_media(file.name) or suffix_of(file) in tables for file in files):
        return []
    holds = (any(map(is_media, names)) for one in folders for _, _, names in os.walk(one))
    return folders if any(holds) else []


def visible(folder: Path) -> tuple[list[Path], list[Path]]:
    """The folders and the files in a folder, by name; none where it may not be read, which is said later."""
    found = list[Path]()
    with suppress(OSError):
        found = sorted(one for one in folder.iterdir() if not one.name.startswith("."))
    return [one for one in found if one.is_dir()], [one for one in found if not one.is_dir()]


def is_media(name: str) -> bool:
    suffix = Path(name).suffix.lower()
    return any(suffix in suffixes for suffixes in MEDIA_SUFFIXES.values())


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
