"""What came out, as data: what was said, how likely that was, and what else might have been said.

A model that chooses (a word, a class, a tag, a symbol) is scored by what it chose before any edit: the sum of these
choices' log-probabilities, which an edit changes.  A model that gives a vector is scored by how far that has turned,
and one that foresees a row by how far that has moved.

Axes:  N steps   C width   K choices: words, classes, symbols
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

BEST = 10  # choices that are told of each step
BLOCK = 64  # steps whose choices are held at once: 64 of 50k words are 13 MB


@dataclass(frozen=True)
class OutcomeStep:
    """One thing that was said: at which row of an axis (None: of the whole input), and what else was likely."""

    at: int | None
    said: str
    logprob: float
    top: tuple[tuple[str, float], ...]  # labels and their probabilities, falling


@dataclass(frozen=True)
class Outcome:
    """What a model said; `total` is the sum of the logprobs of what it said before any edit.

    For "vector" it is the cosine with the vector before any edit, less 1: nothing changed, nothing lost.  For
    "foreseen" it is how far the row has moved, in deviations of its columns, below 0.
    """

    kind: str  # "next", "fill", "written", "classes", "tags", "heard", "foreseen" or "vector"
    text: str
    steps: tuple[OutcomeStep, ...]
    total: float


class OutcomeReader(ABC):
    """How an outcome is told by what a call of the model gave."""

    @abstractmethod
    def settled(self, found: Tensor) -> OutcomeReader:
        """The same, where `found` is what the model gives before any edit."""

    @abstractmethod
    def outcome(self, found: Tensor, text: str | None = None) -> Outcome:
        """With the text where it is known, and else with what the model now says."""


@dataclass(frozen=True, eq=False)
class Choices(OutcomeReader):
    """Steps at which a model chooses: found is N C, of which `head` makes the logits N K.

    `said` is what was chosen at each step; None until it is settled: what is likeliest.  `text` tells the likeliest of
    each step as a text, or writes it anew.
    """

    kind: str
    at: tuple[int | None, ...]
    said: tuple[int, ...] | None
    label: Callable[[int], str]
    text: Callable[[Sequence[int]], str]
    head: Callable[[Tensor], Tensor]

    def settled(self, found: Tensor) -> Choices:
        return self if self.said is not None else replace(self, said=tuple(self.best(found)))

    def outcome(self, found: Tensor, text: str | None = None) -> Outcome:
        assert self.said is not None
        steps, best = list[OutcomeStep](), list[int]()
        for first, logprobs in self.blocks(found):
            places = slice(first, first + len(logprobs))
            top = logprobs.topk(min(BEST, logprobs.shape[1]))
            best += top.indices[:, 0].tolist()
            for at, said, row, *tops in zip(self.at[places], self.said[places], logprobs, *top, strict=True):
                steps.append(OutcomeStep(at, self.label(said), float(row[said]), self.named(*tops)))
        told = self.text(best) if text is None else text
        return Outcome(self.kind, told, tuple(steps), sum(step.logprob for step in steps))

    def named(self, logprobs: Tensor, choices: Tensor) -> tuple[tuple[str, float], ...]:
        chances = logprobs.exp().tolist()
        return tuple((self.label(k), chance) for k, chance in zip(choices.tolist(), chances, strict=True))

    def best(self, found: Tensor) -> list[int]:
        return [k for _, logprobs in self.blocks(found) for k in logprobs.argmax(-1).tolist()]

    def blocks(self, found: Tensor) -> Iterator[tuple[int, Tensor]]:
        """The logarithms of all choices' probabilities, some steps at a time: never N K of a long text."""
        for first in range(0, len(found), BLOCK):
            logits = self.head(found[first : first + BLOCK])
            yield first, logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)


@dataclass(frozen=True, eq=False)
class Vector(OutcomeReader):
    """A vector of length 1, C, compared with what it was `before` any edit."""

    before: Tensor | None = None

    def settled(self, found: Tensor) -> Vector:
        return replace(self, before=found)

    def outcome(self, found: Tensor, text: str | None = None) -> Outcome:
        assert self.before is not None
        # cos − 1 = −|a − b|² / 2, which is exactly 0 where nothing has changed
        turned = -0.5 * float((found - self.before).float().square().sum())
        return Outcome("vector", f"a vector of {len(found)} numbers", (), turned + 0.0)  # no −0


@dataclass(frozen=True, eq=False)
class NumericOutcome(OutcomeReader):
    """Numbers, C, compared with what they were `before` any edit; `describe` writes them."""

    describe: Callable[[Tensor], str]
    before: Tensor | None = None

    def settled(self, found: Tensor) -> NumericOutcome:
        return replace(self, before=found)

    def outcome(self, found: Tensor, text: str | None = None) -> Outcome:
        assert self.before is not None
        moved = float((found - self.before).float().square().mean().sqrt())
        return Outcome("foreseen", self.describe(found), (), 0.0 - moved)


@dataclass(frozen=True)
class InputImage:
    """An image as the model read it."""

    png: bytes
    width: int
    height: int


@dataclass(frozen=True)
class InputSound:
    """A sound as the model heard it, and its spectrogram: time along, pitch up."""

    wav: bytes
    seconds: float
    spectrogram: bytes  # PNG
