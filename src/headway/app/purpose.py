"""What a model is for, the data that shows how well it does that, and the numbers that say it.

An encoder–decoder is measured by what it writes, a classifier and a tagger by what they name, a language model by how
well it foresees texts.  Records are read as a stream; what is kept of each is the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from headway.answer import Answer, Speaker, Wish
from headway.app import asking
from headway.app.perplexity import Probe, text_scores
from headway.app.training.measure import (
    Ranked,
    measures_for,
    name_scores,
    named,
    pair_scores,
    ranked,
    ranked_scores,
    spoken_scores,
    written,
    written_of,
)
from headway.app.training.measure_described import by_chance, caption_scores, compared, retrieval_scores
from headway.app.training.measure_rows import by_column, column_table, foreseen, row_scores
from headway.app.training.words import marks_of
from headway.checkpoint import Loaded
from headway.data.batched import batched
from headway.data.kinds import Kind
from headway.data.numbers import vectors
from headway.data.records import by_document
from headway.data.sources import Record, counted
from headway.errors import UserError, listed, nearest
from headway.generate.feed import context_of
from headway.nn.model import EncoderDecoder
from headway.nn.towers import TwoTowers
from headway.observer import Listener, Observer
from headway.tasks.forecast import Forecasting
from headway.tasks.labels import Labels, Tags
from headway.tasks.masked import Masked
from headway.tasks.scores import Scores
from headway.tasks.sensed import SensedLabels
from headway.tasks.senses import Hearing, Sight, Vectors
from headway.tasks.task import RecordTask

MANY = 1000  # records that are answered before the next are read


@dataclass(frozen=True)
class Measured:
    """Scores, with what else there is to say: `notes` for people, `told` for programs."""

    scores: Scores
    notes: tuple[str, ...] = ()
    told: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Data:
    """What to measure on; `unseen` are dates in ways of writing that training has not seen."""

    kind: Kind
    why: str
    read: Callable[[], Iterator[Record]]
    unseen: Callable[[], Iterator[Record]] | None = None


@dataclass(frozen=True)
class Purpose:
    """What a model does, the data that shows how well, and how that is measured.

    Where its answers have a loss, it is asked for them record by record by a `task`, or of texts by a `probe`.
    """

    does: str
    kind: Kind
    measure: Callable[[Loaded, Data, Wish], Measured]
    task: Callable[[Loaded], RecordTask] | None = None
    probe: Callable[[Loaded], Probe] | None = None

    @property
    def writes(self) -> bool:
        """Whether it makes a difference how it writes: with beams or without."""
        return self.measure in (measure_pairs, measure_captions, measure_speech)


def purpose_for(loaded: Loaded, kind: Kind, folder: Path) -> Purpose:
    """What the model in a folder is for; some encoder–decoders are for pairs and for texts, so the data decides."""
    answerer = loaded.answerer()
    match answerer:
        case Speaker():
            return heard(answerer, kind, folder)
        case Observer():
            return observed(answerer, kind, folder)
        case Listener():
            return TRANSCRIBES


def observed(observer: Observer, kind: Kind, folder: Path) -> Purpose:
    """What a model of images, sounds or numbers is for."""
    if observer.way() == observer.transcribe:
        return TRANSCRIBES
    if observer.way() == observer.write:
        return DESCRIBES if isinstance(observer.sense, Sight) else TRANSCRIBES
    if observer.way() == observer.foresee:
        return FORESEES
    if isinstance(observer.model, TwoTowers):
        return FINDS
    if observer.way() != observer.classify:
        raise UserError(f"the model in {folder} gives vectors, which no data can be compared with", do="train a head")
    kinds = SENSED[type(observer.sense)]
    chosen = kind if kind in kinds else next(iter(kinds))
    return Purpose(f"names the class of {kinds[chosen]}", chosen, measure_sensed, asking.sensed)


def heard(speaker: Speaker, kind: Kind, folder: Path) -> Purpose:
    purposes: dict[Callable[[list[str], Wish], list[Answer]], Purpose] = {
        speaker.write: WRITES,
        speaker.classify: NAMES,
        speaker.tag: TAGS,
        speaker.go_on: CONTINUES,
        speaker.fill: FILLS,
    }
    found = purposes.get(speaker.way())
    if found is None:
        raise UserError(f"the model in {folder} gives vectors, which no data can be compared with", do="train a head")
    return RESTORES if found is WRITES and kind is Kind.TEXTS and marks_of(speaker.tokenizer) else found


def measure_pairs(loaded: Loaded, data: Data, wish: Wish) -> Measured:
    speaker = loaded.speaker()
    by = measures_for(data.read())

    def scored(read: Callable[[], Iterator[Record]]) -> Scores:
        parts = batched(read(), MANY)
        return pair_scores(chain.from_iterable(written(speaker, readable(speaker, part), wish) for part in parts), by)

    scores = scored(data.read)
    if data.unseen is None:
        return Measured(scores)
    other = scored(data.unseen)
    note = f"in ways of writing never seen in training: {100 * other.numbers['exact']:.2f} % exact of {other.count:,}"
    return Measured(scores, (note,), {"unseen": other.plain()})


def readable(speaker: Speaker, part: list[Record]) -> list[Record]:
    """Records whose sources the model has positions for; a cut source could not be translated whole."""
    assert isinstance(speaker.model, EncoderDecoder)
    context = context_of(speaker.model.encoder)
    if context is not None:
        for record, row in zip(part, speaker.sources([record.fields[0] for record in part]), strict=True):
            if len(row) > context:
                said = (
                    f"{record.file}:{record.line}: the source has {len(row):,} tokens and the model reads {context:,}"
                )
                raise UserError(said, do="shorten it, or leave it out")
    return part


def measure_names(loaded: Loaded, data: Data, wish: Wish) -> Measured:
    """Classes of texts or words; what is longer than the model can read is cut, as it is in training."""
    task = asking.labels(loaded) if data.kind is Kind.LABELS else asking.tags(loaded)
    long = 0

    def answered() -> Iterator[Any]:
        nonlocal long
        for part in batched(data.read(), MANY):
            check_labels(task, part)
            rows = task.words.encode_batch([record.fields[0] for record in part])
            long += sum(len(row) > task.longest for row in rows)
            yield from named(task, loaded.model, part)

    scores = name_scores(task, answered())
    note = f"{counted(long, 'text')} of more than {task.longest:,} tokens cut to that"
    return Measured(scores, (note,) if long else (), {"cut": long})


def measure_sensed(loaded: Loaded, data: Data, wish: Wish) -> Measured:
    """Classes of images, sounds or numbers."""
    task = asking.sensed(loaded)

    def answered() -> Iterator[Ranked]:
        for part in batched(data.read(), MANY):
            check_labels(task, part)
            yield from ranked(task, loaded.model, part)

    return Measured(ranked_scores(answered(), len(task.labels)))


def measure_speech(loaded: Loaded, data: Data, wish: Wish) -> Measured:
    parts = batched(data.read(), MANY)
    return Measured(spoken_scores([one for part in parts for one in written_of(loaded.answerer(), part, wish)]))


def measure_captions(loaded: Loaded, data: Data, wish: Wish) -> Measured:
    observer, records = loaded.observer(), list(data.read())
    parts = batched(records, MANY)
    samples = [one for part in parts for one in written_of(observer, part, wish)]
    return Measured(caption_scores(samples, records))


def measure_matches(loaded: Loaded, data: Data, wish: Wish) -> Measured:
    """All images among all texts, so that more data is a harder task."""
    records = list(data.read())
    return Measured(
        retrieval_scores(compared(loaded.observer(), records), records), told={"chance": by_chance(records)}
    )


def measure_rows(loaded: Loaded, data: Data, wish: Wish) -> Measured:
    """Tables of numbers, each from its second row on."""
    task = asking.rows(loaded)
    tables = map(";".join, by_document(checked_rows(task, data)))
    found = foreseen(loaded.model, (task.batch([(vectors(text), 0)]) for text in tables))
    return Measured(row_scores(found), (column_table(task, found),), {"columns": by_column(task, found)})


def checked_rows(task: Forecasting, data: Data) -> Iterator[Record]:
    """Rows of as many numbers as the model reads."""
    for record in data.read():
        width = len(record.fields[0].split())
        if width != task.columns:
            said = f"{record.file} has {counted(width, 'column')} of numbers, and the model foresees {task.columns}"
            raise UserError(said, do=f"choose them, as in --columns {','.join(map(str, task.names))}")
        yield record


def check_labels(task: RecordTask, part: Sequence[Record]) -> None:
    """Records of classes have only those of the task; other tasks have none."""
    if not isinstance(task, Labels | Tags | SensedLabels):
        return
    for record in part:
        for label in record.fields[1].split() if isinstance(task, Tags) else record.fields[1:]:
            if label not in task.labels:
                said = f"{record.file}:{record.line}: {label[:60]!r} is none of the model's {len(task.labels)} classes"
                raise UserError(said, allowed=listed(task.labels), meant=nearest(label, task.labels))


def measure_causal(loaded: Loaded, data: Data, wish: Wish) -> Measured:
    probe = asking.causal(loaded)
    return Measured(
        text_scores(probe, loaded.model, data.read()), told={"objective": "causal", "window": probe.size - 1}
    )


def measure_masked(loaded: Loaded, data: Data, wish: Wish) -> Measured:
    probe = asking.masked(loaded)
    assert isinstance(probe.task, Masked)
    note = f"of {probe.task.share:.0%} of the words, which were masked"
    scores = text_scores(probe, loaded.model, data.read())
    return Measured(scores, (note,), {"objective": "masked", "window": probe.size})


def measure_spans(loaded: Loaded, data: Data, wish: Wish) -> Measured:
    probe = asking.spans(loaded)
    scores = text_scores(probe, loaded.model, data.read())
    return Measured(scores, ("of spans that were taken out of the texts",), {"objective": "span", "window": probe.size})


SENSED: dict[type, dict[Kind, str]] = {  # what a sense is for
    Sight: {Kind.IMAGES: "an image"},
    Hearing: {Kind.SOUNDS: "a sound"},
    Vectors: {Kind.SERIES: "a series", Kind.SETS: "a set"},
}
TRANSCRIBES = Purpose("writes what is said in a sound", Kind.SPEECH, measure_speech)
DESCRIBES = Purpose("writes what is on an image", Kind.CAPTIONS, measure_captions)
FORESEES = Purpose("foresees the next row of a table", Kind.FORECAST, measure_rows)
FINDS = Purpose("finds the texts that belong to an image", Kind.CAPTIONS, measure_matches)
WRITES = Purpose("writes a text from a text", Kind.PAIRS, measure_pairs, asking.pairs)
NAMES = Purpose("names the class of a text", Kind.LABELS, measure_names, asking.labels)
TAGS = Purpose("names the class of each word", Kind.TAGS, measure_names, asking.tags)
CONTINUES = Purpose("continues texts", Kind.TEXTS, measure_causal, probe=asking.causal)
FILLS = Purpose("fills masks in texts", Kind.TEXTS, measure_masked, probe=asking.masked)
RESTORES = Purpose("writes what was taken out of texts", Kind.TEXTS, measure_spans, probe=asking.spans)
