"""Data that was recognised, and what was asked of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headway.data.kinds import TEXTUAL, Kind
from headway.data.sources import Source

GOAL = {kind: kind.value for kind in Kind} | {
    Kind.TEXTS: "a language model",
    Kind.IMAGES: "image classification",
    Kind.CAPTIONS: "captioning",
    Kind.SOUNDS: "sound classification",
    Kind.SPEECH: "speech recognition",
    Kind.SERIES: "classification of series",
    Kind.SETS: "classification of sets",
    Kind.FORECAST: "forecasting",
}


@dataclass(frozen=True)
class Given:
    """Data that was recognised.  `why` is the sentence that tells it; `paths` are what a person named, where not files.

    `told` is what decides, besides the bytes of files, which records these hold: names that say a class.
    """

    kind: Kind
    sources: tuple[Source, ...]
    why: str
    paths: tuple[Path, ...] = ()
    told: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(file for source in self.sources for file in source.files)

    @property
    def columns(self) -> tuple[str | int, ...]:
        """Names, or numbers from 1, of the columns in use; none where files have no columns."""
        return self.sources[0].columns

    @property
    def noun(self) -> str:
        """What one record is called when some are counted."""
        return "line" if self.kind in TEXTUAL else "record"


@dataclass(frozen=True)
class Asked:
    """What a person handed over and said about it."""

    paths: tuple[Path, ...]
    kind: Kind | None = None
    columns: tuple[str | int, ...] = ()
    label_from: str | None = None  # a pattern for names of files
    rate: int | None = None  # at which all sounds are wanted
    frames: int = 1  # of a film, of which the first may be taken for an image
    nameless: bool = False  # images are learned from without classes


def goal(kind: Kind, *, nameless: bool = False) -> str:
    """The end of the sentence that says what data is for."""
    if nameless:
        return "to be learned from without classes (change with --objective)"
    return f"so {GOAL[kind]} (change with --task)"
