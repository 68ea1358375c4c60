"""What a task contributes to the report of a run: sample answers, inputs to trace, pictures and curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from headway.metrics.scores import Scores
    from headway.tasks.results import Sample

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
    text = f"{shortened(sample.source)} → {shortened(sample.answer)}"
    return f"{text} (should be {shortened(sample.wanted)})" if graded and not sample.is_right else text


def example_of(samples: Sequence[Sample]) -> str | None:
    """An input to try a model with: short, such that a terminal shows it as it is, and answered right if possible."""
    fit = [one for one in samples if one.source.isprintable() and 0 < len(one.source) <= SHORT_EXAMPLE]
    best = min(fit, key=lambda one: (not one.is_right, not one.source.isascii()), default=None)
    return None if best is None else best.source


def shortened(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
