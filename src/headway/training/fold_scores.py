"""What cross-validation found: the scores of the models of the folds, each on the records that it has not learned from.

Each record is scored once, by the model whose fold it is in, so that all of them together are one evaluation of as many
records as there are (`pooling.py`).  It is an estimate for the model that is delivered: that one has learned from all
records, so nothing is left to score it on.  No held-out record has chosen anything of the models but, where weights
were counted in the data, whether training has made them better.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean, median_low, stdev
from typing import Any

from headway.console import finite
from headway.errors import counted
from headway.metrics.pooling import pooled_scores
from headway.metrics.scores import MEASURES, Scores
from headway.tasks.results import MAX_SAMPLES, BaselineResult, EvalResult


@dataclass(frozen=True)
class FoldResult:
    """What the model of a fold scores on that fold with the weights of a step; its loss is the mean over `targets`.

    The step is the last one, or 0 where the weights that were counted in the data were kept.
    """

    found: EvalResult
    targets: int
    step: int


@dataclass(frozen=True)
class CrossValidation:
    """The results of all folds, in their order; `steps` is the length of their trainings."""

    folds: tuple[FoldResult, ...]
    steps: int
    folder: Path  # of the folds

    @cached_property
    def result(self) -> EvalResult:
        """One evaluation of all records, beside simple methods that learned in each fold from what the model did."""
        parts = [fold.found for fold in self.folds]
        return replace(
            parts[0],
            scores=pooled_scores([one.scores for one in parts]),
            samples=[sample for one in parts for sample in one.samples][:MAX_SAMPLES],
            notes=tuple(f"fold {at}: {note}" for at, one in enumerate(parts, 1) for note in one.notes),
            extra={},
            loss=self.loss,
            baselines=self.baselines,
        )

    @property
    def loss(self) -> float | None:
        """The loss of a target of any fold."""
        targets = sum(fold.targets for fold in self.folds)
        losses = [fold.found.loss for fold in self.folds if fold.found.loss is not None]
        if len(losses) < len(self.folds) or not targets:
            return None
        return math.fsum(loss * fold.targets for loss, fold in zip(losses, self.folds, strict=True)) / targets

    @property
    def baselines(self) -> tuple[BaselineResult, ...]:
        """The simple methods that every fold has."""
        several = [{one.name: one.scores for one in fold.found.baselines} for fold in self.folds]
        names = [name for name in several[0] if all(name in one for one in several)]
        return tuple(BaselineResult(name, pooled_scores([one[name] for one in several])) for name in names)

    @property
    def final_steps(self) -> int:
        """The steps of the training on all records: as many as in the folds, or none, as most of them kept counts."""
        return median_low([fold.step for fold in self.folds])

    def spread(self, name: str) -> tuple[float, float]:
        """The mean of a score over the folds, and its standard deviation; not numbers where a fold has none."""
        numbers = [fold.found.scores.numbers.get(name, math.nan) for fold in self.folds]
        known = all(map(math.isfinite, numbers))
        return (fmean(numbers), stdev(numbers)) if known else (math.nan, math.nan)

    # ---- for people

    @property
    def title(self) -> str:
        scores, count = self.result.scores, len(self.folds)
        what = f"each of {scores.count:,} {scores.things} is scored by the one of {count} models that has not seen it"
        return f"{count}-fold cross-validation: {what}"

    def lines(self) -> Iterator[str]:
        """The score of each fold, and how far they are apart."""
        for at, fold in enumerate(self.folds, 1):
            yield f"fold {at}: {self.told(fold)}"
        yield self.described_spread

    @staticmethod
    def told(fold: FoldResult) -> str:
        scores = fold.found.scores
        counts = "" if fold.step else ", by the weights that were counted in the data"
        return f"{MEASURES[scores.main].title} {scores.told(scores.main)}{counts}"

    @property
    def described_spread(self) -> str:
        main = self.result.scores.main
        how, (mean, deviation) = MEASURES[main], self.spread(main)
        wide = how.shown_difference(0.0, deviation).removeprefix("+")
        return f"over {len(self.folds)} folds {how.title} has mean {how.shown(mean)} and standard deviation {wide}"

    @property
    def meaning(self) -> str:
        """Of what the scores are, and of what they are an estimate."""
        scores = self.result.scores
        alike = sum(fold.step == self.final_steps for fold in self.folds)
        who = "they were" if alike == len(self.folds) else f"{alike} of them were"
        trained = f"trained on all records {self.final_length}, as {who} on theirs"
        models = f"the {len(self.folds)} models of the folds on {scores.count:,} {scores.things}"
        estimate = f"an estimate for this model, which was {trained}"
        return f"the scores are those of {models}, and {estimate}; it has not been scored itself"

    @property
    def final_length(self) -> str:
        return f"for {counted(self.final_steps, 'step')}" if self.final_steps else "by counting alone"

    @property
    def rows(self) -> dict[str, Scores]:
        """The scores of the folds by name, for a table."""
        return {f"fold {at}": fold.found.scores for at, fold in enumerate(self.folds, 1)}

    def to_dict(self) -> dict[str, Any]:
        spreads = {name: self.spread(name) for name in self.result.scores.numbers}
        folds: Sequence[dict[str, Any]] = [
            {
                **fold.found.to_dict(),
                **({} if fold.found.loss is None else finite({"loss": fold.found.loss})),
                "step": fold.step,
                "model": f"{self.folder.name}/{at}",
            }
            for at, fold in enumerate(self.folds, 1)
        ]
        return {
            "of": self.meaning,
            "steps": self.final_steps,
            "mean": finite({name: mean for name, (mean, _) in spreads.items()}),
            "standard_deviation": finite({name: deviation for name, (_, deviation) in spreads.items()}),
            "folds": folds,
        }
