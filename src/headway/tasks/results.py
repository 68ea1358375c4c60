"""What a task returns: a `Prediction` for an input, an `EvalResult` for a data set, and `ReportDetails` for a run.

Each kind of answer is a typed value with `to_dict` and `to_text`, the same for the command, the page and Python.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable
from unicodedata import bidirectional

from headway.console import finite
from headway.errors import counted
from headway.generate.request import Reason
from headway.tasks.generation import GREEDY_OPTIONS, GenerationOptions, Hypothesis

if TYPE_CHECKING:
    from torch import nn

    from headway.data.records import Record
    from headway.generate.decoding import Job
    from headway.metrics.scores import Scores

MAX_CLASSES = 5  # of which the probabilities are shown to people


@dataclass(frozen=True)
class Prediction(ABC):
    """The answer to one input; `cut` says to what an input was cut that is longer than the model reads."""

    input: str
    cut: str | None = field(default=None, kw_only=True)

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; `input` is what was asked and `output` the answer."""

    @abstractmethod
    def to_text(self) -> str:
        """The answer as a line or more for people."""

    @property
    def stopped_at(self) -> str | None:
        """The limit that ended the answer; None where it ended by itself."""
        return None


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

    @property
    def stopped_at(self) -> str | None:
        limit = f"the limit of {len(self.tokens):,} tokens (max_new_tokens)"
        limits: dict[str, str] = {Reason.LENGTH: limit, Reason.CONTEXT: "the end of its context"}
        return limits.get(self.hypotheses[0].reason)

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
        shown = nlargest(MAX_CLASSES, self.probabilities.items(), key=lambda item: item[1])
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
    """What is said in a sound; `details` are a score, or the language and the segments with their times.

    `limit` is the number of tokens at which the text of a window was ended.
    """

    output: str
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])
    limit: int | None = None

    @property
    def stopped_at(self) -> str | None:
        return None if self.limit is None else f"the limit of {self.limit:,} tokens of a window (max_new_tokens)"

    def to_dict(self) -> dict[str, Any]:
        return {"input": self.input, "output": self.output, **self.details}

    def to_text(self) -> str:
        return self.output


@runtime_checkable
class StreamsText(Protocol):
    """A task whose models write texts, which can be shown as they are written."""

    def stream(
        self, model: nn.Module, text: str, options: GenerationOptions = GREEDY_OPTIONS
    ) -> Generator[str, None, Prediction]:
        """The answer to one text, piece by piece as it is written, and returned in the end."""
        ...


@runtime_checkable
class ContinuesText(Protocol):
    """A task whose models continue texts token by token, so that requests can be decoded together."""

    def prompts(self, model: nn.Module, texts: Sequence[str]) -> Sequence[Any]:
        """The tokens of texts, as many of the last as the model reads at once."""
        ...

    def job(self, model: nn.Module, prompts: list[list[int]], options: GenerationOptions) -> Job:
        """The continuation of prompts, to be decoded."""
        ...


def cut_notes(cuts: Counter[str | None]) -> tuple[str, ...]:
    """How many texts were cut to what, where any were."""
    return tuple(f"{counted(number, 'text')} {cut}" for cut, number in cuts.items() if cut is not None)


def stop_notes(stops: Counter[str | None]) -> tuple[str, ...]:
    """How many answers were ended by each limit, where any were."""
    total = sum(stops.values())
    return tuple(
        f"{f'{count:,} of {total:,} answers' if total > 1 else 'the answer'} stopped at {limit}"
        for limit, count in stops.items()
        if limit is not None
    )


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


class BaselineData(NamedTuple):
    """What simple methods learn from, and the records and batches that a model was evaluated on.

    `batches` are those of an epoch at most, made when they are asked for; `train` are records, some of very many.
    """

    train: Sequence[Record]
    batches: Iterable[Any]
    validation: Sequence[Record]
    validation_batches: Sequence[Any]


@dataclass(frozen=True)
class BaselineResult:
    """What a simple method scores on the records that a model was evaluated on."""

    name: str  # behind "by"
    scores: Scores


