"""Folds for cross-validation: K splits of the same records, of which each record is held out by one.

What is dealt out are texts, as in the validation split: the same text is in one fold, however often and with whichever
labels it occurs; or groups, where records have groups; or documents, where records are pieces of these.  Each goes to
the fold that has the smallest part of its classes up to then, of several the one with the fewest records, so that folds
are stratified and of one size.  Large ones go first, and what is alike goes in the order of hashes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from headway.data.kinds import STREAMED, DataKind
from headway.data.order import keyed
from headway.data.records import Record
from headway.data.shards import digest
from headway.data.splits import DataSplits, class_of
from headway.errors import UserError, counted, listed

Units = Mapping[str, Counter[str]]  # texts, groups or documents, each with the records of each class in it


def in_folds(whole: DataSplits, folds: int, fold: int | None, stratify: bool, seed: int) -> DataSplits:
    """The data with one of its folds held out; without a number all of it is to be learned from, and is described."""
    if whole.kind is DataKind.ROWS:
        said = f"{whole.name} is one series of {whole.kind.value}, whose order folds would break"
        raise UserError(said, do="leave out data.folds: the end of the series is held out then")
    units = units_of(whole, stratify)
    things = "group" if whole.grouped else "text" if whole.kind in STREAMED else "different record"
    if len(units) < folds:
        said = f"data.folds {folds} of {counted(len(units), things)}, and each fold needs one"
        if whole.kind in STREAMED:
            raise UserError(said, do="leave out data.folds: the end of the text is held out then; or give more texts")
        raise UserError(said, do=f"give data.folds {len(units)}, or more data" if len(units) > 1 else "give more data")
    numbers = dealt(units, folds, seed)
    sizes = Counter[int]()
    for unit, number in numbers.items():
        sizes[number] += units[unit].total()
    if fold is None:
        least, most = min(sizes.values()), max(sizes.values())
        size = f"{least:,}" if least == most else f"{least:,} to {most:,}"
        unit = "words" if whole.kind in STREAMED else "records"
        notes = [f"{folds} folds of {size} {unit}", *rare_classes(units, folds)]
        return replace(whole, description="; ".join([whole.description, *notes]))
    return with_fold_held(whole, numbers, folds, fold)


def with_fold_held(whole: DataSplits, numbers: Mapping[str, int], folds: int, fold: int) -> DataSplits:
    """The data with a fold in the place of validation data; test data is for the model of all records alone."""

    def parted(side: bool) -> Iterator[Record]:
        inside = False
        for record in whole.train():
            inside = inside if record.goes_on else numbers[unit_of(whole, record)] == fold - 1
            if inside == side:
                yield record

    return replace(
        whole,
        description=f"{whole.description}; fold {fold} of {folds} is held out",
        train=lambda: parted(False),
        validation=lambda: parted(True),
        digest=digest((), whole.digest, f"fold {fold} of {folds}"),
        test=None,
        test_files=(),
        test_paths=(),
        test_skipped=None,
    )


def units_of(whole: DataSplits, stratify: bool) -> Units:
    """What is kept together, and how many records (of running text: words) of each class it has."""
    units: dict[str, Counter[str]] = {}
    inside = Counter[str]()
    for record in whole.train():
        if not record.goes_on:
            inside = units.setdefault(unit_of(whole, record), Counter())
        inside[class_of(whole.kind, record) if stratify else ""] += size_of(whole, record)
    return units


def unit_of(whole: DataSplits, record: Record) -> str:
    """The group of a record, or its text; white space does not count, since tokenizers may not see it."""
    return record.group if whole.grouped else " ".join(record.fields[0].split())


def size_of(whole: DataSplits, record: Record) -> int:
    return max(1, len(record.fields[0].split())) if whole.kind in STREAMED else 1


def dealt(units: Units, folds: int, seed: int) -> dict[str, int]:
    """The fold of each text or group, counted from 0.

    With at least as many of them as folds, no fold is empty; where all have one record, folds differ by one at most,
    and so do the records of each class in them.
    """
    totals = sum(units.values(), Counter[str]())
    held, sizes, found = [Counter[str]() for _ in range(folds)], [0] * folds, dict[str, int]()

    def order(unit: str) -> tuple[int, str, int, str]:
        counts = units[unit]
        main = min(counts, key=lambda label: (-counts[label], label))
        return -counts.total(), main, keyed("fold", seed, unit), unit

    for unit in sorted(units, key=order):
        counts = units[unit]

        def cost(fold: int, counts: Counter[str] = counts) -> tuple[float, int, int]:
            """By how much the squared parts of its classes grow, but for what all folds have in common."""
            grown = sum(count * held[fold][label] / totals[label] ** 2 for label, count in counts.items())
            return grown, sizes[fold], fold

        best = min(range(folds), key=cost)
        found[unit] = best
        held[best].update(counts)
        sizes[best] += counts.total()
    return found


def rare_classes(units: Units, folds: int) -> Iterator[str]:
    """A note on classes that not every fold has."""
    having = Counter(label for counts in units.values() for label in counts)
    rare = sorted((count, label) for label, count in having.items() if count < folds)
    if rare:
        names = listed([f"{label} ({count})" for count, label in rare], 3)
        yield f"not every fold has records of {names}"
