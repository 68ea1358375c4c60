"""What a run learns from and what it is measured on: records, streamed as often as somebody asks.

Where no validation data is given, a share of the texts is held out by their own words, so that no text stands on both
sides; of one or a few long documents, the end is (`tail`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from headway.data.checks import Skipped, good_records
from headway.data.dates import Part
from headway.data.digest import digest
from headway.data.drawn import drawn
from headway.data.embedded import NAME, date_records, is_embedded
from headway.data.kinds import STREAMED, TASKS, Kind
from headway.data.named import split_by_names, without_test
from headway.data.recognise import Given, recognise
from headway.data.sources import Record
from headway.data.split import held_out, share_for
from headway.errors import UserError
from headway.train.recipe import Data, Recipe
from headway.zoo.presets import preset

DATES, DATES_HELD = 100_000, 1000
FEW = 20  # documents or fewer are cut at their end, not one from another
MOST = 2000  # records that are held out
NAMELESS = ("masked", "contrastive")  # objectives for which an image needs no class
NAMELESS_MODELS = ("mae", "simmim", "simclr")


@dataclass(frozen=True)
class Material:
    """Records for training and for validation, and the files of each.

    `tail`: the share of the stream's end that is validation instead.
    """

    name: str
    kind: Kind
    why: str
    train: Callable[[], Iterator[Record]]
    held: Callable[[], Iterator[Record]]
    digest: str
    files: tuple[Path, ...] = ()
    beside: tuple[Path, ...] = ()
    tail: float = 0.0
    columns: tuple[str | int, ...] = ()  # names of those in use, or their numbers from 1
    skipped: Skipped | None = None  # what is left out, where that was asked for
    held_skipped: Skipped | None = None  # the same of validation data of its own

    @property
    def left_out(self) -> str | None:
        """What was left out, for a sentence; None where nothing was asked to be."""
        if self.skipped is None:
            return None
        beside = "" if self.held_skipped is None else f"; of the validation data: {self.held_skipped}"
        return f"{self.skipped}{beside}"

    @property
    def embedded(self) -> bool:
        return not self.files

    def some_held(self, count: int) -> list[Record]:
        """At most so many records for validation, drawn evenly."""
        return drawn(self.held(), count)

    def some(self, count: int) -> list[Record]:
        """At most so many records to learn from, drawn evenly."""
        return drawn(self.train(), count)


def material(recipe: Recipe) -> Material:
    if is_embedded(recipe.data.path):
        check_no_patterns(recipe.data)
        return embedded(recipe.seed)
    nameless = needs_no_classes(recipe)
    given = recognised(recipe.data, nameless)
    if recipe.data.test_from is not None:
        given = without_test(given, recipe.data.test_from, "--data.test-from")
    held = recognised_validation(recipe.data, given, nameless) if recipe.data.validation else None
    if recipe.data.held_from is not None:
        given, held = split_by_names(given, recipe.data.held_from, "--data.held-from")
    skipped = Skipped() if recipe.data.skip_bad else None

    def everything() -> Iterator[Record]:
        return good_records(given, skipped, validation=held)

    name = (recipe.data.source or Path(recipe.data.path[0])).name
    beside = held.files if held else ()
    told = digest((*given.files, *beside), *read_as(given), repr((len(beside), recipe.data.skip_bad)))
    whole = Material(
        name, given.kind, given.why, everything, nothing, told, given.files, beside, 0.0, given.columns, skipped
    )
    if held is not None:
        beside_skipped = Skipped() if recipe.data.skip_bad else None
        return replace(whole, held=lambda: good_records(held, beside_skipped), held_skipped=beside_skipped)
    share = recipe.data.held_out
    if share == 0:
        return whole
    if given.kind in STREAMED and sum(not record.goes_on for record in everything()) <= FEW:
        return replace(whole, tail=share)
    chosen = share_for((key(record) for record in everything()), share, recipe.seed, most=MOST)

    def parted(side: bool) -> Iterator[Record]:
        inside = False
        for record in everything():
            inside = inside if record.goes_on else held_out(key(record), chosen, recipe.seed)
            if inside == side:
                yield record

    return replace(whole, train=lambda: parted(False), held=lambda: parted(True))


def check_no_patterns(data: Data) -> None:
    """Refuses patterns for names, where there are no files that could have any."""
    given = [name for name in ("held_from", "test_from") if getattr(data, name) is not None]
    if given:
        raise UserError(f"{NAME} has no files for data.{given[0]} to choose from", do="leave it out")


def read_as(given: Given) -> tuple[str, ...]:
    """What decides, besides the bytes of files, which records they hold."""
    return given.kind.value, repr(given.columns), *given.told, *("".join(file.suffixes) for file in given.files)


def nothing() -> Iterator[Record]:
    return iter(())


def embedded(seed: int) -> Material:
    """The dates, learned in known ways of writing them."""
    why = f"{NAME}: {DATES:,} dates in 44 languages with their ISO 8601 form, so translation"
    return Material(
        NAME,
        Kind.PAIRS,
        why,
        lambda: date_records(seed, DATES, Part.TRAIN),
        lambda: date_records(seed, DATES_HELD, Part.VALIDATION),
        digest((), "dates", str(seed), str(DATES)),
    )


def needs_no_classes(recipe: Recipe) -> bool:
    """Whether images are learned from without classes: as asked, or as the preset does."""
    name = recipe.model.preset if recipe.model.start is None else None
    return recipe.data.objective in NAMELESS or (name is not None and preset(name).architecture in NAMELESS_MODELS)


def recognised(data: Data, nameless: bool) -> Given:
    kind = None if data.task is None else TASKS[data.task]
    paths = [Path(path) for path in data.path]
    return recognise(
        paths,
        source=data.source,
        target=data.target,
        kind=kind,
        columns=data.columns,
        label_from=data.label_from,
        nameless=nameless,
    )


def recognised_validation(data: Data, given: Given, nameless: bool) -> Given:
    """Validation data, read as the training data is."""
    if data.source is not None:
        if len(data.validation) != 2:
            raise UserError(
                f"--validation {' --validation '.join(map(str, data.validation))}",
                allowed="two files, as --source and --target are",
                do="give --validation SOURCES --validation TARGETS",
            )
        return recognise([], source=data.validation[0], target=data.validation[1], kind=given.kind)
    columns = data.columns or given.columns or None
    return recognise(
        list(data.validation), kind=given.kind, columns=columns, label_from=data.label_from, nameless=nameless
    )


def key(record: Record) -> str:
    return record.fields[0]
