"""A trained model, measured once more and on more: scores also by length, answers, and what it looked at for some."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from headway.answer import Wish
from headway.app.report.figures import Curve, Point
from headway.app.report.final_texts import of_texts
from headway.app.report.glimpses import looked_at, places_seen
from headway.app.report.pictures import Picture, hidden_pictures
from headway.app.report.sight import (
    FEW,
    NOTHING,
    PIECES,
    SIGHTS,
    Example,
    Sights,
    alignments,
    ribbons,
    self_maps,
    titled,
    within,
)
from headway.app.training.exams import Asked, way_of
from headway.app.training.measure import held_loss, pair_scores, written
from headway.app.training.measure_rows import row_told
from headway.app.training.plan import Plan
from headway.data.dates import Part
from headway.data.embedded import date_records
from headway.data.sources import Record
from headway.nn.model import EncoderDecoder, Trunk
from headway.tasks.described import Captions
from headway.tasks.forecast import Forecasting
from headway.tasks.hidden import HiddenPatches
from headway.tasks.labels import Labels, Tags
from headway.tasks.matches import Matches
from headway.tasks.pairs import Pairs
from headway.tasks.scores import Scores
from headway.tasks.sensed import SensedLabels
from headway.tasks.views import TwoViews
from headway.train.loop import End, Sample

ROWS = 150  # of a table that are drawn, the last ones that were held out
WITHIN_ROWS = (
    "Rows are the last rows that were held out, columns those that each of them looks back at, in the last layer."
)
RECORDS = 1000  # held-out records that are answered
UNSEEN = 500  # dates in ways of writing that training has not seen


@dataclass(frozen=True)
class Final:
    """What was found.  `unseen` are scores on what is unlike anything in training, where the data knows such."""

    scores: Scores | None = None
    samples: tuple[Sample, ...] = ()
    sights: Sights = NOTHING
    unseen: Scores | None = None
    pictures: tuple[Picture, ...] = ()
    series: Mapping[str, Sequence[Curve]] = field(default_factory=dict[str, Sequence[Curve]])  # by column, over rows


def measured(made: Plan, end: End, model: nn.Module) -> Final:
    """The last word on a model; nothing, where nothing was held out."""
    model.eval()
    task = made.ready.task
    if not made.prepared.held:
        return Final()
    if isinstance(task, HiddenPatches | TwoViews):
        return of_nameless(made, task, model)
    way = way_of(task)
    if way is None:
        scores, samples, sights = of_texts(task, made.prepared.held, model)
        return Final(scores, tuple(samples), sights)
    asked = Asked(made, model, made.material.some_held(RECORDS))
    samples = told_already(end, asked.records) or way.answer(asked)
    draw = DRAWN.get(type(task))
    sights = NOTHING if draw is None else draw(asked, samples)
    series = columns_drawn(asked) if isinstance(task, Forecasting) else {}
    return Final(way.score(asked, samples), tuple(samples), sights, unseen_dates(asked), series=series)


def told_already(end: End, records: Sequence[Record]) -> list[Sample]:
    """The answers of the run's last evaluation, where it asked for all of these."""
    found = [] if end.found is None else list(end.found.samples)
    return found if len(found) == len(records) else []


def unseen_dates(asked: Asked) -> Scores | None:
    """On dates in pairs of a language and a pattern that training has not seen, where it has seen dates."""
    if not asked.made.material.embedded:
        return None
    records = list(date_records(asked.made.recipe.seed, UNSEEN, Part.UNSEEN))
    return pair_scores(written(asked.speaker, records, Wish()), asked.by)


def of_nameless(made: Plan, task: HiddenPatches | TwoViews, model: nn.Module) -> Final:
    """The loss on images without classes, where some are looked at and, if parts are hidden, what is said of these."""
    held = made.prepared.held
    scores = Scores({"loss": held_loss(task.measured(), model, held)}, sum(one.targets for one in held), "images")
    records = made.material.some_held(SIGHTS)
    drawn = hidden_pictures(task.measured(), model, records) if isinstance(task, HiddenPatches) else ()
    sights = places_seen(Asked(made, model, records).observer, [(record.name, record.name) for record in records])
    return Final(scores, sights=sights, pictures=tuple(drawn))


