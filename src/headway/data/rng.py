"""Random numbers by key: each is a pure function of the words and numbers that name it.

`random_for(seed, "dropout", step)` is the same on every machine, in every process and after every restart, so what
happens at a step does not depend on what happened before it.
"""

from __future__ import annotations

import hashlib
from operator import index
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Numbers: TypeAlias = NDArray[np.int64]


def keyed(*parts: int | str) -> int:
    """A number of 63 bits for these parts; 1 and "1" are different parts, and so are ("ab",) and ("a", "b")."""
    told = hashlib.sha256()
    for part in parts:
        kind, said = (b"text", part) if isinstance(part, str) else (b"number", str(index(part)))
        data = said.encode("utf-8", "surrogatepass")
        told.update(b"%s %d %s" % (kind, len(data), data))
    return int.from_bytes(told.digest()[:8], "little") >> 1


def random_for(*parts: int | str) -> np.random.Generator:
    """A stream of random numbers of its own for these parts."""
    return np.random.Generator(np.random.Philox(key=keyed(*parts)))


def shuffled(count: int, *parts: int | str) -> Numbers:
    """The numbers below `count` in an order that the parts decide."""
    # Raw bits: numpy promises them for ever, but may change what `permutation` makes of them.
    return np.argsort(np.random.Philox(key=keyed(*parts)).random_raw(count), kind="stable")
