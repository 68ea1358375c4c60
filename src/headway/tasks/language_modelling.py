"""How well a language model predicts texts: the loss of their tokens, document by document, in bounded memory.

A causal model is asked for every token, in windows as long as its context; of two windows the second begins with the
last token of the first.  A masked model is asked for a share of the tokens, all of them masked, and one that restores
spans for those that were taken out.  What is hidden depends on the window's own tokens alone.

Axes:  M tokens that are asked for
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from headway.data.order import batched, random_for
from headway.data.records import Record, by_document
from headway.data.splits import DataSplits
from headway.data.tokenizer import Tokenizer
from headway.metrics.baselines import bigram_losses, unigram_losses
from headway.metrics.scores import Scores
from headway.metrics.scoring import score_losses, score_words
from headway.nn.trunk import device_of
from headway.tasks.base import StreamTask, loss_scores
from headway.tasks.batches import DataRow, TokenPrediction, to_device
from headway.tasks.distillation import PredictsTargets
from headway.tasks.results import DEFAULT_EVALUATION, BaselineData, BaselineResult, EvalOptions, EvalResult, Sample
from headway.tasks.text_tasks import DEFAULT_CONTEXT, ReadsText

MAX_WINDOW = 1024  # tokens, also where a context is longer: attention takes their square
BATCH_TOKENS = 4096  # that are read at a time, with padding
PIECES_TOGETHER = 16  # of a document that are tokenized at once: 1 to 2 MB
SORTED_AHEAD = 16  # times as many are sorted by length before
REPORT_TOKENS = 60  # that are written for a sample of a report
TRACED_TOKENS = 24  # of a text whose attention is drawn
TEMPERATURE = 0.8  # at which samples of a report are written: what is likeliest repeats itself
PROMPT_WORDS, PROMPT_CHARACTERS = 3, 20  # of a text to try a model with
RUN_TOKENS = 64  # of a text: their losses depend on each other, those of runs hardly
MIN_RUNS, MAX_RUNS = 10, 10_000
FINE_RUN = 16  # tokens, where an evaluation may turn out to have few
BASELINE_TOKENS = 1_000_000  # of training that are counted
LENGTH_EDGES = (16, 64, 256, 1024, 4096)  # tokens of texts, for buckets


class WindowBatch(NamedTuple):
    """Windows of texts as a batch, and how many tokens are asked for in each."""

    batch: Any
    counts: list[int]


class TokenRun(NamedTuple):
    """The summed loss of some tokens in a row of a window, how many these are, and how many were predicted right."""

    window: int
    loss: float
    asked: int
    right: int


@dataclass
class DocumentLoss:
    """What was found of one text so far."""

    tokens: int = 0
    size: int = 0  # bytes
    runs: list[TokenRun] = field(default_factory=list[TokenRun])

    @property
    def asked(self) -> int:
        return sum(run.asked for run in self.runs)

    def joined(self, tokens: int) -> list[TokenRun]:
        """Runs of at least so many tokens, but for the last, in the order of the text; one at least."""
        found = [TokenRun(0, 0.0, 0, 0)]
        for run in sorted(self.runs, key=lambda run: run.window):
            if found[-1].asked >= tokens:
                found.append(run)
            else:
                _, loss, asked, right = found[-1]
                found[-1] = TokenRun(run.window, loss + run.loss, asked + run.asked, right + run.right)
        return found

    def shared_bytes(self, runs: Sequence[TokenRun]) -> list[int]:
        """The bytes of the text, shared out among its runs by their tokens."""
        ends = [self.size * tokens // max(1, self.asked) for tokens in accumulate(run.asked for run in runs)]
        return [end - start for start, end in pairwise((0, *ends[:-1], self.size))]

    def counted(self, text: str, tokenizer: Tokenizer) -> list[int]:
        """The ids of a piece of the text, which is counted."""
        ids = tokenizer.plain(text)
        self.tokens += len(ids)
        self.size += len(text.encode("utf-8"))
        return ids


class TextWindow(NamedTuple):
    """A window, the text that it belongs to, and its number there."""

    ids: np.ndarray
    owner: DocumentLoss
    number: int


class LanguageModelling(StreamTask, ReadsText, PredictsTargets):
    """A task on running text; `max_length` is how many tokens its model reads at once."""

    target = "token"
    columns = 1
    unit = "tokens"
    overlap: ClassVar[int] = 0  # tokens of a window that also stand in the one before
    sample_names = ("text", "the model", "what was there")
    graded = False

    tokenizer: Tokenizer
    max_length: int = DEFAULT_CONTEXT

    def example(self, splits: DataSplits, samples: Sequence[Sample]) -> str:
        """How a text of the data begins."""
        words = next(splits.train()).fields[0].split()[:PROMPT_WORDS]
        prompt = " ".join(words)[:PROMPT_CHARACTERS].strip()
        return prompt if prompt and prompt.isprintable() else super().example(splits, samples)

    @property
    def heading(self) -> str:
        return f"{self.objective} language modelling"

    @property
    def vocab(self) -> int:
        return self.tokenizer.vocab

    @property
    def frame(self) -> tuple[list[int], list[int]]:
        """The ids that stand before and behind each document in the stream: none, where spans are framed anew."""
        return [], []

    def document(self, pieces: Iterable[str]) -> list[Iterable[int]]:
        """The ids of a text, which come as its pieces are read: some of them together, by all threads."""
        before, after = self.frame
        rows = (row for some in batched(pieces, PIECES_TOGETHER) for row in self.tokenizer.plain_batch(some))
        return [chain(before, chain.from_iterable(rows), after)]

    @abstractmethod
    def predicted(self, model: nn.Module, batch: Any) -> TokenPrediction:
        """The tokens that a model is to predict in a batch."""

    @abstractmethod
    def windows(self, rows: Sequence[np.ndarray]) -> WindowBatch:
        """Windows of texts as one batch, in which what is hidden follows from each window's own tokens."""

    @property
    def window(self) -> int:
        """Tokens of a window of evaluation."""
        return self.stride(min(self.max_length, MAX_WINDOW)) + 1

    @property
    def notes(self) -> tuple[str, ...]:
        """What an evaluation tells people besides scores."""
        return ()

    @property
    def window_frame(self) -> tuple[list[int], list[int]]:
        """What stands before and behind each document of an evaluation."""
        return [], []

    def evaluate(
        self, model: nn.Module, records: Iterable[Record], options: EvalOptions = DEFAULT_EVALUATION
    ) -> EvalResult:
        """Perplexity by token and by byte, or of hidden tokens with the share that was right; by length in tokens."""
        found = list[DocumentLoss]()
        for rows in batches_of(text_windows(self, records, found)):
            self.add_losses(model, rows)
        extra = {"objective": self.objective, "window": self.window - self.overlap, "texts": len(found)}
        return EvalResult(replace(self.scores(found), unit="tokens"), (), self.notes, extra)

    def validate(self, model: nn.Module, batches: Sequence[Any], records: Iterable[Record]) -> EvalResult:
        """By the loss of a token; its exponential stands beside it."""
        return EvalResult(loss_scores(self, model, batches, self.target, "perplexity"))

    def loss_parts(self, model: nn.Module, batch: Any) -> Iterator[tuple[float, int]]:
        """Runs of tokens."""
        return runs_of(self.predicted(model, batch).losses().double().cpu().numpy())

    def before(self, batch: Any) -> Tensor | None:
        """The token before each one that is to be predicted, where that is one of the text."""
        return None

    def baselines(self, model: nn.Module, data: BaselineData, found: EvalResult) -> Iterator[BaselineResult]:
        """How frequent tokens are, and how often each follows another."""
        train, seen = list[Any](), 0
        for batch in data.batches:
            train.append(batch)
            seen += batch.targets
            if seen >= BASELINE_TOKENS:
                break
        asked = list(data.validation_batches)
        losses = {"token frequencies": unigram_losses(wanted(train), wanted(asked), self.vocab)}
        before = [[self.before(batch) for batch in some] for some in (train, asked)]
        known = [[one.numpy() for one in side if one is not None] for side in before]
        if all(known):
            pairs = [(np.concatenate(side), wanted(some)) for side, some in zip(known, (train, asked), strict=True)]
            losses["pairs of tokens"] = bigram_losses(pairs[0], pairs[1], self.vocab)
        for name, each in losses.items():
            summed, counts = zip(*runs_of(each), strict=True)
            yield BaselineResult(name, score_losses(summed, counts, f"{self.target}s", ("loss", "perplexity")))

    def scores(self, found: Sequence[DocumentLoss]) -> Scores:
        rows = [(*run, one.tokens) for one, runs in joined_runs(found) for run in runs]
        _, losses, asked, right, lengths = zip(*rows, strict=True)
        return score_words(losses, asked, right, lengths, edges=LENGTH_EDGES)

    @torch.inference_mode()
    def add_losses(self, model: nn.Module, rows: Sequence[TextWindow]) -> None:
        """Adds what the model predicts of these windows to what was found of their texts."""
        batch, counts = self.windows([row.ids for row in rows])
        predicted = self.predicted(model, to_device(batch, device_of(model)))
        losses, right = (x.cpu().split(counts) for x in (predicted.losses().double(), self.right(predicted)))
        for row, loss, hits in zip(rows, losses, right, strict=True):
            size = FINE_RUN if row.number * self.window < MIN_RUNS * RUN_TOKENS else RUN_TOKENS
            parts = zip(loss.split(size), hits.split(size), strict=True)
            row.owner.runs += [TokenRun(row.number, a.sum().item(), len(a), int(b.sum())) for a, b in parts if len(a)]

    def has_loss(self, model: nn.Module, described: bool) -> bool:
        return True

    def loss_rows(self, model: nn.Module, records: Iterable[Record]) -> Iterator[DataRow]:
        for window in text_windows(self, records, []):
            if (size := len(window.ids)) > 1:  # nothing is predicted from one token
                yield DataRow((size,), size, window.ids, "")

    def loss_batch(self, model: nn.Module, rows: Sequence[DataRow]) -> Any:
        return to_device(self.windows([one.row for one in rows]).batch, device_of(model))

    def right(self, predicted: TokenPrediction) -> Tensor:
        """Whether each token was predicted, M."""
        return predicted.right()


