"""Things a few at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def batched(things: Iterable[T], count: int) -> Iterator[list[T]]:
    """Lists of `count` things, the last one shorter; no more than one list is read ahead."""
    left = iter(things)
    while some := list(islice(left, count)):
        yield some
