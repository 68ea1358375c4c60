"""What models answer: a typed value for each kind of answer, the same for the command, the server and the page."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

MAX_CLASSES = 5  # of which the probabilities are shown to people


@dataclass(frozen=True)
class Prediction(ABC):
    """The answer to one input."""

    input: str

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; `input` is what was asked and `output` the answer."""

    @abstractmethod
    def to_text(self) -> str:
        """The answer as a line or more for people."""


class Hypothesis(NamedTuple):
    """A generated text with its tokens, and why it ended."""

    text: str
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    reason: str
    score: float

    def to_dict(self) -> dict[str, Any]:
        return {
            "output": self.text,
            "tokens": list(self.tokens),
            "logprobs": list(self.logprobs),
            "reason": self.reason,
        }


@dataclass(frozen=True)
class TextPrediction(Prediction):
    """A generated text; `continues` says that it follows the input.  A beam may give several, the best first."""

    hypotheses: tuple[Hypothesis, ...]
    continues: bool = False

    @property
    def output(self) -> str:
        return self.hypotheses[0].text

    @property
    def tokens(self) -> tuple[int, ...]:
        return self.hypotheses[0].tokens

    @property
    def text(self) -> str:
        """The output, behind the input where it continues that."""
        return self.before + self.output

    @property
    def before(self) -> str:
        return self.input if self.continues else ""

    def to_dict(self) -> dict[str, Any]:
        told = {"input": self.input, **self.hypotheses[0].to_dict()}
        if len(self.hypotheses) > 1:
            told["best"] = [{"score": one.score, **one.to_dict()} for one in self.hypotheses]
        return {**told, "text": self.text} if self.continues else told

    def to_text(self) -> str:
        if len(self.hypotheses) > 1:
            return "\n".join(f"{one.score:8.3f}  {self.before}{one.text}" for one in self.hypotheses)
        return self.text


class MaskCandidate(NamedTuple):
    """A token that may stand in the place of a mask."""

    token: str
    probability: float


@dataclass(frozen=True)
class FilledMasks(Prediction):
    """A text with its masks filled, and the likeliest tokens of each mask."""

    output: str
    masks: tuple[tuple[MaskCandidate, ...], ...]

    def to_dict(self) -> dict[str, Any]:
        masks = [[one._asdict() for one in mask] for mask in self.masks]
        return {"input": self.input, "output": self.output, "masks": masks}

    def to_text(self) -> str:
        lines = (", ".join(f"{one.token} {one.probability:.3f}" for one in mask) for mask in self.masks)
        return "\n".join([self.output, *(f"  {line}" for line in lines)])


@dataclass(frozen=True)
class ClassProbabilities(Prediction):
    """The likeliest class, and the probability of each."""

    output: str
    probabilities: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        return {"input": self.input, "output": self.output, "probabilities": dict(self.probabilities)}

    def to_text(self) -> str:
        shown = islice(self.probabilities.items(), MAX_CLASSES)
        return "  ".join([self.output, *(f"{label} {p:.3f}" for label, p in shown)])


@dataclass(frozen=True)
class TaggedWords(Prediction):
    """The words of a text, each with its tag."""

    words: tuple[tuple[str, str], ...]

    def to_dict(self) -> dict[str, Any]:
        return {"input": self.input, "output": [list(pair) for pair in self.words]}

    def to_text(self) -> str:
        return " ".join(f"{word}/{tag}" for word, tag in self.words)


@dataclass(frozen=True)
class EmbeddingVector(Prediction):
    """A vector of length 1."""

    vector: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        return {"input": self.input, "output": list(self.vector)}

    def to_text(self) -> str:
        return " ".join(f"{x:.5f}" for x in self.vector)


@dataclass(frozen=True)
class TranscriptPrediction(Prediction):
    """What is said in a sound; `details` are a score, or the language and the segments with their times."""

    output: str
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def to_dict(self) -> dict[str, Any]:
        return {"input": self.input, "output": self.output, **self.details}

    def to_text(self) -> str:
        return self.output
