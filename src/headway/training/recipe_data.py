"""The records of a recipe's files and its validation split.

Where no validation data is given, a share of the texts is held out by the text itself, so that no text is on both
sides, and of every class its share; of one or a few long documents, the end is held out (`tail`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.data.checks import Skipped, good_records
from headway.data.folds import in_folds
from headway.data.grouping import with_groups
from headway.data.kinds import STREAMED, DataKind
from headway.data.named_splits import named_splits
from headway.data.recognise import is_same_data, recognise, recognise_held_back
from headway.data.records import BUILTIN, RecognisedData, Record, as_records, is_builtin
from headway.data.shards import digest
from headway.data.splits import DataSplits, WeightedPaths, split, split_by_names, without_test
from headway.errors import UserError, counted, listed
from headway.recipe import Recipe
from headway.tasks.registry import TASKS, data_entry, data_kind, sentence, unlabelled_tasks
from headway.zoo.presets import preset

if TYPE_CHECKING:  # torch takes seconds to import, and what files hold is told before
    from headway.tasks.base import Task

DATES, DATES_VALIDATION = 100_000, 1000


def load_splits(recipe: Recipe, task: type[Task] | None = None, records: Iterable[Any] | None = None) -> DataSplits:
    """The records of a recipe's files, or `records` of Python values; `task` says what they are for, if known."""
    data = recipe.data
    if records is not None:
        for name in ("validation", "test", "validation_from", "test_from"):
            if getattr(data, name):
                said = f"data.{name} chooses files, and the records are given in Python"
                raise UserError(
                    said, do="leave it out, or give files; data.validation_split holds out a share of records"
                )
        if data.group is not None or data.group_from is not None:
            said = "data.group and data.group_from read groups from files, and the records are given in Python"
            raise UserError(said, do="give each Record its group")
        if data.weights is not None:
            raise UserError("data.weights weighs files, and the records are given in Python", do="leave it out")
        return held_back_from(in_memory(as_records(records), task), recipe)
    if is_builtin(data.path):
        for name in ("validation_from", "test_from", "group", "group_from", "weights"):
            if getattr(data, name) is not None:
                raise UserError(f"{BUILTIN} has no files for data.{name} to choose from", do="leave it out")
        if data.folds is not None:
            said = f"{BUILTIN} comes with {DATES_VALIDATION:,} validation records of its own"
            raise UserError(said, do="leave out data.folds")
        if data.test:
            said = f"{BUILTIN} has no files, so data.test {listed(map(str, data.test))} is not like them"
            raise UserError(said, do="evaluate the model on it afterwards, by headway eval")
        return builtin_dates(recipe.seed)
    if data.weights is not None and (len(data.weights) != len(data.path) or len(data.path) < 2):
        said = f"data.weights has {counted(len(data.weights), 'number')} for {counted(len(data.path), 'path')} of data"
        raise UserError(said, do="give two files or folders or more, and a weight for each")
    unlabelled = needs_no_labels(recipe) if task is None else not task.needs_labels
    paths, held, kept = [Path(path) for path in data.path], data.validation, data.test
    if named := named_splits(paths):  # a folder of train.csv, validation.csv and test.csv
        paths, held = list(named.train), held or (named.validation if data.validation_from is None else ())
        kept = kept or named.test
        if held and data.folds is not None:
            names = listed([path.name for path in held], 3)
            said = f"data.folds holds out parts of the records, and {names} is for validation already"
            raise UserError(said, do="leave out data.folds, or name the files to be folded")
    given = recognise(
        paths,
        source=data.source,
        target=data.target,
        kind=data_kind(data.task) if task is None else task.data_kind,
        columns=data.columns,
        label_from=data.label_from,
        nameless=unlabelled,
        header=data.header,
        group=data.group,
    )
    if task is not None or data.task in TASKS:
        check_kind(given, data_kind(data.task) if task is None else task.data_kind)
    if data.test_from is not None:
        given = without_test(given, data.test_from, "data.test_from")
    recognise_more = partial(
        recognise_held_back,
        given,
        columns=data.columns,
        label_from=data.label_from,
        nameless=unlabelled,
        header=data.header,
        group=data.group,
    )
    test = recognise_more(kept, "data.test") if kept else None
    validation = recognise_more(held, "data.validation") if held else None
    if data.validation_from is not None:
        given, validation = split_by_names(given, data.validation_from, "data.validation_from")
    if test is not None and validation is not None and is_same_data(validation, test):
        said = f"data.test {listed(map(str, kept))} is the validation data, which chooses the weights"
        raise UserError(said, do="give other records, or leave it out")
    grouped = data.group is not None or data.group_from is not None
    if grouped:
        check_groups(given, validation)
        given = with_groups(given, data.group, data.group_from)
    purposes = {"for validation": held if named else (), "kept for a test": kept}
    parts = [f"{listed([file.name for file in files], 3)} {use}" for use, files in purposes.items() if files]
    given = replace(given, description="; ".join([given.description, *parts]))
    held_files, test_files = validation.files if validation else (), test.files if test else ()
    # what decides, besides the bytes of files, which records they hold
    read_as = (data_entry(given.kind).word, repr(given.columns), *given.fingerprint)
    suffixes = ("".join(file.suffixes) for file in given.files)
    beside = (*(validation.fingerprint if validation and held else ()), *(test.fingerprint if test else ()))
    sizes = (repr((len(held_files), data.skip_bad)), *([repr(len(test_files))] if test else []), *beside)
    hashed = digest((*given.files, *held_files, *test_files), *read_as, *suffixes, *sizes)
    skipped, held_skipped, test_skipped = ((Skipped() if data.skip_bad else None) for _ in range(3))
    barred = [one for one in (validation, test) if one is not None]
    whole = DataSplits(
        (data.source or Path(data.path[0])).name,
        given.kind,
        sentence(given),
        partial(good_records, given, skipped, beside=barred),
        nothing,
        hashed,
        given.files,
        held_files,
        held,
        test=partial(good_records, test, test_skipped) if test else None,
        test_files=test_files,
        test_paths=kept,
        columns=given.columns,
        skipped=skipped,
        test_skipped=test_skipped if test else None,
        grouped=grouped,
        weighted=None if data.weights is None else WeightedPaths(tuple(paths), data.weights),
    )
    if validation is None:
        return held_back_from(whole, recipe)
    held_back = partial(good_records, validation, held_skipped, beside=[test] if test else [])
    return replace(whole, validation=held_back, validation_skipped=held_skipped)


