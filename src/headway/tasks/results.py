"""What an evaluation found: scores, some answers, and what else there is to say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headway.metrics.scores import MEASURES, Scores
from headway.tasks.generation import GREEDY_OPTIONS, GenerationOptions

MAX_SAMPLES = 2000  # answers that a result holds


class Sample(NamedTuple):
    """An answer, and what it should have been."""

    source: str
    answer: str
    wanted: str

    @property
    def is_right(self) -> bool:
        return self.answer == self.wanted


@dataclass(frozen=True)
class EvalOptions:
    """How a model is evaluated: how it writes, and by which metrics where its answers are texts (None: chosen)."""

    generation: GenerationOptions = GREEDY_OPTIONS
    metrics: tuple[str, ...] | None = None


DEFAULT_EVALUATION = EvalOptions()


@dataclass(frozen=True)
class EvalResult:
    """Scores, some answers, and what else there is to say: `notes` for people, `extra` for programs.

    `loss` is that of validation batches, where these were measured.
    """

    scores: Scores
    samples: Sequence[Sample] = ()
    notes: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    loss: float | None = None

    @property
    def values(self) -> dict[str, float]:
        """All numbers by name, the loss first."""
        return {**({} if self.loss is None else {"loss": self.loss}), **self.scores.numbers}

    @property
    def score(self) -> float:
        """The number that decides, the higher the better."""
        main = self.scores.numbers[self.scores.main]
        return main if MEASURES[self.scores.main].higher else -main

    def to_dict(self) -> dict[str, Any]:
        return {**self.extra, **self.scores.plain()}

    def to_text(self) -> str:
        return "\n\n".join([self.scores.shown(), *self.notes])


class CollectedAnswers:
    """Answers with how long their sources are; of these only the first are kept themselves: there may be many."""

    def __init__(self) -> None:
        self.samples = list[Sample]()
        self.answers, self.wanted = list[str](), list[str]()
        self.words, self.characters = list[int](), list[int]()

    def add(self, samples: Iterable[Sample]) -> None:
        for sample in samples:
            self.answers.append(sample.answer)
            self.wanted.append(sample.wanted)
            self.words.append(len(sample.source.split()))
            self.characters.append(len(sample.source))
            if len(self.samples) < MAX_SAMPLES:
                self.samples.append(sample)
