"""Data as calls of a model, a few rows at a time, with the loss of each where the model is for something.

The rows of a call are equally long.  So nothing is padded or packed, every site shows real tokens only, and these come
row by row.

Axes:  B rows of a call   T tokens
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from headway.answer import PLAIN, Speaker
from headway.app.inspect.handed import Handed
from headway.app.inspect.importance import task_for
from headway.app.inspect.reading import Reader, samples_in
from headway.app.perplexity import Probe, causal_probe, masked_probe, read, span_probe
from headway.app.purpose import Data, check_labels, context_for
from headway.app.training.ready import begin_of
from headway.app.training.words import marks_of
from headway.checkpoint import Loaded
from headway.data.archives import Place
from headway.data.batched import batched
from headway.data.keyed import random_for
from headway.data.tokenizer import Tokenizer
from headway.errors import UserError
from headway.observer import Observer
from headway.tasks.causal import Causal
from headway.tasks.labels import Labels, Tags
from headway.tasks.masked import Masked
from headway.tasks.pairs import PairBatch
from headway.tasks.sensed import SensedBatch, SensedLabels
from headway.tasks.spans import Spans
from headway.tasks.task import RecordTask, ids, some

TOKENS = 4096  # of a call, at most
ROWS = 64  # of a call, at most
IMAGE = 64  # tokens, more or less, of a sample whose tokens are not counted
MANY = 256  # records that are encoded before the next are read


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


class Asker(Protocol):
    """How a model is asked about data.  `why` tells what that is, `target` what a loss is the loss of."""

    @property
    def why(self) -> str: ...

    @property
    def target(self) -> str | None: ...

    def samples(self) -> Iterator[Sample]: ...

    def call(self, samples: Sequence[Sample], site: str) -> Call:
        """Rows with the same key, with the tokens that a site has vectors for."""
        ...


def asker_for(loaded: Loaded, handed: Handed, folder: Path) -> Asker:
    """The way to ask the model in a folder about data: for its loss if it has one, else for what it reads alone."""
    answerer = loaded.answerer()
    says = isinstance(answerer, Speaker) and answerer.way() != answerer.embed_each
    if says or (isinstance(answerer, Observer) and answerer.way() == answerer.classify):
        _, data = handed.fitted(loaded, folder)
        return asked(loaded, data)
    if len(handed.paths) != 1:
        said = f"{len(handed.paths)} files or folders"
        raise UserError(said, allowed="one, for a model that gives vectors or transcripts")
    return ReadAlone(Reader.of(loaded), handed.paths[0])


def asked(loaded: Loaded, data: Data) -> Asker:
    task = task_for(loaded, data)
    if task is None:
        return AskedOfTexts(loaded, probe_for(loaded), data)
    return AskedOfRecords(loaded, task, data)


def probe_for(loaded: Loaded) -> Probe:
    """How a model of texts is asked, as `headway eval` asks it."""
    speaker, context = loaded.speaker(), context_for(loaded)
    if speaker.way() == speaker.go_on:
        return causal_probe(
            Causal(speaker.tokenizer), context, some(speaker.start()), list(speaker.stop(PLAIN).tokens[:1])
        )
    if speaker.way() == speaker.fill:
        return masked_probe(Masked(speaker.tokenizer), context)
    begin = begin_of(loaded, speaker.words)
    return span_probe(Spans(speaker.tokenizer, begin, marks_of(speaker.tokenizer)), context)


@dataclass(frozen=True, eq=False)
class AskedOfTexts:
    """Windows of texts, of which words are to be said."""

    loaded: Loaded
    probe: Probe
    data: Data
    target: str | None = "token"

    @property
    def why(self) -> str:
        return self.data.why

    def samples(self) -> Iterator[Sample]:
        for row in read(self.probe, self.data.read(), []):
            if len(row.ids) > 1:  # one token alone says nothing
                yield Sample((len(row.ids),), len(row.ids), row.ids, "")

    def call(self, samples: Sequence[Sample], site: str) -> Call:
        batch = self.probe.ask([sample.row for sample in samples]).batch
        return scored(self.loaded, self.probe.task, batch, samples, site)


@dataclass(frozen=True, eq=False)
class AskedOfRecords:
    """Records, of which targets or classes are to be said."""

    loaded: Loaded
    task: RecordTask
    data: Data

    @property
    def why(self) -> str:
        return self.data.why

    @property
    def target(self) -> str | None:
        named: dict[type, str] = {Labels: "text", Tags: "word", SensedLabels: "sample"}
        return named.get(type(self.task), "token")

    def samples(self) -> Iterator[Sample]:
        sensed = isinstance(self.task, SensedLabels)
        for part in batched(self.data.read(), MANY):
            if isinstance(self.task, Labels | Tags | SensedLabels):
                check_labels(self.data.kind, part, self.task.labels)
            for record, row in zip(part, self.task.encode([record.handed for record in part]), strict=True):
                # of a sample that is opened later its size is known, and where it is says nothing
                key = (row[1][0],) if sensed else tuple(map(len, row))
                name = f"{record.fields[1]}: {Path(record.name).name}" if record.place else record.name
                yield Sample(key, sum(key) if key != (1,) else IMAGE, tuple(map(ids, row)), name)

    def call(self, samples: Sequence[Sample], site: str) -> Call:
        batch = self.task.collate([sample.row for sample in samples], random_for("unused"))
        return scored(self.loaded, self.task, batch, samples, site)


@dataclass(frozen=True, eq=False)
class ReadAlone:
    """Samples that a model reads and says nothing of that could be right or wrong."""

    reader: Reader
    path: Path
    target: str | None = None

    @property
    def why(self) -> str:
        return str(self.path)

    def samples(self) -> Iterator[Sample]:
        for at, told in enumerate(self.reader.opened(samples_in(self.path))):
            # images are of one size; of others none is padded where each is read alone
            name = told if self.reader.noun in ("texts", "numbers") else Place.parsed(told).path.name
            yield Sample((0 if self.reader.noun == "images" else at,), IMAGE, told, name)

    def call(self, samples: Sequence[Sample], site: str) -> Call:
        read = self.reader.read([sample.row for sample in samples])

        def run() -> float:
            self.reader.trunk.features(*read)
            return 0.0

        answerer = self.reader.answerer
        rows = read.inputs.tolist() if isinstance(answerer, Speaker) else [[]] * len(samples)
        words = answerer.tokenizer if isinstance(answerer, Speaker) else None
        return Call(run, 0, [Shown(one.name, tuple(row), words) for one, row in zip(samples, rows, strict=True)])


def scored(loaded: Loaded, task: Any, batch: Any, samples: Sequence[Sample], site: str) -> Call:
    def run() -> float:
        return float(task.loss(loaded.model, batch))

    tokens, words = read_at(batch, site), None if isinstance(batch, SensedBatch) else loaded.tokenizer
    if isinstance(batch, PairBatch) and of_decoder(site):
        words = loaded.writer or loaded.tokenizer
    rows = [()] * len(samples) if tokens is None else [tuple(row) for row in tokens.tolist()]
    return Call(run, batch.targets, [Shown(one.name, row, words) for one, row in zip(samples, rows, strict=True)])


def read_at(batch: Any, site: str) -> Tensor | None:
    """The tokens that go by a site, B T."""
    if isinstance(batch, SensedBatch):
        return None
    if isinstance(batch, PairBatch):
        return batch.read.ids if of_decoder(site) else batch.source.ids
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
