"""How a model is asked what it has learned, by its task: at each evaluation of a run and, on more records, at its end.

Axes:  N images   M texts
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from torch import Tensor, nn

from headway.answer import Speaker, Wish
from headway.app.training.assemble import loaded_of
from headway.app.training.measure import (
    Answering,
    Examiner,
    Naming,
    measures_for,
    named,
    spoken_scores,
    written,
    written_of,
)
from headway.app.training.measure_described import caption_scores, compared, nearest_texts, retrieval_scores
from headway.app.training.measure_rows import Foreseen, expected, foreseen, row_scores
from headway.app.training.plan import Plan
from headway.checkpoint import Loaded
from headway.data.drawn import drawn
from headway.data.sources import Record
from headway.observer import Observer
from headway.tasks.buckets import quantile_edges
from headway.tasks.described import Captions
from headway.tasks.forecast import Forecasting
from headway.tasks.labels import Labels, Tags
from headway.tasks.matches import Matches
from headway.tasks.pairs import Pairs
from headway.tasks.scores import Scores
from headway.tasks.scoring import score_classes, score_pairs, score_tags
from headway.tasks.sensed import SensedLabels
from headway.tasks.senses import Sight
from headway.tasks.spoken import Spoken
from headway.tasks.task import Task
from headway.train.loop import Sample

ANSWERS = 200  # held-out records that are answered at each evaluation
NAMED = 2000  # where an answer is a class: that takes no longer than the loss, and few would choose a model by chance


def examiner_of(made: Plan) -> Examiner | None:
    """What scores the model as it trains, where something is held out."""
    if not made.prepared.held:
        return None
    task = made.ready.task.measured()
    way = way_of(made.ready.task)
    return Examiner(task, made.prepared.held, None if way is None else answering(made, way))


def answering(made: Plan, way: Way) -> Answering:
    """How the model is asked at each evaluation."""
    records = made.material.some_held(way.most)

    def answers(model: nn.Module) -> tuple[Scores, list[Sample]]:
        asked = Asked(made, model, records)
        samples = way.answer(asked)
        return way.score(asked, samples), samples

    return answers


@dataclass(frozen=True, eq=False)
class Asked:
    """A model, and the records that it is asked about."""

    made: Plan
    model: nn.Module
    records: Sequence[Record]

    @property
    def task(self) -> Task:
        """The task as validation measures it."""
        return self.made.ready.task.measured()

    @property
    def by(self) -> tuple[str, ...]:
        """What written texts are measured by: the same at a run's evaluations and at its end."""
        return measures_for(drawn(self.records, ANSWERS))

    @cached_property
    def loaded(self) -> Loaded:
        return loaded_of(self.made, self.model)

    @property
    def speaker(self) -> Speaker:
        return self.loaded.speaker()

    @property
    def observer(self) -> Observer:
        return self.loaded.observer()

    @cached_property
    def foreseen(self) -> list[Foreseen]:
        """The rows that were held out, as a forecaster expects them."""
        return foreseen(self.model, self.made.prepared.held)

    @cached_property
    def near(self) -> Tensor:
        """How near each image is to each text, N M; answers and scores are both read off it."""
        return compared(self.observer, self.records)


class Way(NamedTuple):
    """What a model says to each record, and what these answers are worth."""

    answer: Callable[[Asked], list[Sample]]
    score: Callable[[Asked, Sequence[Sample]], Scores]
    most: int = ANSWERS


def way_of(task: Task) -> Way | None:
    """How a model of this task is asked; None where it has a probability for everything and says nothing."""
    if isinstance(task, Captions) and not isinstance(task.sense, Sight):
        return WAYS[Spoken]  # what is written about a sound is its transcript
    return WAYS.get(type(task))


def write(asked: Asked) -> list[Sample]:
    return written(asked.speaker, asked.records, Wish())


def score_texts(asked: Asked, samples: Sequence[Sample]) -> Scores:
    """Also by how many pieces of a source the model reads."""
    task = asked.task
    assert isinstance(task, Pairs)
    lengths = [len(row) for row in task.reader.encode_batch([sample.source for sample in samples])]
    return score_pairs(*sides(samples), lengths, by=asked.by, edges=shares(lengths))


def name(asked: Asked) -> list[Sample]:
    task = asked.task
    assert isinstance(task, Naming)
    return named(task, asked.model, asked.records)


def score_names(asked: Asked, samples: Sequence[Sample]) -> Scores:
    """Of texts or of their words, also by how many pieces of a text the model reads."""
    task = asked.task
    assert isinstance(task, Labels | Tags)
    lengths = [len(row) for row in task.words.encode_batch([sample.source for sample in samples])]
    score = score_tags if isinstance(task, Tags) else score_classes
    return score(*sides(samples), lengths, edges=shares(lengths))


def score_sensed(asked: Asked, samples: Sequence[Sample]) -> Scores:
    unit = asked.made.prepared.unit
    return replace(score_classes(*sides(samples)), things=unit if unit == "images" else "samples")


def tell(asked: Asked) -> list[Sample]:
    return written_of(asked.observer, asked.records, Wish())


def score_spoken(asked: Asked, samples: Sequence[Sample]) -> Scores:
    return spoken_scores(samples)


def score_captions(asked: Asked, samples: Sequence[Sample]) -> Scores:
    return caption_scores(samples, asked.records)


def match(asked: Asked) -> list[Sample]:
    return nearest_texts(asked.near, asked.records)


def score_matches(asked: Asked, samples: Sequence[Sample]) -> Scores:
    return retrieval_scores(asked.near, asked.records)


def expect(asked: Asked) -> list[Sample]:
    task = asked.task
    assert isinstance(task, Forecasting)
    return expected(task, asked.foreseen[:: -(-len(asked.foreseen) // ANSWERS)])


def score_rows(asked: Asked, samples: Sequence[Sample]) -> Scores:
    return row_scores(asked.foreseen)


WAYS: dict[type, Way] = {
    Pairs: Way(write, score_texts),
    Labels: Way(name, score_names, NAMED),
    Tags: Way(name, score_names, NAMED),
    SensedLabels: Way(name, score_sensed, NAMED),
    Forecasting: Way(expect, score_rows),
    Spoken: Way(tell, score_spoken),
    Captions: Way(tell, score_captions),
    Matches: Way(match, score_matches),
}


def sides(samples: Sequence[Sample]) -> tuple[list[str], list[str]]:
    """What was answered, and what was wanted."""
    return [sample.answer for sample in samples], [sample.wanted for sample in samples]


def shares(lengths: Sequence[int]) -> tuple[int, ...]:
    """Edges of lengths between which there are about equally many; one edge where all are equally long."""
    return tuple(edge for edge in quantile_edges(lengths) if edge < max(lengths)) or (max(lengths),)
