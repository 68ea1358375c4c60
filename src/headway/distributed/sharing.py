"""Work outside of a run's steps that its processes share: an evaluation is computed by all, each item by one of them.

Every process calls the same function of the same items in the same order, computes every n-th of them, and gets the
results of all.  What is made of the results, such as sums in their order, is then what one process makes, to the bit.
What does not know of this is computed whole by each process.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from typing import Any, TypeVar

from headway.distributed.world import ALONE, World

Item = TypeVar("Item")

TURNS = 8  # items that each process computes before results are exchanged
AMONG: ContextVar[World] = ContextVar("AMONG", default=ALONE)


@contextmanager
def sharing(world: World) -> Generator[None]:
    """Within it, the processes of a world share what `shared` is called for; all of them enter it."""
    token = AMONG.set(world)
    try:
        yield
    finally:
        AMONG.reset(token)


def shared(function: Callable[[Item], Any], items: Iterable[Item]) -> Iterator[tuple[Item, Any]]:
    """Each item with its result: numbers, texts, lists of these, or a tensor, of which others get lists.

    A process alone computes an item when it is asked for it.
    """
    world = AMONG.get()
    if world.size == 1:
        yield from ((item, function(item)) for item in items)
        return
    left = iter(items)
    while some := list(islice(left, TURNS * world.size)):
        yield from zip(some, results(function, some, world), strict=True)


def results(function: Callable[[Item], Any], items: Sequence[Item], world: World) -> list[Any]:
    """The results of all items, of which each process computes its own."""
    with sharing(ALONE):  # what the function calls is its own
        mine = [function(item) for item in items[world.rank :: world.size]]
    each = [json.loads(text) for text in world.gathered(json.dumps(mine, default=plain))]
    return [each[at % world.size][at // world.size] for at in range(len(items))]


def plain(value: Any) -> Any:
    """Numbers of NumPy and torch as those of JSON, which has every bit of them."""
    return value.tolist()