@dataclass(frozen=True)
class EvalResult:
    """Scores, some answers, and what else there is to say: `notes` for people, `extra` for programs.

    `loss` is that of validation batches, where these were measured.  `baselines` are simple methods on the same
    records; the first of them knows nothing of the inputs.
    """

    scores: Scores
    samples: Sequence[Sample] = ()
    notes: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    loss: float | None = None
    baselines: tuple[BaselineResult, ...] = ()

    @property
    def values(self) -> dict[str, float]:
        """All numbers by name, the loss first."""
        return {**({} if self.loss is None else {"loss": self.loss}), **self.scores.numbers}

    @property
    def score(self) -> float:
        """The number that decides, the higher the better."""
        from headway.metrics.scores import MEASURES

        main = self.scores.numbers[self.scores.main]
        return main if MEASURES[self.scores.main].higher else -main

    def to_dict(self) -> dict[str, Any]:
        found = {**self.extra, **self.scores.plain()}
        if self.baselines:
            from headway.metrics.scores import plain_limits

            found["baselines"] = {one.name: finite(one.scores.numbers) for one in self.baselines}
            found["baseline_intervals"] = {one.name: plain_limits(one.scores) for one in self.baselines}
        return found

    def to_text(self) -> str:
        simple = {f"by {one.name}": one.scores for one in self.baselines}
        return "\n\n".join([self.scores.shown(simple), *self.notes])


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


SHOWN_SAMPLES = 4  # whose attention is drawn
SHORT_SOURCE = 120  # characters of a source whose attention can be read well
SHORT_EXAMPLE = 80  # characters of an input to try a model with


class NextCommand(NamedTuple):
    """What to type after a training, and what for."""

    command: str
    purpose: str


class TracedInput(NamedTuple):
    """An input whose attention is drawn."""

    title: str
    input: str


@dataclass(frozen=True)
class PictureStrip:
    """Images side by side, as PNG files, and what each is."""

    title: str
    files: tuple[bytes, ...]
    names: tuple[str, ...]


@dataclass(frozen=True)
class ReportDetails:
    """What a report shows of an evaluated model; `note` says how its samples were made, where that needs saying.

    `curves` are values over rows, by title and by name of the line.
    """

    scores: Scores
    samples: Sequence[Sample] = ()
    note: str = ""
    traced: Sequence[TracedInput] = ()
    pictures: Sequence[PictureStrip] = ()
    curves: Mapping[str, Mapping[str, Sequence[float]]] = field(
        default_factory=dict[str, Mapping[str, Sequence[float]]]
    )


def traced_samples(samples: Sequence[Sample], *, graded: bool) -> list[TracedInput]:
    """A few samples to trace: right ones and one that is wrong, as far as there are any; short ones first."""
    suited = [sample for sample in samples if len(sample.source) <= SHORT_SOURCE] or list(samples)
    right = [sample for sample in suited if graded and sample.is_right]
    wrong = [sample for sample in suited if not (graded and sample.is_right)]
    chosen = (right[: SHOWN_SAMPLES - 1] + wrong)[:SHOWN_SAMPLES] if wrong else right[:SHOWN_SAMPLES]
    return [TracedInput(caption(sample, graded=graded), sample.source) for sample in chosen]


def caption(sample: Sample, *, graded: bool) -> str:
    """The answer to the source; a wrong one with the right one, where answers are right or wrong."""
    source, answer, wanted = isolated(*map(shortened, sample))
    return f"{source} → {answer} (should be {wanted})" if graded and not sample.is_right else f"{source} → {answer}"


def isolated(*texts: str) -> list[str]:
    """Texts of any direction to stand in one line: between U+2068 and U+2069 none changes the order around it."""
    if all(bidirectional(one) not in ("R", "AL", "AN") for text in texts for one in text):
        return list(texts)
    return [f"\u2068{text}\u2069" for text in texts]


def example_of(samples: Sequence[Sample]) -> str | None:
    """An input to try a model with: short, such that a terminal shows it as it is, and answered right if possible."""
    fit = [one for one in samples if one.source.isprintable() and 0 < len(one.source) <= SHORT_EXAMPLE]
    best = min(fit, key=lambda one: (not one.is_right, not one.source.isascii()), default=None)
    return None if best is None else best.source


def shortened(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
