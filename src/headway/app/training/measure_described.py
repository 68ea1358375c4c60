"""How well a model tells what is on images: by the captions that it writes, or the texts that it finds.

Axes:  N images   M texts
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from headway.data.batched import batched
from headway.data.sources import Record
from headway.observer import TOGETHER, Observer
from headway.tasks.captions import score_captions
from headway.tasks.retrieval import KS, chance_of, score_retrieval
from headway.tasks.scores import MEASURES, Scores
from headway.train.loop import Sample

TEXTS = 256  # that are read at a time
DECISIVE = "texts_10"


def caption_scores(samples: Sequence[Sample], records: Sequence[Record]) -> Scores:
    """By all captions of each image."""
    return score_captions([sample.answer for sample in samples], [record.fields[1:] for record in records])


@torch.inference_mode()
def compared(observer: Observer, records: Sequence[Record]) -> Tensor:
    """How near each image is to each text of all records, N M."""
    names, texts = [record.name for record in records], [text for record in records for text in record.fields[1:]]
    images = torch.cat([observer.embed(some) for some in batched(names, TOGETHER)])
    return images @ torch.cat([observer.embed_texts(some) for some in batched(texts, TEXTS)]).mT


def retrieval_scores(similarity: Tensor, records: Sequence[Record]) -> Scores:
    """Recall both ways, first the one that decides, and what chance alone would find."""
    scores = score_retrieval(similarity, owners_of(records))
    told = {name: f"by chance {MEASURES[name].shown(value)}" for name, value in by_chance(records).items()}
    return replace(scores, numbers={DECISIVE: scores.numbers[DECISIVE], **scores.numbers}, signatures=told)


def by_chance(records: Sequence[Record]) -> dict[str, float]:
    """What recall would be if all were drawn by lot."""
    counts = [len(record.fields) - 1 for record in records]
    texts = {f"texts_{k}": sum(chance_of(n, sum(counts), k) for n in counts) / len(counts) for k in KS}
    return texts | {f"images_{k}": chance_of(1, len(counts), k) for k in KS}


def nearest_texts(similarity: Tensor, records: Sequence[Record]) -> list[Sample]:
    """The text that is nearest to each image; where it is another's, one of its own is wanted."""
    owners, texts = owners_of(records), [text for record in records for text in record.fields[1:]]
    found = list[Sample]()
    for at, (record, best) in enumerate(zip(records, similarity.argmax(1).tolist(), strict=True)):
        wanted = texts[best] if owners[best] == at else record.fields[1]
        found.append(Sample(record.name, texts[best], wanted))
    return found


def owners_of(records: Sequence[Record]) -> list[int]:
    """The image of each text."""
    return [at for at, record in enumerate(records) for _ in record.fields[1:]]