def held_back_from(whole: DataSplits, recipe: Recipe) -> DataSplits:
    """The data with what a recipe holds out of it: a share of the records, or one of the folds."""
    data = recipe.data
    if data.folds is None:
        return split(whole, data.validation_split, data.stratify, recipe.seed)
    return in_folds(whole, data.folds, data.fold, data.stratify, recipe.seed)


def check_kind(given: RecognisedData, wanted: DataKind | None) -> None:
    """Refuses images, sounds or series for a task on texts that is named: only `regression` stands for all of them."""
    if given.kind is not wanted and wanted is not None:
        word = data_entry(given.kind).word
        raise UserError(f"{given.description}, no {wanted.value}", do=f"give others, or say data.task {word}")


def check_groups(given: RecognisedData, validation: RecognisedData | None) -> None:
    """Refuses groups where nothing is split, or by a share of a stream alone."""
    if validation is not None:
        said = "data.group and data.group_from are for a validation split, and there is validation data"
        raise UserError(said, do="leave one of them out")
    if given.kind in STREAMED:
        said = f"the end of {given.kind.value} is held out, which has no groups"
        raise UserError(said, do="leave out data.group and data.group_from")


def in_memory(records: list[Record], task: type[Task] | None) -> DataSplits:
    """Records of Python values."""
    if task is None or task.data_kind is None:
        raise UserError("records do not say what they are for", do='name the task, as in task="seq2seq"')
    hashed = digest((), task.name, *(repr(record.fields) for record in records))
    description = f"{len(records):,} records, so {task.goal}"
    grouped = any(record.group for record in records)
    hashed = digest((), hashed, *(record.group for record in records)) if grouped else hashed
    return DataSplits("records", task.data_kind, description, lambda: iter(records), nothing, hashed, grouped=grouped)


def nothing() -> Iterator[Record]:
    return iter(())


def builtin_dates(seed: int) -> DataSplits:
    """The built-in data set; validation records are dates of other days, `unseen` ones are in other formats."""
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
