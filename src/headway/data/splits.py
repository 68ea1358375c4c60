"""Training and validation records, the validation split, subsamples, and files selected by name.

Whether a text is held out is decided by the text alone.  The same text is never in both parts, whatever else is in the
file and however often it occurs; a line that is added later moves no other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from heapq import nsmallest
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from headway.data.order import keyed
from headway.errors import UserError, counted

if TYPE_CHECKING:
    from headway.data.checks import Skipped
    from headway.data.kinds import DataKind
    from headway.data.media_sources import MediaEntry, MediaSource
    from headway.data.records import RecognisedData, Record


@dataclass(frozen=True)
class DataSplits:
    """Records for training and for validation, and the files of each.

    `description` is the sentence that says what the data is.  `tail` is the share of the stream's end that is
    validation instead of records of its own.
    """

    name: str
    kind: DataKind
    description: str
    train: Callable[[], Iterator[Record]]
    validation: Callable[[], Iterator[Record]]
    digest: str
    files: tuple[Path, ...] = ()
    validation_files: tuple[Path, ...] = ()
    tail: float = 0.0
    columns: tuple[str | int, ...] = ()  # names of those in use, or their numbers from 1
    skipped: Skipped | None = None  # what is left out, with skip_bad
    validation_skipped: Skipped | None = None  # the same of validation data of its own
    unseen: Callable[[], Iterator[Record]] | None = None  # records unlike any in training, where the data knows such
    builtin: bool = False  # the data set that comes with headway

    @property
    def left_out(self) -> str | None:
        """What was left out, for a sentence; None without skip_bad."""
        if self.skipped is None:
            return None
        beside = "" if self.validation_skipped is None else f"; of the validation data: {self.validation_skipped}"
        return f"{self.skipped}{beside}"

    def some_validation(self, count: int) -> list[Record]:
        """At most so many records for validation, sampled evenly."""
        return subsample(self.validation(), count)

    def some(self, count: int) -> list[Record]:
        """At most so many records to learn from, sampled evenly."""
        return subsample(self.train(), count)


def held_out(text: str, share: float, seed: int) -> bool:
    """Whether a text is among the share that is held out; give the source side of a pair."""
    return place(text, seed) < share


def share_for(texts: Iterable[str], share: float, seed: int, *, least: int = 1, most: int = 2000) -> float:
    """The share, near the wished one, that holds out at least `least` and never more than `most` of these texts.

    A text that stands there many times is held out as often or not at all; where that makes both bounds impossible,
    `most` holds.
    """
    lowest = nsmallest(most + 1, (place(text, seed) for text in texts))  # keeps no more than it returns
    if 0 < least < len(lowest):
        share = max(share, math.nextafter(lowest[least - 1], 2))
    return min(share, lowest[most]) if len(lowest) > most else share


def place(text: str, seed: int) -> float:
    """Where a text stands between 0 and 1; white space does not count, since tokenizers may not see it."""
    return (keyed("held out", seed, " ".join(text.split())) >> 10) / 2**53  # 53 bits: exact as a float


def subsample(records: Iterable[Record], count: int) -> list[Record]:
    """At most so many records, in their order; which ones is decided by what each holds, wherever it stands.

    A smaller sample of this sample is the same as one of all records.
    """
    chosen = nsmallest(count, enumerate(records), key=lambda one: keyed("asked", *one[1].fields))
    return [record for _, record in sorted(chosen, key=lambda one: one[0])]


def split_by_names(given: RecognisedData, pattern: str, option: str) -> tuple[RecognisedData, RecognisedData]:
    """Files in whose names the pattern is not found, and those in which it is; neither may be none of them."""
    found = only_named(given, pattern, option)
    others = filtered(given, pattern, wanted=False)
    if next(entries(others), None) is None:
        raise UserError(f"{option} {pattern!r} finds all names, and none are left", do="give one that finds some")
    return others, found


def only_named(given: RecognisedData, pattern: str, option: str) -> RecognisedData:
    """Files in whose names the pattern is found."""
    found = filtered(given, checked_pattern(pattern), wanted=True)
    if next(entries(found), None) is None:
        such = [f", such as {entry.place.path.stem!r}" for entry in islice(entries(given), 1)]
        raise UserError(f"{option} {pattern!r} finds none of the names{''.join(such)}", do="give one that finds some")
    return found


def without_test(given: RecognisedData, pattern: str, option: str) -> RecognisedData:
    """Files in whose names the pattern is not found: the others are for a test, and left alone until then."""
    others, found = split_by_names(given, pattern, option)
    count = counted(len({entry.place for entry in entries(found)}), "file")
    return replace(others, description=f"{given.description}; {count} kept for a test, by {pattern!r} in their names")


def filtered(given: RecognisedData, pattern: str, wanted: bool) -> RecognisedData:
    media = media_sources(given)
    if not media:
        raise UserError("only files of images or sounds can be told apart by their names", do="give other files")
    sources = tuple(replace(source, names=(*source.names, (pattern, wanted))) for source in media)
    return replace(given, sources=sources, fingerprint=(*given.fingerprint, pattern, str(wanted)))


def entries(given: RecognisedData) -> Iterator[MediaEntry]:
    """The files that are read; none of them is opened here."""
    return (entry for source in media_sources(given) for entry in source.good_entries())


def media_sources(given: RecognisedData) -> list[MediaSource]:
    from headway.data.media_sources import MediaSource  # late: texts need no code of media

    return [source for source in given.sources if isinstance(source, MediaSource)]


def checked_pattern(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise UserError(f"{pattern!r} is no pattern: {error}") from None
    return pattern
