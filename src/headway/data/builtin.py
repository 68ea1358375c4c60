"""The built-in data set `dates`: dates as they are written in many languages, and the same dates in ISO 8601.

    Donnerstag, 4. März 2021  →  2021-03-04        ২৭ নভেম্বর, ১৯৮৪  →  1984-11-27

Nothing is stored: example `index` of a seed is computed, the same on every machine.  Languages and their patterns are
Unicode's, by way of Babel.  Dates are written with the language's own digits, in the Gregorian calendar, as people
type: with plain spaces and without direction marks.

A text never stands for two dates:

- where languages differ in the order of day and month and nothing else tells which it is (03/04/2021), only dates whose
  day is above 12, or equal to the month, are written so;
- years of two digits are those that C's strptime reads: 69 to 99 are 1969 to 1999, and 00 to 68 are 2000 to 2068;
  where the year itself might stand first or last, they are not written at all.

A tenth of all dates is kept from training in every language, and so is one in eight pairs of a language and a pattern.
A pattern that several languages write alike is one pair and goes by the first of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date, timedelta
from enum import IntEnum, StrEnum
from functools import cache
from itertools import count as counting
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING
from unicodedata import decimal

from headway.data.order import keyed
from headway.data.records import BUILTIN, Record
from headway.errors import UserError

if TYPE_CHECKING:
    from babel import Locale


# fmt: off
LOCALES = (
    "en_US", "en_GB", "de", "fr", "es", "it", "pt_BR", "nl", "sv", "da", "fi", "is", "et", "lv", "lt", "pl", "cs", "hu",
    "ro", "bg", "ru", "uk", "el", "tr", "ka", "hy", "he", "ar_EG", "fa", "ur", "hi", "mr", "bn", "ta", "te", "th",
    "my", "vi", "id", "sw", "ko", "ja", "zh_Hans", "zh_Hant",
)
# fmt: on
STYLES = ("short", "medium", "long", "full")
SKELETONS = ("yMd", "yMMMd", "yMMMMd", "yMEd", "yMMMEd", "yMMMMEEEEd")
FIRST, LAST = 1900, 2099  # years
SHORT = range(1969, 2069)  # years that two digits can stand for
DAYS_HELD, PAIRS_HELD = 10, 8  # one in so many is kept from training
ZEROS = {"latn": "0", "arab": "٠", "arabext": "۰", "deva": "०", "beng": "০", "mymr": "၀"}


class DateSplit(StrEnum):
    """What examples are for: to learn from; other dates in the same pairs; other dates in pairs never seen."""

    TRAIN = "train"
    VALIDATION = "validation"
    UNSEEN = "unseen"


@dataclass(frozen=True)
class WrittenDate:
    """A date as a language writes it."""

    text: str
    iso: str
    locale: str
    pattern: str


def dates(seed: int, count: int, *, part: DateSplit = DateSplit.TRAIN) -> list[tuple[str, str]]:
    """The first `count` pairs of a text and its date in ISO 8601."""
    if count < 0:
        raise UserError(f"{count} dates", allowed="0 or more")
    return [(found.text, found.iso) for found in (written(seed, index, part=part) for index in range(count))]


def written(seed: int, index: int, *, part: DateSplit = DateSplit.TRAIN) -> WrittenDate:
    """Example `index` with the names of its locale and pattern."""
    writers, seen = writers_of(part is DateSplit.UNSEEN), writers_of(False)
    for attempt in counting():
        number = keyed("dates", seed, part.value, index, attempt)
        number, at = divmod(number, len(writers))
        writer = writers[at]
        days = days_of(part is not DateSplit.TRAIN, writer.short, writer.swapped)
        day = days[number % len(days)]
        text = writer.write(day)
        # such as the 15th, which a pattern with leading zeros and one without write alike
        if part is not DateSplit.UNSEEN or all(other.write(day) != text for other in seen):
            return WrittenDate(text, day.isoformat(), writer.locale, writer.pattern)
    raise AssertionError("unreachable")


class DateField(IntEnum):
    """What of a date a piece of a pattern writes."""

    NOTHING = 0
    YEAR = 1
    MONTH = 2
    DAY = 3
    WEEKDAY = 4


FIELDS = {  # by the letters of patterns; the era is always the same
    "G": DateField.NOTHING,
    "y": DateField.YEAR,
    "M": DateField.MONTH,
    "L": DateField.MONTH,
    "d": DateField.DAY,
    "E": DateField.WEEKDAY,
    "c": DateField.WEEKDAY,
}
VALUES = {  # a date for each value of a field
    DateField.NOTHING: [date(2000, 1, 1)],
    DateField.YEAR: [date(year, 1, 1) for year in range(FIRST, LAST + 1)],
    DateField.MONTH: [date(2000, month, 1) for month in range(1, 13)],
    DateField.DAY: [date(2000, 1, day) for day in range(1, 32)],
    DateField.WEEKDAY: [date(2001, 1, day) for day in range(1, 8)],  # from Monday
}


@dataclass(frozen=True)
class DatePiece:
    """A part of a pattern, and how it is written for each value that its field can have."""

    field: DateField
    words: tuple[str, ...]

    @property
    def number(self) -> bool:
        """Whether it is one or two digits, which might be a day, a month or a short year."""
        return (
            self.field in (DateField.YEAR, DateField.MONTH, DateField.DAY)
            and self.words[-1].isdecimal()
            and len(self.words[-1]) == 2
        )


@dataclass(frozen=True)
class DateWriter:
    """A pattern of a language, as a table for each piece.

    `swapped`: another language writes the month where this one writes the day, and all else alike.
    """

    locale: str
    pattern: str
    pieces: tuple[DatePiece, ...]
    swapped: bool = False

    def write(self, day: date) -> str:
        at = (0, day.year - FIRST, day.month - 1, day.day - 1, day.weekday())  # in the order of `DateField`
        return "".join([piece.words[at[piece.field]] for piece in self.pieces])

    @property
    def short(self) -> bool:
        """Whether it writes two digits of the year."""
        return any(piece.field is DateField.YEAR and piece.number for piece in self.pieces)

    @property
    def look(self) -> tuple[object, ...]:
        """What a reader sees of a pattern: texts, names, and numbers that might be days, months or years."""
        return tuple(zero(piece.words[0][0]) if piece.number else piece for piece in self.pieces)

    @property
    def order(self) -> tuple[DateField, ...]:
        return tuple(piece.field for piece in self.pieces if piece.number)


@cache
def writers_of(held: bool) -> tuple[DateWriter, ...]:
    """The pairs that are kept from training, or the others."""
    return tuple(w for w in all_writers() if (keyed("dates", w.locale, w.pattern) % PAIRS_HELD == 0) == held)


@cache
def all_writers() -> tuple[DateWriter, ...]:
    """Every pattern of every language, once; ambiguous ones are left out."""
    from babel import Locale

    found: dict[tuple[DatePiece, ...], DateWriter] = {}
    for name in LOCALES:
        locale = Locale.parse(name)
        for pattern in patterns(locale):
            writer = DateWriter(name, pattern, pieces(locale, pattern))
            found.setdefault(writer.pieces, writer)
    return tuple(readable(found.values()))


def readable(writers: Iterable[DateWriter]) -> Iterable[DateWriter]:
    """The patterns whose order is clear, at least for days above 12."""
    looks: dict[tuple[object, ...], set[tuple[DateField, ...]]] = defaultdict(set)
    writers = list(writers)
    for writer in writers:
        looks[writer.look].add(writer.order)
    for writer in writers:
        orders = looks[writer.look]
        places = {order.index(DateField.YEAR) if DateField.YEAR in order else None for order in orders}
        if len(places) == 1:
            yield replace(writer, swapped=len(orders) > 1)


def patterns(locale: Locale) -> list[str]:
    styles = [locale.date_formats[style].pattern for style in STYLES]
    skeletons = [locale.datetime_skeletons[name].pattern for name in SKELETONS if name in locale.datetime_skeletons]
    return list(dict.fromkeys([*styles, *skeletons]))


def pieces(locale: Locale, pattern: str) -> tuple[DatePiece, ...]:
    """A pattern taken apart; neighbours that are the same for every date are one piece."""
    from babel.dates import tokenize_pattern

    found = [piece(locale, token) for _, token in tokenize_pattern(pattern)]
    joined: list[DatePiece] = []
    for same, run in groupby(found, lambda part: part.field is DateField.NOTHING):
        run = list(run)
        joined += [DatePiece(DateField.NOTHING, ("".join(part.words[0] for part in run),))] if same else run
    return tuple(joined)


def piece(locale: Locale, token: str | tuple[str, int]) -> DatePiece:
    """A text, or a field as Babel writes it for each of its values."""
    from babel.dates import DateTimeFormat

    if isinstance(token, str):
        return DatePiece(DateField.NOTHING, (typed(locale, token),))
    letter, times = token
    field = FIELDS[letter]
    names = [DateTimeFormat(day, locale)[letter * times] for day in VALUES[field]]
    return DatePiece(field, tuple(typed(locale, name) for name in names))


def typed(locale: Locale, text: str) -> str:
    """With the language's digits, plain spaces, and no marks of direction."""
    first = ord(ZEROS[locale.default_numbering_system])
    own = {ord("0") + digit: first + digit for digit in range(10)}
    return text.translate(own | {0xA0: " ", 0x202F: " ", 0x200E: None, 0x200F: None})


def zero(digit: str) -> str:
    """The zero of the digits that a digit belongs to."""
    return chr(ord(digit) - decimal(digit))


@cache
def days_of(held: bool, short: bool, swapped: bool) -> tuple[date, ...]:
    """The dates that are kept from training, or the others; of a short year, and with days that cannot be months."""
    first = date(FIRST, 1, 1)
    whole = [first + timedelta(n) for n in range((date(LAST + 1, 1, 1) - first).days)]
    return tuple(
        day
        for day in whole
        if (keyed("dates", day.isoformat()) % DAYS_HELD == 0) == held
        and (not short or day.year in SHORT)
        and (not swapped or day.day > 12 or day.day == day.month)
    )


def date_records(seed: int, count: int, part: DateSplit) -> Iterator[Record]:
    """The first `count` dates of a part, each computed when it is read."""
    found = (written(seed, index, part=part) for index in range(count))
    return (Record((one.text, one.iso), Path(BUILTIN), at) for at, one in enumerate(found, 1))
