"""Laws of the embedded dates: computed, unambiguous, with nothing of what is held out in training."""

from __future__ import annotations

import subprocess
import sys
import unicodedata
from collections import Counter
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.data import builtin as module
from headway.data.builtin import (
    FIRST,
    LAST,
    LOCALES,
    DateSplit,
    DateWriter,
    all_writers,
    dates,
    days_of,
    writers_of,
    written,
)
from headway.errors import UserError

seeds, indices, parts = st.integers(-3, 2**70), st.integers(0, 2**40), st.sampled_from(DateSplit)


@pytest.mark.slow
def test_the_first_examples_of_seed_0() -> None:
    """They change with the list of locales and with Babel's data, and never otherwise."""
    assert dates(0, 5) == [
        ("21 juli 1952", "1952-07-21"),
        ("25 հոկտեմբերի, 2065 թ.", "2065-10-25"),
        ("sestdiena, 1955. gada 3. decembris", "1955-12-03"),
        ("18 бер. 1998 р.", "1998-03-18"),
        ("१४ ऑग, २०१७", "2017-08-14"),
    ]
    assert (written(0, 2).locale, written(0, 2).pattern) == ("lv", "EEEE, y. 'gada' d. MMMM")


@pytest.mark.slow
@given(seed=seeds, count=st.integers(0, 5), more=st.integers(0, 3), part=parts)
def test_an_example_depends_on_its_seed_and_index_alone(seed: int, count: int, more: int, part: DateSplit) -> None:
    once = dates(seed, count, part=part)
    assert dates(seed, count + more, part=part)[:count] == once
    assert [(w.text, w.iso) for w in (written(seed, index, part=part) for index in range(count))] == once


@pytest.mark.slow
def test_another_process_writes_the_same() -> None:
    code = "from headway.data.builtin import dates; print(ascii(dates(7, 50)))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.strip() == ascii(dates(7, 50))


@pytest.mark.slow
@given(seed=seeds, index=indices, part=parts)
def test_an_example_is_a_date_that_its_pair_writes(seed: int, index: int, part: DateSplit) -> None:
    found = written(seed, index, part=part)
    day = date.fromisoformat(found.iso)
    assert FIRST <= day.year <= LAST
    (writer,) = (w for w in all_writers() if (w.locale, w.pattern) == (found.locale, found.pattern))
    assert writer.write(day) == found.text
    assert writer in writers_of(part is DateSplit.UNSEEN)
    assert day in set(days_of(part is not DateSplit.TRAIN, False, False))


@pytest.mark.slow
@given(seed=seeds, index=indices)
def test_nothing_unseen_can_be_written_by_a_pair_of_training(seed: int, index: int) -> None:
    found = written(seed, index, part=DateSplit.UNSEEN)
    assert found.text not in {w.write(date.fromisoformat(found.iso)) for w in writers_of(False)}


@pytest.mark.slow
def test_no_text_of_training_is_held_out() -> None:
    texts, isos = map(set, zip(*dates(0, 40_000), strict=True))
    for part in (DateSplit.VALIDATION, DateSplit.UNSEEN):
        held = dates(0, 500, part=part)
        assert texts.isdisjoint(text for text, _ in held)
        assert isos.isdisjoint(iso for _, iso in held)


@pytest.mark.slow
def test_what_is_held_out_is_a_tenth_of_the_days_and_an_eighth_of_the_pairs() -> None:
    held, others = days_of(True, False, False), days_of(False, False, False)
    assert not set(held) & set(others)
    assert len(held) + len(others) == (date(LAST + 1, 1, 1) - date(FIRST, 1, 1)).days
    assert 0.09 < len(held) / len(others) < 0.13
    assert set(writers_of(True)) | set(writers_of(False)) == set(all_writers())
    assert 0.07 < len(writers_of(True)) / len(all_writers()) < 0.17
    assert len({writer.locale for writer in writers_of(True)}) > 10
    assert {writer.locale for writer in writers_of(False)} == set(LOCALES)


@pytest.mark.slow
def test_no_text_stands_for_two_dates_in_200_000_samples() -> None:
    assert clashes([pair for seed in (0, 1) for pair in dates(seed, 100_000)]) == []


@pytest.mark.slow
@pytest.mark.parametrize("year", [1999, 2024])
def test_no_text_stands_for_two_dates_of_a_year(year: int) -> None:
    """Long years are told by their digits, so a year at a time shows all; short ones meet them in one century."""
    assert clashes(everything(year, all_writers())) == []


@pytest.mark.slow
def test_no_short_text_stands_for_two_dates() -> None:
    short = [writer for writer in all_writers() if writer.short]
    assert len(short) >= 8
    pairs = [(w.write(day), day.isoformat()) for w in short for held in (True, False) for day in own_days(w, held)]
    assert clashes(pairs) == []


@pytest.mark.slow
def test_an_order_that_is_not_told_would_be_noticed() -> None:
    """With every date in every pattern, the 5th of March is the 3rd of May somewhere."""
    careless = [DateWriter(writer.locale, writer.pattern, writer.pieces) for writer in all_writers()]
    assert "3/5/24" in clashes(everything(2024, careless))


