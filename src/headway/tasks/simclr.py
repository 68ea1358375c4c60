"""Contrastive learning from images alone: two views of an image shall have like vectors, and other images others.

A view is the image as chance changes it; the random numbers come from outside.  The batch is what an image is told
apart from, so its loss is no sum over images that stand alone, only over pairs of views.

Axes:  B batch   Ch channels   H height   W width   P width of the vectors that are compared
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from headway.data.order import batched, random_for
from headway.data.records import Record
from headway.data.splits import DataSplits
from headway.data.transforms.colour import ColourJitter
from headway.data.transforms.compose import RandomApply, generators
from headway.data.transforms.geometry import RandomResizedCrop
from headway.metrics.intervals import Share
from headway.metrics.scores import Scores
from headway.metrics.scoring import score_losses, scores_of
from headway.nn.trunk import device_of
from headway.ops.losses import cosines, nt_xent
from headway.recipe import Recipe
from headway.tasks.base import TaskSetup
from headway.tasks.batches import Batch, Row, ids, to_device
from headway.tasks.inputs import ImageInput, input_of
from headway.tasks.media_tasks import AUGMENTATIONS, Augmentations, composed, image_setup, stored_text
from headway.tasks.model_parts import ModelParts
from headway.tasks.results import BaselineData, BaselineResult, EvalResult
from headway.tasks.unlabelled_images import ImagesAlone
from headway.zoo.presets import preset

# what makes a view: as SimCLR has it, with crops of a fifth or more, since less of a small image shows nothing
VIEWS: Augmentations = {
    **AUGMENTATIONS,
    "crop": lambda ready: RandomResizedCrop(*ready.size, (0.2, 1.0), mode=ready.mode),
    "jitter": lambda ready: RandomApply(ColourJitter(0.4, 0.4, 0.4, 0.1), 0.8),
}
USUAL = ("crop", "flip", "jitter", "grey", "blur")  # of these, where nobody says others
COMPARED = 128  # images that one is told apart from in an evaluation
TEMPERATURE = 0.5  # where neither preset nor person says another


@dataclass(frozen=True, eq=False)
class ViewBatch(Batch):
    """Both views of each image, in the same order."""

    one: Tensor  # B Ch H W
    other: Tensor

    @property
    def targets(self) -> int:
        return len(self.one)

    @property
    def tokens(self) -> int:
        return len(self.one)


@dataclass(frozen=True, eq=False)
class SimCLR(ImagesAlone):
    """Tell by one view of an image which the other one is, among all of the batch."""

    name = "simclr"
    architectures = ("simclr",)
    compares_rows = True
    presets_by_size = ("simclr-nano", "simclr-resnet-50")

    input: ImageInput
    temperature: float = TEMPERATURE

    @classmethod
    def from_data(cls, splits: DataSplits, recipe: Recipe, start: ModelParts | None) -> TaskSetup:
        input, chosen, config = image_setup(recipe, splits, start, VIEWS, USUAL)
        temperature = temperature_of(recipe, start)
        config = {**config, "temperature": temperature}
        return TaskSetup(cls(input, temperature), chosen=chosen, config=config, preprocess=input.preprocess)

    @classmethod
    def from_model(cls, parts: ModelParts) -> Self | None:
        found = input_of(parts) if parts.architecture == "simclr" else None
        return cls(found, parts.config.temperature) if isinstance(found, ImageInput) else None

    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> ViewBatch:
        views = [
            tuple(islice(self.input.views(stored_text(row[0]), stream), 2))
            for row, stream in zip(rows, generators(random, len(rows)), strict=True)
        ]
        return ViewBatch(*(torch.stack(side) for side in zip(*views, strict=True)))

    def loss(self, model: nn.Module, batch: ViewBatch) -> Tensor:
        # in one call: batch norms see both views of all images
        one, other = model(torch.cat([batch.one, batch.other])).chunk(2)
        return nt_xent(one, other, self.temperature)

    def loss_parts(self, model: nn.Module, batch: ViewBatch) -> Iterator[tuple[float, int]]:
        """Image by image, among the others of the batch."""
        one, other = model(torch.cat([batch.one, batch.other])).chunk(2)
        return self.pair_losses(one, other)

    def pair_losses(self, one: Tensor, other: Tensor) -> Iterator[tuple[float, int]]:
        views = nt_xent(one, other, self.temperature, reduction="none")  # 2B
        return ((loss, 1) for loss in views.view(2, -1).sum(0).tolist())

    def own_scores(self, model: nn.Module, records: Sequence[Record]) -> EvalResult:
        """How often one view of an image is nearest to the other one, among both views of all images of a batch.

        Views are made as usual: a model folder does not know by which it was trained.
        """
        ready, found, among = self.input.preprocess, list[Tensor](), list[int]()
        task = replace(self, input=ImageInput(ready, composed(USUAL, VIEWS, ready)))
        for some in batched(records, COMPARED):
            rows = [tuple(map(ids, row)) for row in self.encode([record.handed for record in some])]
            # the views of an image follow from its own name; which others it is told apart from, from the order
            alone = [
                task.collate([row], random_for("views", self.row_name(record)))
                for row, record in zip(rows, some, strict=True)
            ]
            views = torch.cat([*(one.one for one in alone), *(one.other for one in alone)])
            vectors = model(to_device(views, device_of(model)))
            near = cosines(vectors, vectors).fill_diagonal_(-torch.inf).cpu()  # 2B 2B
            found.append((near.argmax(1) == torch.arange(len(views)).roll(len(some)))[: len(some)])
            among += [len(views) - 1] * len(some)
        scores = scores_of({"view_accuracy": Share(torch.cat(found).numpy())}, "images")
        chance = Scores({"view_accuracy": sum(1 / n for n in among) / len(among)}, scores.count, "images")
        note = f"other view found: of {COMPARED} images at most ({', '.join(USUAL)})"
        return EvalResult(scores, notes=(note,), baselines=(BaselineResult("chance", chance),))

    def baselines(self, model: nn.Module, data: BaselineData, found: EvalResult) -> Iterator[BaselineResult]:
        """Where all vectors are alike, every image of the batch is as likely."""
        alike = [torch.ones(len(batch.one), 1) for batch in data.validation_batches]
        losses, counts = zip(*(part for one in alike for part in self.pair_losses(one, one)), strict=True)
        yield BaselineResult("chance", score_losses(losses, counts, f"{self.target}s", ("loss",)))

    def without_augmentation(self) -> Self:
        """As it is: without augmentation both views would be the same image."""
        return self


def temperature_of(recipe: Recipe, start: ModelParts | None) -> float:
    own = preset(recipe.model.preset).sizes if recipe.model.preset else {}
    usual = own.get("temperature", TEMPERATURE) if start is None else getattr(start.config, "temperature", TEMPERATURE)
    found: Any = recipe.model.sizes.get("temperature", usual)
    return float(found)
