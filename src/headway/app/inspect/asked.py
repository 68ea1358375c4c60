"""How a model is asked about data whose right answers are known: its loss says how well it does.

Texts are cut into windows, of which words are to be said; records have targets, classes or texts.

Axes:  B rows of a call   T tokens
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from headway.app.inspect.calls import Call, Informed, Sample, Uninformed, scored
from headway.app.inspect.reading import Reader, samples_in
from headway.app.perplexity import Probe, read
from headway.app.purpose import check_labels
from headway.checkpoint import Loaded
from headway.data.archives import Place
from headway.data.batched import batched
from headway.data.keyed import random_for
from headway.data.sources import Record
from headway.nn.frames import Shortening
from headway.observer import encoder_of
from headway.tasks.described import Captions
from headway.tasks.hidden import HiddenPatches
from headway.tasks.labels import Labels, Tags
from headway.tasks.pairs import Pairs
from headway.tasks.sensed import SensedLabels
from headway.tasks.senses import Sight, kept
from headway.tasks.spoken import Spoken
from headway.tasks.task import RecordTask, ids

IMAGE = 64  # tokens, more or less, of a sample whose tokens are not counted
MANY = 256  # records that are encoded before the next are read


@dataclass(frozen=True, eq=False)
class AskedOfTexts(Informed):
    """Windows of texts, of which words are to be said."""

    loaded: Loaded
    probe: Probe

    @property
    def target(self) -> str:
        return "token"

    def samples(self) -> Iterator[Sample]:
        for row in read(self.probe, self.data.read(), []):
            if len(row.ids) > 1:  # one token alone says nothing
                yield Sample((len(row.ids),), len(row.ids), row.ids, "")

    def call(self, samples: Sequence[Sample], site: str) -> Call:
        batch = self.probe.ask([sample.row for sample in samples]).batch
        return scored(self.loaded, self.probe.task, batch, samples, site)


Learned = TypeVar("Learned", bound=RecordTask)
TARGETS: dict[type[RecordTask], str] = {
    Pairs: "token",
    Labels: "text",
    Tags: "word",
    SensedLabels: "sample",
    Spoken: "symbol",
    Captions: "token",
}


@dataclass(frozen=True, eq=False)
class AskedByTask(Informed, Generic[Learned]):
    """Records, by the task that the model was trained for."""

    loaded: Loaded
    task: Learned

    @property
    def target(self) -> str:
        return TARGETS[type(self.task)]

    def call(self, samples: Sequence[Sample], site: str) -> Call:
        batch = self.task.collate([sample.row for sample in samples], random_for("unused"))
        return scored(self.loaded, self.task, batch, samples, site)


class AskedOfRecords(AskedByTask[Pairs | Labels | Tags]):
    """Texts, of which other texts or classes are to be said."""

    def samples(self) -> Iterator[Sample]:
        for part in batched(self.data.read(), MANY):
            check_labels(self.task, part)
            for record, row in zip(part, self.task.encode([record.handed for record in part]), strict=True):
                key = tuple(map(len, row))
                yield Sample(key, sum(key), tuple(map(ids, row)), record.name)


class AskedOfSamples(AskedByTask[SensedLabels | Spoken | Captions]):
    """Images, sounds or numbers, of which a class or a text is to be said; of several texts about one, the first."""

    def samples(self) -> Iterator[Sample]:
        known = set[str]()
        for part in batched(self.data.read(), MANY):
            check_labels(self.task, part)
            part = part if isinstance(self.task, SensedLabels) else list(once(part, known))
            for record, row in zip(part, self.task.encode([record.handed[:3] for record in part]), strict=True):
                yield self.sample(record, row)

    def sample(self, record: Record, row: list[list[int]]) -> Sample:
        """A row that is opened later: its size is known, and where it is says nothing."""
        size = row[1][0]
        text = len(row[2]) if isinstance(self.task, Captions) else 0
        name = record.name if record.place is None else Path(record.name).name
        name = f"{record.fields[1]}: {name}" if record.place and isinstance(self.task, SensedLabels) else name
        return Sample((size, text), self.tokens(size) + text, tuple(map(ids, row)), name)

    def tokens(self, size: int) -> int:
        """How many tokens a sample of this size becomes."""
        embed = encoder_of(self.loaded.model).embed
        if isinstance(self.task.sense, Sight):
            return IMAGE
        return max(1, embed.length(size)) if isinstance(embed, Shortening) else size


def once(records: Iterable[Record], known: set[str]) -> Iterator[Record]:
    """Records of samples that are not yet known: a batch opens each once, and every row is to have its own."""
    for record in records:
        if record.handed[0] not in known:
            known.add(record.handed[0])
            yield record


@dataclass(frozen=True, eq=False)
class AskedOfHidden(Uninformed):
    """Images, parts of which are hidden and to be said: always the same ones."""

    loaded: Loaded
    task: HiddenPatches

    @property
    def target(self) -> str:
        return "image"

    def samples(self) -> Iterator[Sample]:
        for told in Reader.of(self.loaded.observer()).opened(samples_in(self.path)):
            row = tuple(map(ids, kept(self.task.sense, told)))
            yield Sample((1,), IMAGE, row, Place.parsed(told).path.name)

    def call(self, samples: Sequence[Sample], site: str) -> Call:
        random = random_for("hidden", *(sample.name for sample in samples))
        batch = self.task.collate([sample.row for sample in samples], random)
        return scored(self.loaded, self.task, batch, samples, site)
