"""What masked image modelling and SimCLR share: images without labels, whose encoder is what is learned."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from headway.data.order import batched
from headway.data.records import Record
from headway.data.splits import subsample
from headway.metrics.baselines import most_frequent, nearest_neighbours
from headway.metrics.scores import check
from headway.metrics.scoring import exact, scores_of
from headway.tasks.inputs import ImageInput
from headway.tasks.media_tasks import MediaTask, stored_sample
from headway.tasks.results import (
    DEFAULT_EVALUATION,
    BaselineResult,
    EvalOptions,
    EvalResult,
    NextCommand,
    ReportDetails,
    TracedInput,
)
from headway.tasks.tracing import TracedRun, TraceOptions
from headway.tasks.vectors import GivesVectors

NEIGHBOURS = 5  # by which the class of an image is guessed
MAX_COMPARED = 5000  # images that are compared with each other
IMAGES_TOGETHER = 64


class ImagesAlone(GivesVectors, MediaTask):
    """A task on images without labels: their encoder is what is learned, and a vector is what it answers."""

    on_other_data = NextCommand(
        "headway train DATA --from {} --freeze encoder", "train a linear classifier on its features"
    )

    target = "image"
    validation_records = 0

    input: ImageInput  # pyright: ignore[reportIncompatibleVariableOverride]

    def encode(self, fields: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        return [[*stored_sample(self.input, place, extent)] for place, extent, *_ in fields]

    def has_loss(self, model: nn.Module, described: bool) -> bool:
        return False

    @abstractmethod
    def own_scores(self, model: nn.Module, records: Sequence[Record]) -> EvalResult:
        """How well a model does what it was trained for, and what a simple method does."""

    @torch.inference_mode()
    def evaluate(
        self, model: nn.Module, records: Iterable[Record], options: EvalOptions = DEFAULT_EVALUATION
    ) -> EvalResult:
        """What it was trained for; and where images have classes, whether images of like vectors have the same."""
        known = list(records)
        check(known, known)
        found = self.own_scores(model, known)
        some = subsample([record for record in known if len(record.fields) > 1], MAX_COMPARED)
        labels = [record.fields[1] for record in some]
        if len(set(labels)) < 2:
            return found
        parts = [self.opened(model, [record.handed[0] for record in part]) for part in batched(some, IMAGES_TOGETHER)]
        vectors = torch.cat([self.pooled(model, part) for part in parts]).cpu().numpy()
        pixels = torch.cat([part.inputs.flatten(1) for part in parts]).cpu().numpy()
        right = {
            "": exact(nearest_neighbours(vectors, labels, NEIGHBOURS), labels),
            "majority class": exact([most_frequent(labels)] * len(labels), labels),
            f"the {NEIGHBOURS} nearest by pixels": exact(nearest_neighbours(pixels, labels, NEIGHBOURS), labels),
        }
        scores = {name: scores_of({"neighbour_accuracy": one}, "images") for name, one in right.items()}
        ours, simple = scores.pop(""), tuple(BaselineResult(name, one) for name, one in scores.items())
        numbers, statistics = {**found.scores.numbers, **ours.numbers}, {**found.scores.statistics, **ours.statistics}
        whole = replace(found.scores, numbers=numbers, statistics=statistics)
        note = f"class of neighbours: by the {NEIGHBOURS} nearest of the other images, n = {len(labels):,}"
        return replace(found, scores=whole, baselines=(*found.baselines, *simple), notes=(*found.notes, note))

    def trace(self, model: nn.Module, input: str, options: TraceOptions) -> TracedRun:
        return self.traced_vector(model, input)

    def report_details(
        self, model: nn.Module, batches: Sequence[Any], records: Sequence[Record], found: EvalResult
    ) -> ReportDetails:
        """Some images to trace."""
        traced = [TracedInput(record.name, record.name) for record in records]
        return ReportDetails(replace(found.scores, things="images"), traced=traced)
