"""How well a language model foresees texts: the loss of their tokens, document by document, in bounded memory.

A causal model is asked for every token, in windows as long as its context; of two windows the second begins with the
last token of the first.  A masked model is asked for a share of them that are all masked, and one that fills spans for
what was taken out.  What is hidden depends on the window's own words, never on what stands around it.

Axes:  M tokens that are asked for
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from headway.data.keyed import random_for
from headway.data.records import by_document
from headway.data.sources import Record
from headway.data.tokenizer import Tokenizer
from headway.tasks.causal import Causal
from headway.tasks.masked import Masked, masked_batch
from headway.tasks.pairs import pair_batch
from headway.tasks.scores import Scores
from headway.tasks.scoring import score_texts, score_words
from headway.tasks.spans import Spans

WINDOW = 1024  # tokens at most, also where a context is longer: attention takes their square
TOKENS = 4096  # that are read at a time, with padding
AHEAD = 16  # times as many are sorted by length before
EDGES = (16, 64, 256, 1024, 4096)  # tokens of texts, for buckets


class Question(NamedTuple):
    """Windows as a batch of the task, and how many tokens it asks for in each."""

    batch: Any
    counts: list[int]


Ask = Callable[[Sequence[np.ndarray]], Question]


@dataclass(frozen=True, eq=False)
class Probe:
    """How a model is asked: in windows of `size` tokens, of which `again` also stand in the window before."""

    task: Causal | Masked | Spans
    ask: Ask
    size: int
    again: int = 0
    frame: tuple[list[int], list[int]] = ([], [])  # around each document

    @property
    def words(self) -> Tokenizer:
        return self.task.words


def causal_probe(task: Causal, context: int, begin: list[int], end: list[int]) -> Probe:
    """Documents begin with the token that the model begins with, so that their first word is asked for, too."""

    def ask(rows: Sequence[np.ndarray]) -> Question:
        return Question(task.collate([(row,) for row in rows], random_for()), [len(row) - 1 for row in rows])

    return Probe(task, ask, min(context, WINDOW) + 1, 1, (begin, end))


def masked_probe(task: Masked, context: int) -> Probe:
    plain = replace(task, shown=(1.0, 0.0))  # a mask is shown wherever a word is asked for

    def ask(rows: Sequence[np.ndarray]) -> Question:
        hidden = [plain.hidden(row, own_random(row)) for row in rows]
        return Question(masked_batch(hidden), [len(row.wanted) for row in hidden])

    return Probe(task, ask, task.stride(min(context, WINDOW)) + 1)


def span_probe(task: Spans, context: int) -> Probe:
    def ask(rows: Sequence[np.ndarray]) -> Question:
        pairs = [task.corrupted(row, own_random(row)) for row in rows]
        return Question(pair_batch(pairs, task.begin), [len(target) for _, target in pairs])

    return Probe(task, ask, task.stride(min(context, WINDOW)) + 1)


def own_random(row: np.ndarray) -> np.random.Generator:
    return random_for("evaluation", row.astype("<i8").tobytes().hex())


@dataclass
class Document:
    """What was found of one text so far."""

    loss: float = 0.0
    asked: int = 0
    right: int = 0
    tokens: int = 0
    size: int = 0  # bytes


def text_scores(probe: Probe, model: nn.Module, records: Iterable[Record]) -> Scores:
    """Perplexity by token and by byte, or of hidden words with their share that was right; by length in tokens."""
    found = list[Document]()
    for rows in batched(read(probe, records, found)):
        examine(probe, model, rows)
    losses, asked = [one.loss for one in found], [one.asked for one in found]
    if isinstance(probe.task, Causal):
        scores = score_texts(losses, asked, [one.size for one in found], edges=EDGES)
    else:
        right, lengths = [one.right for one in found], [one.tokens for one in found]
        scores = score_words(losses, asked, right, lengths, edges=EDGES)
    return replace(scores, unit="tokens")


class Row(NamedTuple):
    """A window and the text that it belongs to."""

    ids: np.ndarray
    owner: Document


def read(probe: Probe, records: Iterable[Record], found: list[Document]) -> Iterator[Row]:
    """The windows of all texts, which are added to `found`."""
    before, after = probe.frame
    for pieces in by_document(records):
        one = Document()
        found.append(one)
        ids = chain([before], (counted(one, probe.words, piece) for piece in pieces), [after])
        yield from (Row(window, one) for window in windows(ids, probe.size, probe.again))


def counted(one: Document, words: Tokenizer, text: str) -> list[int]:
    ids = words.plain(text)
    one.tokens += len(ids)
    one.size += len(text.encode("utf-8"))
    return ids


def windows(ids: Iterable[list[int]], size: int, again: int) -> Iterator[np.ndarray]:
    """Runs of `size` ids, each but the first beginning with the last `again` of the one before; the last is shorter."""
    held, begun = list[int](), 0
    for some in ids:
        held += some
        starts = range(0, len(held) - size, size - again)  # not the last whole one, which might be the end
        for at in starts:
            yield np.array(held[at : at + size])
        begun += len(starts)
        held = held[len(starts) * (size - again) :]
    if len(held) > (again if begun else 0):
        yield np.array(held)


def batched(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Rows of like length together: as many as fit with their padding."""
    ahead, room = list[Row](), AHEAD * TOKENS
    for row in rows:
        ahead.append(row)
        room -= len(row.ids)
        if room <= 0:
            yield from fitting(ahead)
            ahead, room = [], AHEAD * TOKENS
    yield from fitting(ahead)


def fitting(rows: Sequence[Row]) -> Iterator[list[Row]]:
    some = list[Row]()
    for row in sorted(rows, key=lambda row: len(row.ids)):
        if some and (len(some) + 1) * len(row.ids) > TOKENS:
            yield some
            some = []
        some.append(row)
    if some:
        yield some


@torch.inference_mode()
def examine(probe: Probe, model: nn.Module, rows: Sequence[Row]) -> None:
    """Adds what the model says of these windows to what was found of their texts."""
    batch, counts = probe.ask([row.ids for row in rows])
    said = probe.task.said(model, batch)
    losses = said.losses().double().split(counts)
    right = [None] * len(rows) if isinstance(probe.task, Causal) else said.right().split(counts)
    for row, count, loss, hits in zip(rows, counts, losses, right, strict=True):
        row.owner.loss += float(loss.sum())
        row.owner.asked += count
        row.owner.right += 0 if hits is None else int(hits.sum())