def aligned(asked: Asked, samples: Sequence[Sample]) -> Sights:
    task, speaker = asked.task, asked.speaker
    assert isinstance(task, Pairs)
    assert isinstance(speaker.model, EncoderDecoder)
    chosen = [samples[at] for at in few(samples, lambda sample: len(task.reader.encode(sample.source)) <= PIECES)]
    if not chosen:
        return NOTHING
    answers = speaker.answer([sample.source for sample in chosen], Wish(most=2 * PIECES))
    rows = task.encode([(sample.source, sample.wanted) for sample in chosen])
    examples = [
        Example(tuple(row[0]), tuple(answer["tokens"]), task.begin, titled(sample))
        for row, answer, sample in zip(rows, answers, chosen, strict=True)
    ]
    return alignments(speaker.model, examples, task.reader, task.writer)


def read_texts(asked: Asked, samples: Sequence[Sample]) -> Sights:
    """Of texts that have a class what it was read from; of words that have, which of them look at which."""
    task, model = asked.task, asked.model
    assert isinstance(task, Labels | Tags)
    assert isinstance(model, Trunk)
    chosen = few(samples)
    rows = task.encode([asked.records[at].handed for at in chosen])
    examples = [Example(tuple(row[0]), title=titled(samples[at])) for at, row in zip(chosen, rows, strict=True)]
    one = isinstance(task, Labels)
    return ribbons(model, examples, task.words) if one else self_maps(model, examples[0], task.words)


def captioned(asked: Asked, samples: Sequence[Sample]) -> Sights:
    return looked_at(asked.observer, asked.records[:SIGHTS])


def pictured(asked: Asked, samples: Sequence[Sample]) -> Sights:
    """Images that have a class, or a text that is nearest."""
    return places_seen(asked.observer, [(samples[at].source, titled(samples[at])) for at in few(samples)])


def rows_read(asked: Asked, samples: Sequence[Sample]) -> Sights:
    """The last rows that were held out."""
    task, model = asked.task, asked.model
    assert isinstance(task, Forecasting)
    assert isinstance(model, Trunk)
    rows = asked.made.prepared.held[-1].read.inputs[-1, -FEW:]  # T F
    return within(model, rows[None], [row_told(task, row) for row in rows], WITHIN_ROWS)


def columns_drawn(asked: Asked) -> dict[str, Sequence[Curve]]:
    """What came in each column, and what was expected one row before."""
    task, found = asked.task, asked.foreseen[-ROWS:]
    assert isinstance(task, Forecasting)
    sides = {"came": [one.came for one in found], "expected": [one.expected for one in found]}
    values = {name: task.sense.unscaled(torch.stack(rows)).T.tolist() for name, rows in sides.items()}  # each F M
    return {
        str(column): [
            Curve(name, [Point(row + 1, x) for row, x in enumerate(rows[at])]) for name, rows in values.items()
        ]
        for at, column in enumerate(task.names)
    }


DRAWN: dict[type, Callable[[Asked, Sequence[Sample]], Sights]] = {  # what a model looked at, for some records
    Pairs: aligned,
    Labels: read_texts,
    Tags: read_texts,
    SensedLabels: pictured,
    Forecasting: rows_read,
    Captions: captioned,
    Matches: pictured,
}


def few(samples: Sequence[Sample], suited: Callable[[Sample], bool] = lambda sample: True) -> list[int]:
    """The places of a few samples: right ones, and one that is wrong, as far as there are any."""
    places = [at for at, sample in enumerate(samples) if suited(sample)] or list(range(len(samples)))
    right = [at for at in places if samples[at].answer == samples[at].wanted]
    wrong = [at for at in places if samples[at].answer != samples[at].wanted]
    return (right[: SIGHTS - 1] + wrong)[:SIGHTS] if wrong else right[:SIGHTS]
