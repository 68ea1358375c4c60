"""Images and sounds told apart by their names: what is held out, and what is kept for a test."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from headway.data.given import Given
from headway.data.media import Entry, Media, Names
from headway.data.sources import counted
from headway.errors import UserError


def split_by_names(given: Given, pattern: str, option: str) -> tuple[Given, Given]:
    """Files in whose names the pattern is not found, and those in which it is; neither may be none of them."""
    found = only_named(given, pattern, option)
    others = part(given, Names(pattern, wanted=False))
    if next(wanted(others), None) is None:
        raise UserError(f"{option} {pattern!r} finds all names, and none are left", do="give one that finds some")
    return others, found


def only_named(given: Given, pattern: str, option: str) -> Given:
    """Files in whose names the pattern is found."""
    found = part(given, Names(checked_pattern(pattern)))
    if next(wanted(found), None) is None:
        such = [f", such as {entry.place.path.stem!r}" for entry in islice(wanted(given), 1)]
        raise UserError(f"{option} {pattern!r} finds none of the names{''.join(such)}", do="give one that finds some")
    return found


def without_test(given: Given, pattern: str, option: str) -> Given:
    """Files in whose names the pattern is not found: the others are for a test, and left alone until then."""
    others, found = split_by_names(given, pattern, option)
    count = counted(len({entry.place for entry in wanted(found)}), "file")
    return replace(others, why=f"{given.why}; {count} kept for a test, by {pattern!r} in their names")


def part(given: Given, names: Names) -> Given:
    media = [source for source in given.sources if isinstance(source, Media)]
    if not media:
        raise UserError("only files of images or sounds can be told apart by their names", do="give other files")
    sources = tuple(replace(source, names=(*source.names, names)) for source in media)
    return replace(given, sources=sources, told=(*given.told, names.pattern, str(names.wanted)))


def wanted(given: Given) -> Iterator[Entry]:
    """The files that are read; none of them is opened here."""
    for source in given.sources:
        if isinstance(source, Media):
            yield from (found for found in source.entries.read() if isinstance(found, Entry) and source.wants(found))


def checked_pattern(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise UserError(f"{pattern!r} is no pattern: {error}") from None
    return pattern
