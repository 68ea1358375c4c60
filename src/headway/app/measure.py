"""How good a model is: on the held-out part while it trains, and on any data afterwards (`headway eval`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from headway.answer import Speaker, Wish
from headway.data.keyed import random_for
from headway.data.sources import Record
from headway.tasks.labels import Labels, Tags, likeliest
from headway.tasks.scores import MEASURES, Scores
from headway.tasks.scoring import score_classes, score_pairs, score_tags
from headway.tasks.task import Task, ids
from headway.train.loop import Examined, Sample

TOGETHER = 64  # texts that are written at a time
WORDY = 1.5  # words of a target on average; one of fewer is right or wrong, not more or less fluent

Answering = Callable[[nn.Module], tuple[Scores, list[Sample]]]


@dataclass(frozen=True, eq=False)
class Examiner:
    """Scores a model in training: its loss on held-out batches, and where it writes or names, how well it does that."""

    task: Task
    held: Sequence[Any]
    answers: Answering | None = None

    def __call__(self, model: nn.Module) -> Examined:
        loss = held_loss(self.task, model, self.held)
        if self.answers is None:
            return Examined({"loss": loss, "perplexity": perplexity(loss)}, -loss)
        scores, samples = self.answers(model)
        main = scores.numbers[scores.main]
        return Examined({"loss": loss, **scores.numbers}, main if MEASURES[scores.main].higher else -main, samples)


def perplexity(loss: float) -> float:
    return math.exp(min(loss, 700.0))


@torch.inference_mode()
def held_loss(task: Task, model: nn.Module, batches: Sequence[Any]) -> float:
    total = sum(task.loss(model, batch).item() for batch in batches)
    return total / sum(batch.targets for batch in batches)


def measures_for(records: Sequence[Record]) -> tuple[str, ...]:
    """What targets are measured by, the decisive one first."""
    words = [len(record.fields[1].split()) for record in records]
    if sum(words) <= WORDY * len(words):
        return ("exact", "character_error_rate")
    notation = len({word for record in records for word in record.fields[1].split()}) < len(records) / 2
    return ("word_error_rate", "exact") if notation and len(records) > 20 else ("bleu", "chrf", "exact")


def written(speaker: Speaker, records: Sequence[Record], wish: Wish) -> list[Sample]:
    """What a model writes for each record; texts of like length are written together."""
    words = speaker.writer or speaker.tokenizer
    found: dict[int, Sample] = {}
    order = sorted(range(len(records)), key=lambda at: len(records[at].fields[0]))
    for places in (order[at : at + TOGETHER] for at in range(0, len(order), TOGETHER)):
        sources, targets = zip(*(records[at].fields for at in places), strict=True)
        most = 8 + 2 * max(map(len, words.plain_batch(targets)))  # no answer that is right is as long
        answers = speaker.answer(sources, replace(wish, most=most))
        found |= {at: Sample(s, a["output"], t) for at, s, a, t in zip(places, sources, answers, targets, strict=True)}
    return [found[at] for at in range(len(records))]


def pair_scores(samples: Sequence[Sample], by: Sequence[str]) -> Scores:
    lengths = [len(sample.source.split()) for sample in samples]
    if max(lengths, default=0) <= 2:  # a word or two: its letters tell more
        lengths = [len(sample.source) for sample in samples]
    return score_pairs([s.answer for s in samples], [s.wanted for s in samples], lengths, by=by)


@torch.inference_mode()
def named(task: Labels | Tags, model: nn.Module, records: Sequence[Record]) -> list[Sample]:
    """The classes that a model gives to each record, or to its words."""
    found = list[Sample]()
    for some in (records[at : at + TOGETHER] for at in range(0, len(records), TOGETHER)):
        rows = [tuple(map(ids, row)) for row in task.encode([record.fields for record in some])]
        answers = likeliest(model, task.collate(rows, random_for("unused")))
        for record, row in zip(some, answers, strict=True):
            wanted = record.fields[1:] if isinstance(task, Labels) else record.fields[1].split()[: len(row)]  # cut too
            found.append(Sample(record.fields[0], " ".join(task.labels[pick] for pick in row), " ".join(wanted)))
    return found


def name_scores(task: Labels | Tags, samples: Sequence[Sample]) -> Scores:
    score = score_classes if isinstance(task, Labels) else score_tags
    lengths = [len(sample.source.split()) for sample in samples]
    return score([s.answer for s in samples], [s.wanted for s in samples], lengths)
