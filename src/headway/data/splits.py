"""Training and validation records, the validation split, subsamples, and files selected by name.

Which texts are held out is decided by the texts themselves: those whose hash is lowest.  The same text is never in
both parts, however often and with whichever labels it occurs.  Of few records a larger share is held out, and of every
class its own share (stratified), so that a score is that of every class.  Where records have groups, such as speakers,
whole groups are held out whose classes are, together, near these shares; training keeps some records of every class.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from headway.data.kinds import LABELLED, STREAMED, DataKind
from headway.data.name_patterns import checked_pattern
from headway.data.order import keyed
from headway.errors import UserError, counted

if TYPE_CHECKING:
    from headway.data.checks import Skipped
    from headway.data.media_sources import MediaEntry, MediaSource
    from headway.data.records import RecognisedData, Record

VALIDATION_SHARE, MAX_VALIDATION_SHARE = 0.05, 0.2  # that is held out: of many records, and of few
MIN_VALIDATION = 40  # records that are held out, as far as the larger share allows
MAX_VALIDATION = 2000
FEW_DOCUMENTS = 20  # or fewer are cut at their end, not one from another
SENTENCE_WORDS = 20
MIN_CLASS = 3  # records of a class of which one is held out
MAX_PASSES = 10  # over all groups, in which they change their sides
MIN_GAIN = 1e-12  # what is less may be a rounding error


@dataclass(frozen=True)
class WeightedPaths:
    """Files and folders, and how often the records of each are drawn in an epoch."""

    paths: tuple[Path, ...]
    weights: tuple[float, ...]

    def describe(self) -> str:
        return ", ".join(f"{weight:g} × {path.name}" for path, weight in zip(self.paths, self.weights, strict=True))

    def number(self, record: Record) -> int:
        """Which of the paths a record is of."""
        file = record.file
        for at, path in enumerate(self.paths):
            if path == file or path in file.parents:
                return at
        raise UserError(f"{file} is in none of the files and folders that have weights", do="leave out data.weights")


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
    validation_paths: tuple[Path, ...] = ()  # of data of its own, as it is named: its files, or the folder of them
    test: Callable[[], Iterator[Record]] | None = None  # records that a model is scored on once, after training
    test_files: tuple[Path, ...] = ()
    test_paths: tuple[Path, ...] = ()
    tail: float = 0.0
    columns: tuple[str | int, ...] = ()  # names of those in use, or their numbers from 1
    skipped: Skipped | None = None  # what is left out, with skip_bad
    validation_skipped: Skipped | None = None  # the same of validation data of its own
    test_skipped: Skipped | None = None
    unseen: Callable[[], Iterator[Record]] | None = None  # records unlike any in training, where the data knows such
    builtin: bool = False  # the data set that comes with headway
    share: float | None = None  # of the data that is held out, where validation is no data of its own
    grouped: bool = False  # whether records have groups, each of which is on one side of the split
    weighted: WeightedPaths | None = None  # how often records of each file or folder are drawn, where not alike

    @property
    def left_out(self) -> str | None:
        """What was left out, for a sentence; None without skip_bad."""
        if self.skipped is None:
            return None
        others = (("validation", self.validation_skipped), ("test", self.test_skipped))
        beside = (f"; of the {name} data: {skipped}" for name, skipped in others if skipped is not None)
        return "".join([str(self.skipped), *beside])

    @property
    def on_test(self) -> DataSplits:
        """These with the test data in the place of validation."""
        assert self.test is not None
        files, skipped = self.test_files, self.test_skipped
        found = replace(self, validation=self.test, validation_files=files, validation_skipped=skipped)
        return replace(found, validation_paths=self.test_paths, unseen=None, tail=0.0, share=None)

    def some_validation(self, count: int) -> list[Record]:
        """At most so many records for validation, sampled evenly."""
        return subsample(self.validation(), count)

    @property
    def rejoined(self) -> DataSplits:
        """These, where training has the records too that were held out of the same data."""
        if self.share is None:
            return self
        return replace(self, train=lambda: chain(self.train(), self.validation()))

    def some(self, count: int) -> list[Record]:
        """At most so many records to learn from, sampled evenly."""
        return subsample(self.train(), count)


def split(whole: DataSplits, share: float | None, stratify: bool, seed: int) -> DataSplits:
    """Training records with a share of them held out for validation, as asked or by how many there are."""
    everything = whole.train
    if share == 0:
        return whole
    if whole.kind in STREAMED and sum(not record.goes_on for record in everything()) <= FEW_DOCUMENTS:
        share = default_share(stream_size(whole)) if share is None else share
        return replace(whole, tail=share, share=share)
    firsts = (record for record in everything() if not record.goes_on)
    if whole.grouped:
        return split_by_groups(whole, share, stratify, seed)
    if stratify:
        classes = ((record.fields[0], class_of(whole.kind, record)) for record in firsts)
        share, places = stratified(classes, share, seed)

        def held(text: str) -> bool:
            return place(text, seed) in places
    else:
        share = default_share(sum(1 for _ in firsts)) if share is None else share
        chosen = share_for((record.fields[0] for record in everything()), share, seed)

        def held(text: str) -> bool:
            return held_out(text, chosen, seed)

    def parted(side: bool) -> Iterator[Record]:
        inside = False
        for record in everything():
            inside = inside if record.goes_on else held(record.fields[0])
            if inside == side:
                yield record

    return replace(whole, train=lambda: parted(False), validation=lambda: parted(True), share=share)


def split_by_groups(whole: DataSplits, share: float | None, stratify: bool, seed: int) -> DataSplits:
    """The same by whole groups."""
    pairs = [(record.group, class_of(whole.kind, record) if stratify else "") for record in whole.train()]
    share = default_share(len(pairs)) if share is None else share
    groups, count = held_groups(pairs, min(share, MAX_VALIDATION / max(1, len(pairs))), seed)

    def parted(side: bool) -> Iterator[Record]:
        return (record for record in whole.train() if (record.group in groups) == side)

    said = f"{whole.description}; {len(groups):,} of {count:,} groups are held out"
    return replace(whole, description=said, train=lambda: parted(False), validation=lambda: parted(True), share=share)


def held_groups(pairs: Iterable[tuple[str, str]], share: float, seed: int) -> tuple[frozenset[str], int]:
    """The groups that are held out of (group, class) pairs, and how many groups there are.

    In an order by their hashes, each group changes its side where that brings the classes nearer to their shares, and
    leaves some of each class to training; so often until none does.  Where none is taken, the best one is.
    """
    groups: dict[str, Counter[str]] = {}
    for group, label in pairs:
        groups.setdefault(group, Counter())[label] += 1
    if len(groups) < 2:
        named = "".join(f", {group!r}" for group in groups)
        raise UserError(f"all records are of one group{named}", do="leave data.group out, or give data.validation")
    totals, held = Counter[str](), Counter[str]()
    for counts in groups.values():
        totals.update(counts)

    def gain(counts: Counter[str], sign: int) -> float:
        """How much nearer classes are to their share, where a rare class counts for as much as a frequent one."""
        before = sum((held[label] / totals[label] - share) ** 2 for label in counts)
        after = sum(((held[label] + sign * count) / totals[label] - share) ** 2 for label, count in counts.items())
        return before - after

    def is_able(counts: Counter[str]) -> bool:
        """Whether training has some of each class left."""
        return all(held[label] + count < totals[label] for label, count in counts.items())

    order = sorted(groups, key=lambda group: (keyed("held out", seed, group), group))
    chosen, changed, passes = set[str](), True, 0
    while changed and passes < MAX_PASSES:
        changed, passes = False, passes + 1
        for group in order:
            counts, sign = groups[group], -1 if group in chosen else 1
            if gain(counts, sign) > MIN_GAIN and (sign < 0 or is_able(counts)):
                chosen ^= {group}
                held.update({label: sign * count for label, count in counts.items()})
                changed = True
    if not chosen:
        able = [group for group in order if is_able(groups[group])]
        if not able:
            said = "no group can be held out: each has all records of some class"
            raise UserError(said, do="give data.validation, or data.validation_split 0")
        chosen = {max(able, key=lambda group: gain(groups[group], 1))}
    return frozenset(chosen), len(groups)


def class_of(kind: DataKind, record: Record) -> str:
    """The class of a record; without classes all are of one."""
    return record.fields[1] if kind in LABELLED and len(record.fields) > 1 else ""


def stream_size(whole: DataSplits) -> int:
    """How many records a stream is worth: its rows of numbers, or sentences of twenty words."""
    if whole.kind is DataKind.ROWS:
        return sum(1 for _ in whole.train())
    return sum(len(record.fields[0].split()) for record in whole.train()) // SENTENCE_WORDS


def held_out(text: str, share: float, seed: int) -> bool:
    """Whether a text is among the share that is held out; give the source side of a pair."""
    return place(text, seed) < share


def default_share(count: int) -> float:
    """The share that is held out of so many records: a twentieth, more of fewer than 800, a fifth of 200 or fewer."""
    return max(VALIDATION_SHARE, min(MAX_VALIDATION_SHARE, MIN_VALIDATION / max(1, count)))


def share_for(texts: Iterable[str], share: float, seed: int, *, least: int = 1, most: int = MAX_VALIDATION) -> float:
    """The share, near the wished one, that holds out at least `least` and never more than `most` of these texts.

    A text that stands there many times is held out as often or not at all; where that makes both bounds impossible,
    `most` holds.
    """
    return bounded_share((place(text, seed) for text in texts), share, least, most)


def bounded_share(places: Iterable[float], share: float, least: int, most: int) -> float:
    lowest = nsmallest(most + 1, places)  # keeps no more than it returns
    if 0 < least < len(lowest):
        share = max(share, math.nextafter(lowest[least - 1], 2))
    return min(share, lowest[most]) if len(lowest) > most else share


def stratified(pairs: Iterable[tuple[str, str]], share: float | None, seed: int) -> tuple[float, frozenset[float]]:
    """The share that is held out of texts with their classes, chosen by how many there are; and their places.

    Of each class as many are held out as its share is, one at least; none of a class of one or two, which is to be
    learned.  Many texts that are all of one class are held out by the share alone.
    """
    classes: dict[str, array[float]] = {}
    for text, label in pairs:
        classes.setdefault(label, array("d")).append(place(text, seed))
    total = sum(map(len, classes.values()))
    chosen = default_share(total) if share is None else share
    held = set[float]()
    for places in classes.values():
        if len(places) == total >= MIN_VALIDATION / VALIDATION_SHARE:
            limit = bounded_share(places, chosen, 1, MAX_VALIDATION)
            held.update(one for one in places if one < limit)
        elif len(places) >= min(MIN_CLASS, total):
            held |= lowest(places, max(1, min(round(chosen * len(places)), MAX_VALIDATION * len(places) // total)))
    return chosen, frozenset(held)


def lowest(places: Sequence[float], count: int) -> set[float]:
    """The lowest places that `count` texts have, or one fewer; a text that is there more often is left out.

    Where all are, that which is there least often is taken, unless it is the only one.
    """
    texts = Counter(nsmallest(2 * count + 1, places))
    held, taken = set[float](), 0
    for one in sorted(texts)[: -1 if len(places) > 2 * count + 1 else None]:  # the last may be there more often
        if taken + texts[one] <= count:
            held.add(one)
            taken += texts[one]
    if not held and len(texts := Counter(places)) > 1:
        held.add(min(texts, key=lambda one: (texts[one], one)))
    return held


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
