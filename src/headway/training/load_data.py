"""From a recipe's data settings to training and validation records.

Where no validation data is given, a share of the texts is held out by their own words, so that no text stands on both
sides; of one or a few long documents, the end is (`tail`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from headway.data.checks import Skipped, good_records
from headway.data.kinds import STREAMED, DataKind
from headway.data.recognise import recognise, recognise_validation
from headway.data.records import BUILTIN, RecognisedData, Record, as_records, is_builtin
from headway.data.shards import digest
from headway.data.splits import DataSplits, held_out, share_for, split_by_names, without_test
from headway.errors import UserError
from headway.recipe import DataSettings, Recipe
from headway.tasks.base import Task
from headway.tasks.registry import data_entry, data_kind, sentence, unlabelled_tasks
from headway.zoo.presets import preset

DATES, DATES_VALIDATION = 100_000, 1000
FEW_DOCUMENTS = 20  # or fewer are cut at their end, not one from another
MAX_VALIDATION = 2000  # records that are held out


def load_splits(recipe: Recipe, task: type[Task] | None = None, records: Iterable[Any] | None = None) -> DataSplits:
    """The records of a recipe's files, or `records` of Python values; `task` says what they are for, if known."""
    if records is not None:
        return split(recipe, in_memory(as_records(records), task))
    if is_builtin(recipe.data.path):
        check_no_patterns(recipe.data)
        return builtin_dates(recipe.seed)
    unlabelled = needs_no_labels(recipe) if task is None else not task.needs_labels
    given = recognised(recipe.data, unlabelled, task)
    if recipe.data.test_from is not None:
        given = without_test(given, recipe.data.test_from, "data.test_from")
    data, validation = recipe.data, None
    if data.validation:
        validation = recognise_validation(
            given, data.validation, columns=data.columns, label_from=data.label_from, nameless=unlabelled
        )
    if recipe.data.validation_from is not None:
        given, validation = split_by_names(given, recipe.data.validation_from, "data.validation_from")
    skipped = Skipped() if recipe.data.skip_bad else None

    def everything() -> Iterator[Record]:
        return good_records(given, skipped, validation=validation)

    name = (recipe.data.source or Path(recipe.data.path[0])).name
    beside = validation.files if validation else ()
    told = digest((*given.files, *beside), *read_as(given), repr((len(beside), recipe.data.skip_bad)))
    whole = DataSplits(
        name,
        given.kind,
        sentence(given),
        everything,
        nothing,
        told,
        given.files,
        beside,
        columns=given.columns,
        skipped=skipped,
    )
    if validation is None:
        return split(recipe, whole)
    beside_skipped = Skipped() if recipe.data.skip_bad else None
    read = validation

    def held() -> Iterator[Record]:
        return good_records(read, beside_skipped)

    return replace(whole, validation=held, validation_skipped=beside_skipped)


def split(recipe: Recipe, whole: DataSplits) -> DataSplits:
    """Training records with a share of them held out for validation."""
    share = recipe.data.validation_split
    if share == 0:
        return whole
    everything = whole.train
    if whole.kind in STREAMED and sum(not record.goes_on for record in everything()) <= FEW_DOCUMENTS:
        return replace(whole, tail=share)
    chosen = share_for((record.fields[0] for record in everything()), share, recipe.seed, most=MAX_VALIDATION)

    def parted(side: bool) -> Iterator[Record]:
        inside = False
        for record in everything():
            inside = inside if record.goes_on else held_out(record.fields[0], chosen, recipe.seed)
            if inside == side:
                yield record

    return replace(whole, train=lambda: parted(False), validation=lambda: parted(True))


def in_memory(records: list[Record], task: type[Task] | None) -> DataSplits:
    """Records of Python values."""
    if task is None or task.data_kind is None:
        raise UserError("records do not say what they are for", do='name the task, as in task="seq2seq"')
    told = digest((), task.name, *(repr(record.fields) for record in records))
    description = f"{len(records):,} records, so {task.goal}"
    return DataSplits("records", task.data_kind, description, lambda: iter(records), nothing, told)


def check_no_patterns(data: DataSettings) -> None:
    """Refuses patterns for names, where there are no files that could have any."""
    given = [name for name in ("validation_from", "test_from") if getattr(data, name) is not None]
    if given:
        raise UserError(f"{BUILTIN} has no files for data.{given[0]} to choose from", do="leave it out")


def read_as(given: RecognisedData) -> tuple[str, ...]:
    """What decides, besides the bytes of files, which records they hold."""
    return (
        data_entry(given.kind).word,
        repr(given.columns),
        *given.fingerprint,
        *("".join(file.suffixes) for file in given.files),
    )


def nothing() -> Iterator[Record]:
    return iter(())


def builtin_dates(seed: int) -> DataSplits:
    """The dates, learned in known ways of writing them."""
    from headway.data.builtin import DateSplit, date_records

    description = f"{BUILTIN}: {DATES:,} dates in 44 languages with their ISO 8601 form, so translation"
    return DataSplits(
        BUILTIN,
        DataKind.PAIRS,
        description,
        lambda: date_records(seed, DATES, DateSplit.TRAIN),
        lambda: date_records(seed, DATES_VALIDATION, DateSplit.VALIDATION),
        digest((), "dates", str(seed), str(DATES)),
        builtin=True,
        unseen=lambda: date_records(seed, DATES, DateSplit.UNSEEN),
    )


def needs_no_labels(recipe: Recipe) -> bool:
    """Whether images are learned from without classes: as asked, or as the preset does."""
    name = recipe.model.preset if recipe.model.start is None else None
    unlabelled = unlabelled_tasks()
    if recipe.data.objective in {entry.objective for entry in unlabelled.values()}:
        return True
    return name is not None and any(preset(name).architecture in entry.unlabelled for entry in unlabelled.values())


def recognised(data: DataSettings, unlabelled: bool, task: type[Task] | None) -> RecognisedData:
    return recognise(
        [Path(path) for path in data.path],
        source=data.source,
        target=data.target,
        kind=data_kind(data.task) if task is None else task.data_kind,
        columns=data.columns,
        label_from=data.label_from,
        nameless=unlabelled,
    )
