"""How good a model is: on the held-out part while it trains, and on any data afterwards (`headway eval`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import nn

from headway.answer import Speaker, Wish
from headway.data.batched import batched
from headway.data.keyed import random_for
from headway.data.sources import Record
from headway.observer import Listener, Observer
from headway.tasks.hidden import HiddenPatches
from headway.tasks.labels import Labels, Tags, likeliest
from headway.tasks.scores import MEASURES, Scores
from headway.tasks.scoring import score_classes, score_pairs, score_tags
from headway.tasks.sensed import SensedLabels
from headway.tasks.task import Task, ids
from headway.tasks.views import TwoViews
from headway.train.loop import Examined, Sample

TOGETHER = 64  # texts that are answered at a time
WORDY = 1.5  # words of a target on average; one of fewer is right or wrong, not more or less fluent
TOP = 5  # classes among which the right one may be
FEW = 4  # words of a source on average; of fewer its letters tell more
SIGNS, OFTEN = 300, 8  # a notation, such as phonemes, has at most so many signs, and each so often on average

Answering = Callable[[nn.Module], tuple[Scores, list[Sample]]]


@dataclass(frozen=True, eq=False)
class Examiner:
    """Scores a model in training: its loss on held-out batches, and where it writes or names, how well it does that."""

    task: Task
    held: Sequence[Any]
    answers: Answering | None = None

    def __call__(self, model: nn.Module) -> Examined:
        loss = held_loss(self.task, model, self.held)
        if isinstance(self.task, HiddenPatches | TwoViews):
            return Examined({"loss": loss}, -loss)
        if self.answers is None:
            return Examined({"loss": loss, "perplexity": perplexity(loss)}, -loss)
        if not math.isfinite(loss):  # who has lost its mind is not asked
            return Examined({"loss": loss}, -loss)
        scores, samples = self.answers(model)
        main = scores.numbers[scores.main]
        return Examined({"loss": loss, **scores.numbers}, main if MEASURES[scores.main].higher else -main, samples)


def perplexity(loss: float) -> float:
    return math.exp(min(loss, 700.0))


@torch.inference_mode()
def held_loss(task: Task, model: nn.Module, batches: Sequence[Any]) -> float:
    total = sum(task.loss(model, batch).item() for batch in batches)
    return total / max(1, sum(batch.targets for batch in batches))


def measures_for(records: Iterable[Record]) -> tuple[str, ...]:
    """What targets are measured by, the decisive one first."""
    count, words, signs = 0, 0, set[str]()
    for record in records:
        found = record.fields[1].split()
        count, words = count + 1, words + len(found)
        if len(signs) <= SIGNS:
            signs.update(found)
    if words <= WORDY * count:
        return ("exact", "character_error_rate")
    notation = len(signs) <= min(SIGNS, words / OFTEN)
    return ("word_error_rate", "exact") if notation else ("bleu", "chrf", "exact")


def written(speaker: Speaker, records: Sequence[Record], wish: Wish) -> list[Sample]:
    """What a model writes for each record, whatever others it is asked with."""
    words = speaker.writer or speaker.tokenizer
    most = [room(len(target)) for target in words.plain_batch([record.fields[1] for record in records])]
    order = sorted(range(len(records)), key=lambda at: (most[at], len(records[at].fields[0])))
    found: dict[int, Sample] = {}
    for limit, places in groupby(order, lambda at: most[at]):
        for some in batched(places, TOGETHER):
            sources, targets = zip(*(records[at].fields for at in some), strict=True)
            answers = [answer["output"] for answer in speaker.answer(sources, replace(wish, most=limit))]
            found |= dict(zip(some, map(Sample, sources, answers, targets), strict=True))
    return [found[at] for at in range(len(records))]


def written_of(observer: Speaker | Observer | Listener, records: Sequence[Record], wish: Wish) -> list[Sample]:
    """What a model writes for each image or sound."""
    answers = observer.answer([record.name for record in records], wish)
    return [
        Sample(record.name, answer["output"], " / ".join(record.fields[1:]))
        for record, answer in zip(records, answers, strict=True)
    ]


def spoken_scores(samples: Sequence[Sample]) -> Scores:
    """Scores of transcripts."""
    answers, wanted = [sample.answer for sample in samples], [sample.wanted for sample in samples]
    return replace(
        score_pairs(answers, wanted, by=("word_error_rate", "character_error_rate", "exact")), things="sounds"
    )


def room(length: int) -> int:
    """Tokens that a model may write where so many are right: no right answer is cut, and no wrong one lasts for ever.

    A power of two, so that many records have the same and can be answered together.
    """
    return 2 ** math.ceil(math.log2(8 + 2 * length))


@dataclass
class Told:
    """What was answered, and how long the sources were; these themselves may be too many to be kept."""

    answers: list[str] = field(default_factory=list[str])
    wanted: list[str] = field(default_factory=list[str])
    words: list[int] = field(default_factory=list[int])
    letters: list[int] = field(default_factory=list[int])

    @staticmethod
    def of(samples: Iterable[Sample]) -> Told:
        told = Told()
        for sample in samples:
            told.answers.append(sample.answer)
            told.wanted.append(sample.wanted)
            told.words.append(len(sample.source.split()))
            told.letters.append(len(sample.source))
        return told


def pair_scores(samples: Iterable[Sample], by: Sequence[str]) -> Scores:
    """Scores of what was written; by the letters of sources of a few words, else by their words."""
    told = Told.of(samples)
    letters = sum(told.words) <= FEW * len(told.words)
    lengths, unit = (told.letters, "letters") if letters else (told.words, "words")
    return replace(score_pairs(told.answers, told.wanted, lengths, by=by), unit=unit)


Naming = SensedLabels | Labels | Tags  # tasks whose answers are classes


class Ranked(NamedTuple):
    """The likeliest classes of a sample, the first one first, and the right one."""

    picks: tuple[str, ...]
    wanted: str


@torch.inference_mode()
def ranked(task: SensedLabels, model: nn.Module, records: Sequence[Record]) -> Iterator[Ranked]:
    for some in batched(records, TOGETHER):
        rows = [tuple(map(ids, row)) for row in task.encode([record.handed for record in some])]
        logits = task.collate(rows, random_for("unused")).logits(model)
        best = logits.topk(min(TOP, logits.shape[-1])).indices.tolist()
        for record, picks in zip(some, best, strict=True):
            yield Ranked(tuple(task.labels[pick] for pick in picks), record.fields[1])


def ranked_scores(found: Iterable[Ranked], classes: int) -> Scores:
    """Accuracy, also among the likeliest few where there are more classes than these."""
    kept = list(found)
    scores = score_classes([one.picks[0] for one in kept], [one.wanted for one in kept])
    if classes <= TOP:
        return replace(scores, things="samples")
    inside = sum(one.wanted in one.picks for one in kept) / len(kept)
    return replace(scores, things="samples", numbers={**scores.numbers, "top5": inside})


@torch.inference_mode()
def named(task: Naming, model: nn.Module, records: Sequence[Record]) -> list[Sample]:
    """The classes that a model gives to each record, or to its words."""
    found = list[Sample]()
    for some in batched(records, TOGETHER):
        rows = [tuple(map(ids, row)) for row in task.encode([record.handed for record in some])]
        answers = likeliest(model, task.collate(rows, random_for("unused")))
        for record, row in zip(some, answers, strict=True):
            wanted = record.fields[1].split()[: len(row)] if isinstance(task, Tags) else record.fields[1:]  # cut too
            found.append(Sample(record.name, " ".join(task.labels[pick] for pick in row), " ".join(wanted)))
    return found


def name_scores(task: Naming, samples: Iterable[Sample]) -> Scores:
    score, told = score_tags if isinstance(task, Tags) else score_classes, Told.of(samples)
    return replace(score(told.answers, told.wanted, told.words), unit="words")
