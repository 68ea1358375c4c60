"""Data as calls of a model, a few rows at a time, with the loss of each where the model is for something.

The rows of a call are equally long.  So nothing is padded or packed, every site shows real tokens only, and these come
row by row.

Axes:  B rows of a call   T tokens
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headway.app.purpose import Data
from headway.checkpoint import Loaded
from headway.data.batched import batched
from headway.data.tokenizer import Tokenizer
from headway.tasks.captioning import CaptionBatch
from headway.tasks.hidden import HiddenBatch
from headway.tasks.pairs import PairBatch
from headway.tasks.sensed import SensedBatch
from headway.tasks.spoken import SpokenBatch

TOKENS = 4096  # of a call, at most
ROWS = 64  # of a call, at most


class Sample(NamedTuple):
    """One row, `size` tokens long; those of a call have the same `key`.  `name` is what a person knows it by."""

    key: tuple[int, ...]
    size: int
    row: Any
    name: str


class Shown(NamedTuple):
    """What a person is shown of a row: its tokens, or where it has none its name."""

    name: str
    ids: tuple[int, ...] = ()
    words: Tokenizer | None = None


class Call(NamedTuple):
    """Some rows that a model reads together; `run` says the loss of all `targets`, where there is one."""

    run: Callable[[], float]
    targets: int
    rows: list[Shown]


class Asker(ABC):
    """How a model is asked about data.  `why` tells what that is, `target` what a loss is the loss of."""

    @property
    @abstractmethod
    def why(self) -> str: ...

    @property
    @abstractmethod
    def target(self) -> str | None: ...

    @abstractmethod
    def samples(self) -> Iterator[Sample]: ...

    @abstractmethod
    def call(self, samples: Sequence[Sample], site: str) -> Call:
        """Rows with the same key, with the tokens that a site has vectors for."""


@dataclass(frozen=True, eq=False)
class Informed(Asker):
    """Asks about data that says what is right."""

    data: Data

    @property
    def why(self) -> str:
        return self.data.why


@dataclass(frozen=True, eq=False)
class Uninformed(Asker):
    """Asks about samples of which nothing is said."""

    path: Path

    @property
    def why(self) -> str:
        return str(self.path)


def scored(loaded: Loaded, task: Any, batch: Any, samples: Sequence[Sample], site: str) -> Call:
    """A batch of a task as a call."""

    def run() -> float:
        return float(task.loss(loaded.model, batch))

    tokens, words = read_at(batch, site), (loaded.writer if of_decoder(site) else None) or loaded.tokenizer
    rows = [()] * len(samples) if tokens is None else [tuple(row) for row in tokens.tolist()]
    return Call(run, batch.targets, [Shown(one.name, row, words) for one, row in zip(samples, rows, strict=True)])


def read_at(batch: Any, site: str) -> Tensor | None:
    """The tokens that go by a site, B T; None where what goes by is no text."""
    match batch:
        case PairBatch():
            return batch.read.ids if of_decoder(site) else batch.source.ids
        case CaptionBatch():
            return batch.read.ids if of_decoder(site) else None
        case SensedBatch() | SpokenBatch() | HiddenBatch():
            return None
        case _:
            return batch.read.ids


def of_decoder(site: str) -> bool:
    return site.startswith("decoder.")


def alike(samples: Iterable[Sample]) -> Iterator[list[Sample]]:
    """Samples with the same key, as many as a call takes."""
    for _, same in groupby(sorted(samples, key=lambda sample: sample.key), lambda sample: sample.key):
        together = list(same)
        yield from batched(together, max(1, min(ROWS, TOKENS // max(1, together[0].size))))


@torch.inference_mode()
def mean_loss(calls: Sequence[Call]) -> float:
    """The loss of a target."""
    return sum(call.run() for call in calls) / max(1, sum(call.targets for call in calls))
