"""What a look at an image or a sound finds: what it is and how large, or why it cannot be learned from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from headway.data.archives import LARGEST, Place
from headway.data.lines import What, shown
from headway.errors import UserError

KEPT = 2**16  # looks that are remembered: data is read through several times before a training


@dataclass(frozen=True, slots=True)
class Seen:
    """A hash of the contents, and how large these are."""

    content: str
    extent: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Flaw:
    """What is wrong, said behind the name of a file: `is truncated`."""

    what: What
    said: str


class Medium(Protocol):
    """Images or sounds, and what one of them may be; a frozen value."""

    @property
    def noun(self) -> str: ...

    @property
    def suffixes(self) -> tuple[str, ...]: ...

    def look(self, place: Place) -> Seen | Flaw: ...


def looked(medium: Medium, place: Place) -> Seen | Flaw:
    """`medium.look(place)`, done once for a file that has not changed since."""
    try:
        stamp = place.file.stat()
    except OSError:
        return Flaw(What.MISSING, "is gone")
    return remembered(medium, place, stamp.st_size, stamp.st_mtime_ns)


def contents(place: Place, what: What) -> bytes | Flaw:
    """The bytes of a file, or why they cannot be had: `what`, or too many of them."""
    try:
        if (size := place.bytes) > LARGEST:
            return Flaw(What.LARGE, f"has {size:,} bytes where {LARGEST:,} are allowed")
        return place.read()
    except UserError as error:
        return Flaw(what, error.said.removeprefix(f"{place.path} "))


def refused(place: Place, flaw: Flaw) -> UserError:
    """What is said to somebody who opens a file that has a flaw."""
    return UserError(f"{shown(place.path)} {flaw.said}")


@lru_cache(KEPT)
def remembered(medium: Medium, place: Place, size: int, changed: int) -> Seen | Flaw:
    """The look at a file of this size that was last changed then."""
    return medium.look(place)
