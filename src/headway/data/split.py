"""Which texts are held out for validation, decided by each text alone.

The same text is never on both sides, whatever else is in the file and however often it stands there; a line that is
added later moves no other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from heapq import nsmallest

from headway.data.keyed import keyed


def held_out(text: str, share: float, seed: int) -> bool:
    """Whether a text is among the share that is held out; give the source side of a pair."""
    return place(text, seed) < share


def share_for(texts: Iterable[str], share: float, seed: int, *, least: int = 1, most: int = 2000) -> float:
    """The share, near the wished one, that holds out at least `least` and never more than `most` of these texts.

    A text that stands there many times is held out as often or not at all; where that makes both bounds impossible,
    `most` holds.
    """
    lowest = nsmallest(most + 1, (place(text, seed) for text in texts))  # keeps no more than it returns
    if 0 < least < len(lowest):
        share = max(share, math.nextafter(lowest[least - 1], 2))
    return min(share, lowest[most]) if len(lowest) > most else share


def place(text: str, seed: int) -> float:
    """Where a text stands between 0 and 1; white space does not count, since tokenizers may not see it."""
    return (keyed("held out", seed, " ".join(text.split())) >> 10) / 2**53  # 53 bits: exact as a float