def test_short_years_that_might_stand_first_or_last_are_left_out() -> None:
    """२१/३/४ is 2021-03-04 in Nepali, and Marathi, whose digits are the same, writes the 21st of March so."""
    from babel import Locale

    told = [("ne", "yy/M/d"), ("mr", "d/M/yy"), ("mr", "d/M/y")]
    writers = [DateWriter(name, pattern, module.pieces(Locale.parse(name), pattern)) for name, pattern in told]
    assert [writer.pattern for writer in module.readable(writers)] == ["d/M/y"]
    assert [writer.pattern for writer in module.readable(writers[1:])] == ["d/M/yy", "d/M/y"]


@pytest.mark.slow
def test_pieces_write_what_babel_writes() -> None:
    from babel import Locale
    from babel.dates import format_date

    for writer in all_writers():
        for day in own_days(writer, held=False)[:: 3001 if writer.swapped or writer.short else 7001]:
            told = format_date(day, writer.pattern, writer.locale)
            assert writer.write(day) == module.typed(Locale.parse(writer.locale), told)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("locale", "pattern", "text"),
    [
        ("en_US", "EEEE, MMMM d, y", "Friday, October 31, 2053"),
        ("en_US", "M/d/y", "10/31/2053"),
        ("en_GB", "dd/MM/y", "31/10/2053"),
        ("de", "d. MMMM y", "31. Oktober 2053"),
        ("de", "dd.MM.yy", "31.10.53"),
        ("ar_EG", "d MMMM y", "٣١ أكتوبر ٢٠٥٣"),
        ("ar_EG", "d\u200f/M\u200f/y", "٣١/١٠/٢٠٥٣"),
        ("fa", "y/M/d", "۲۰۵۳/۱۰/۳۱"),  # Gregorian, as everywhere
        ("mr", "d MMMM, y", "३१ ऑक्टोबर, २०५३"),
        ("bn", "d MMMM, y", "৩১ অক্টোবর, ২০৫৩"),
        ("my", "y MMMM d", "၂၀၅၃ အောက်တိုဘာ ၃၁"),
        ("th", "d MMMM G y", "31 ตุลาคม ค.ศ. 2053"),  # of the Christian era, not the Buddha's
        ("he", "d בMMMM y", "31 באוקטובר 2053"),
        ("ru", "d MMMM y\u202f'г'.", "31 октября 2053 г."),
        ("ja", "y年M月d日EEEE", "2053年10月31日金曜日"),
        ("ko", "yy. M. d.", "53. 10. 31."),
        ("hu", "y. MMMM d., EEEE", "2053. október 31., péntek"),
    ],
)
def test_the_same_day_around_the_world(locale: str, pattern: str, text: str) -> None:
    (writer,) = (w for w in all_writers() if (w.locale, w.pattern) == (locale, pattern))
    assert writer.write(date(2053, 10, 31)) == text


@pytest.mark.slow
def test_the_set_is_as_broad_as_it_says() -> None:
    assert len(LOCALES) >= 30
    assert len(LOCALES) == len(set(LOCALES))
    texts = [text for text, _ in dates(0, 20_000)]
    zeros = {ord(c) - unicodedata.decimal(c) for text in texts for c in text if c.isdecimal()}
    assert {chr(zero) for zero in zeros} == set(module.ZEROS.values())
    locales = Counter(written(0, index).locale for index in range(20_000))
    assert set(locales) == set(LOCALES)
    assert all(text == text.strip() and text.isprintable() for text in texts if "\u200c" not in text)


@pytest.mark.slow
def test_short_years_lie_in_one_century() -> None:
    years = {day.year % 100: day.year for day in days_of(False, True, False)}
    assert len(years) == 100
    assert {day.year for day in days_of(False, True, False)} == set(years.values())
    assert (years[69], years[68]) == (1969, 2068)


def test_a_negative_count_is_an_error() -> None:
    with pytest.raises(UserError, match="-1 dates"):
        dates(0, -1)


@pytest.mark.slow
def test_babel_is_imported_late() -> None:
    code = "import headway.data.builtin, sys; print('babel' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def everything(year: int, writers: list[DateWriter] | tuple[DateWriter, ...]) -> list[tuple[str, str]]:
    """All that a year's dates can be written as."""
    days = {
        (held, short, swapped): [day for day in days_of(held, short, swapped) if day.year == year]
        for held in (True, False)
        for short in (True, False)
        for swapped in (True, False)
    }
    return [
        (w.write(day), day.isoformat())
        for w in writers
        for held in (True, False)
        for day in days[held, w.short, w.swapped]
    ]


def own_days(writer: DateWriter, held: bool) -> tuple[date, ...]:
    return days_of(held, writer.short, writer.swapped)


def clashes(pairs: list[tuple[str, str]]) -> list[str]:
    """The texts that stand for more than one date."""
    meant: dict[str, set[str]] = {}
    for text, iso in pairs:
        meant.setdefault(text, set()).add(iso)
    return [text for text, isos in meant.items() if len(isos) > 1]
