"""The vectors that a site shows of data, each with the row and the place in it where it was shown.

Rows are drawn from many more, because files are often in the order of their classes.  Of every ten one is held out:
nothing is learned from it.

Axes:  N vectors   C width   L rows
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor, nn

from headway.app.inspect.calls import Asker, Call, Sample, Shown, alike
from headway.data.keyed import shuffled
from headway.errors import UserError
from headway.inspect.site_vectors import vectors
from headway.nn.trace import record

AHEAD = 20  # times as many tokens are read as are drawn
EVERY = 10  # rows, of which one is held out
PORTION = 8192  # tokens whose rows are sorted by length, at least
LEAST = 20  # rows of a portion


@dataclass(frozen=True, eq=False)
class Gathered:
    """Vectors N C, those of held-out rows last; `calls` are those of the held-out rows, to be run again."""

    vectors: Tensor
    owners: Tensor  # N, numbers of rows
    places: Tensor  # N, among the vectors of a row
    rows: Sequence[Shown]
    held: int  # vectors of held-out rows
    calls: Sequence[Call]

    @property
    def learned(self) -> Tensor:
        return self.vectors[: len(self.vectors) - self.held]

    @property
    def kept(self) -> Tensor:
        """Those that are held out."""
        return self.vectors[len(self.vectors) - self.held :]


@dataclass(eq=False)
class Side:
    """What was gathered so far of rows to learn from, or of rows that are held out."""

    vectors: list[Tensor]
    owners: list[Tensor]
    places: list[Tensor]

    @property
    def count(self) -> int:
        return sum(map(len, self.vectors))


def gather(model: nn.Module, site: str, asker: Asker, most: int) -> Gathered:
    """About `most` vectors of a site, or all that the data has."""
    learn, held = Side([], [], []), Side([], [], [])
    rows, calls = list[Shown](), list[Call]()
    for portion in portions(drawn(asker.samples(), AHEAD * most)):
        for some in alike(one for at, one in enumerate(portion) if not is_held(at, portion)):
            add(learn, asker.call(some, site), model, site, rows)
        for some in alike(one for at, one in enumerate(portion) if is_held(at, portion)):
            calls.append(asker.call(some, site))
            add(held, calls[-1], model, site, rows)
        if learn.count + held.count >= most:
            break
    if not (learn.count and held.count):
        said = "the data is a single row, and one to learn from and one to measure on are needed"
        raise UserError(said, do="give more data")
    parts = [torch.cat([*getattr(learn, name), *getattr(held, name)]) for name in ("vectors", "owners", "places")]
    return Gathered(parts[0], parts[1], parts[2], rows, held.count, calls)


def drawn(samples: Iterator[Sample], tokens: int) -> Iterator[Sample]:
    """The first rows of about so many tokens, in an order by chance that is always the same."""
    pool = list[Sample]()
    for sample in samples:
        pool.append(sample)
        tokens -= sample.size
        if tokens <= 0:
            break
    return (pool[at] for at in shuffled(len(pool), "gathered").tolist())


def portions(samples: Iterator[Sample]) -> Iterator[list[Sample]]:
    """Rows in order, some thousands of tokens at a time; more than one row wherever there is more than one."""
    while some := list(islice(samples, LEAST)):
        room = PORTION - sum(sample.size for sample in some)
        while room > 0 and (more := next(samples, None)) is not None:
            some.append(more)
            room -= more.size
        yield some


def is_held(at: int, portion: Sequence[Sample]) -> bool:
    """The last of every ten; of fewer the last, if there are two."""
    return at % EVERY == EVERY - 1 or (1 < len(portion) < EVERY and at == len(portion) - 1)


@torch.no_grad()
def add(side: Side, call: Call, model: nn.Module, site: str, rows: list[Shown]) -> None:
    """Runs a call and keeps what the site shows; one that is called several times shows several vectors of a token."""
    with record(model, site) as trace:
        call.run()
    for value in trace.all(site):
        found = vectors(site, value).float()
        each = len(found) // len(call.rows)
        if each * len(call.rows) != len(found):
            raise UserError(f"{site!r} shows {len(found)} vectors of {len(call.rows)} rows", do="choose another --site")
        side.vectors.append(found)
        side.owners.append(len(rows) + torch.arange(len(call.rows)).repeat_interleave(each))
        side.places.append(torch.arange(each).repeat(len(call.rows)))
    rows += call.rows