def runs_of(losses: np.ndarray) -> Iterator[tuple[float, int]]:
    """The summed losses of runs of tokens, and how many these are; of few tokens, a few runs."""
    size = min(RUN_TOKENS, max(1, len(losses) // MIN_RUNS))
    for at in range(0, len(losses), size):
        run = losses[at : at + size]
        yield float(run.sum()), len(run)


def joined_runs(found: Sequence[DocumentLoss]) -> list[tuple[DocumentLoss, list[TokenRun]]]:
    """Each text with runs of so many tokens that these are neither few nor too many to be drawn from."""
    total = sum(one.asked for one in found)
    size = max(RUN_TOKENS, total // MAX_RUNS) if total >= MIN_RUNS * RUN_TOKENS else 1
    return [(one, one.joined(size)) for one in found]


def wanted(batches: Sequence[Any]) -> np.ndarray:
    """The tokens that batches ask for."""
    return np.concatenate([batch.wanted.numpy() for batch in batches])


def own_random(row: np.ndarray) -> np.random.Generator:
    """Random numbers that follow from a window's own tokens."""
    return random_for("evaluation", row.astype("<i8").tobytes().hex())


def text_windows(task: LanguageModelling, records: Iterable[Record], found: list[DocumentLoss]) -> Iterator[TextWindow]:
    """The windows of all texts, which are added to `found`."""
    before, after = task.window_frame
    for pieces in by_document(records):
        one = DocumentLoss()
        found.append(one)
        ids = chain([before], (one.counted(piece, task.tokenizer) for piece in pieces), [after])
        windows = runs(ids, task.window, task.overlap)
        yield from (TextWindow(window, one, number) for number, window in enumerate(windows))


def runs(ids: Iterable[list[int]], size: int, overlap: int) -> Iterator[np.ndarray]:
    """Runs of `size` ids, each but the first beginning with the last `overlap` of the one before."""
    held, begun = list[int](), 0
    for some in ids:
        held += some
        starts = range(0, len(held) - size, size - overlap)  # not the last whole one, which might be the end
        for at in starts:
            yield np.array(held[at : at + size])
        begun += len(starts)
        held = held[len(starts) * (size - overlap) :]
    if len(held) > (overlap if begun else 0):
        yield np.array(held)


def batches_of(rows: Iterable[TextWindow]) -> Iterator[list[TextWindow]]:
    """Windows of like length together: as many as fit with their padding."""
    ahead, room = list[TextWindow](), SORTED_AHEAD * BATCH_TOKENS
    for row in rows:
        ahead.append(row)
        room -= len(row.ids)
        if room <= 0:
            yield from fitting(ahead)
            ahead, room = [], SORTED_AHEAD * BATCH_TOKENS
    yield from fitting(ahead)


def fitting(rows: Sequence[TextWindow]) -> Iterator[list[TextWindow]]:
    some = list[TextWindow]()
    for row in sorted(rows, key=lambda row: len(row.ids)):
        if some and (len(some) + 1) * len(row.ids) > BATCH_TOKENS:
            yield some
            some = []
        some.append(row)
    if some:
        yield some
