"""A few of many records, drawn evenly and always the same ones: files may come class by class."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nsmallest

from headway.data.keyed import keyed
from headway.data.sources import Record


def drawn(records: Iterable[Record], count: int) -> list[Record]:
    """At most so many records, in their order; which ones is decided by what each holds, wherever it stands.

    Fewer that are drawn from these are the same as if they were drawn from all.
    """
    chosen = nsmallest(count, enumerate(records), key=lambda one: keyed("asked", *one[1].fields))
    return [record for _, record in sorted(chosen, key=lambda one: one[0])]
