"""Regular expressions that a person gives for names of files: what is found in a name is a class, a text or a group."""

from __future__ import annotations

import re
from collections.abc import Callable

from headway.errors import UserError
from headway.system import processor_limit

MAX_PATTERN_SECONDS = 2.0  # of the processor, for a pattern on one name; usual ones take microseconds


def checked_pattern(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise UserError(
            f"{pattern!r} is no pattern: {error}", do="write a regular expression as Python's re has them"
        ) from None
    return pattern


def find(how: Callable[[str, str], re.Match[str] | None], pattern: str, name: str) -> re.Match[str] | None:
    """What a pattern finds in a name; one that tries combinations without end is refused."""
    slow = UserError(f"the pattern {pattern!r} takes too long on {name[:60]!r}", do="write it without nested repeats")
    with processor_limit(MAX_PATTERN_SECONDS, slow):
        return how(pattern, name)


def found_text(found: re.Match[str]) -> str:
    """The groups of a pattern, joined by spaces; all that it found where it has none."""
    return " ".join(part for part in found.groups() if part) if found.re.groups else found[0]
