"""Masked image modelling: parts of an image are hidden, and the model is to say what is there.

Which parts is drawn by the random numbers that `collate` is handed, one for each pixel; the loss takes those at the
corners of the model's own cells, so that the task need not know the model.  As many are hidden in every image.

Axes:  B batch   Ch channels   H height   W width   Y X rows and columns of cells   N patches   V visible ones
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from headway.data.order import batched, random_for
from headway.data.records import Record
from headway.data.splits import DataSplits
from headway.data.text_lines import MediaLocation
from headway.data.transforms.compose import generators
from headway.errors import UserError
from headway.metrics.scoring import score_losses
from headway.nn.masked_autoencoder import MaskedAutoencoder, MaskedImageModel
from headway.nn.trunk import device_of
from headway.ops.patches import Grid, hidden_mask, normalise, patch_grid, patchify, unpatchify
from headway.recipe import Recipe
from headway.tasks.base import UNKNOWN_TOKENS, TaskSetup, loss_scores
from headway.tasks.batches import Batch, DataRow, Row, ids, to_device
from headway.tasks.inputs import ImageInput, input_of
from headway.tasks.media_encoding import png
from headway.tasks.media_tasks import AUGMENTATIONS, image_setup, stored_sample, stored_text
from headway.tasks.model_parts import ModelParts
from headway.tasks.results import BaselineData, BaselineResult, EvalResult, PictureStrip, ReportDetails
from headway.tasks.unlabelled_images import ImagesAlone

PANELS = ("as shown to the model", "with its prediction of the hidden patches", "as it is")
NORMALISED = (
    "The model predicts hidden patches normalised, that is without their brightness and contrast: they are drawn with "
    "the mean brightness and contrast of the visible patches of the same image."
)
PART = 4  # images whose loss is one of many that an interval is computed from
MEAN_IMAGES = 2000
# the share that is hidden, as published
AUTOENCODER = 0.75  # He et al. 2021
IMAGE_MODEL = 0.6  # Xie et al. 2021


@dataclass(frozen=True, eq=False)
class MaskedImageBatch(Batch):
    images: Tensor  # B Ch H W
    draws: Tensor  # B H W, from 0 to 1

    @property
    def targets(self) -> int:
        return len(self.images)

    @property
    def tokens(self) -> int:
        return len(self.images)


@dataclass(frozen=True, eq=False)
class MaskedImage(ImagesAlone):
    """Predict the hidden patches of an image; its loss is their mean."""

    name = "masked-image"
    architectures = ("mae", "simmim")
    presets_by_size = ("mae-nano",)

    input: ImageInput

    @classmethod
    def from_data(cls, splits: DataSplits, recipe: Recipe, start: ModelParts | None) -> TaskSetup:
        input, chosen, config = image_setup(recipe, splits, start, AUGMENTATIONS, ("crop",))
        return TaskSetup(cls(input), chosen=chosen, config=config, preprocess=input.preprocess)

    @classmethod
    def from_model(cls, parts: ModelParts) -> Self | None:
        found = input_of(parts) if isinstance(parts.model, MaskedAutoencoder | MaskedImageModel) else None
        return cls(found) if isinstance(found, ImageInput) else None

    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> MaskedImageBatch:
        streams = generators(random, len(rows))
        images = torch.stack(
            [self.input.load(stored_text(row[0]), stream) for row, stream in zip(rows, streams, strict=True)]
        )
        height, width = images.shape[-2:]
        draws = np.stack([stream.random((height, width), np.float32) for stream in streams])
        return MaskedImageBatch(images, torch.from_numpy(draws))

    def unlabelled_rows(self, inputs: Sequence[str]) -> Iterator[DataRow]:
        for one in inputs:
            row = tuple(map(ids, stored_sample(self.input, one)))
            yield DataRow((1,), UNKNOWN_TOKENS, row, MediaLocation.parsed(one).path.name)

    def loss_batch(self, model: nn.Module, rows: Sequence[DataRow]) -> MaskedImageBatch:
        """The same patches are hidden whenever these images are read."""
        batch = self.collate([one.row for one in rows], random_for("hidden", *(one.name for one in rows)))
        return to_device(batch, device_of(model))

    def loss(self, model: nn.Module, batch: MaskedImageBatch) -> Tensor:
        """The mean loss of an image's hidden patches, a sum over images."""
        shown = concealed(model, batch)
        return masked_model(model).loss(batch.images, shown.told) / shown.hidden[0].sum()

    def loss_parts(self, model: nn.Module, batch: MaskedImageBatch) -> Iterator[tuple[float, int]]:
        """A few images at a time."""
        for images, draws in zip(batch.images.split(PART), batch.draws.split(PART), strict=True):
            yield self.loss(model, MaskedImageBatch(images, draws)).item(), len(images)

    def own_scores(self, model: nn.Module, records: Sequence[Record]) -> EvalResult:
        """The error of hidden patches, and that of saying the mean of an image's visible ones.

        It is that of the loss: of normalised patches, where the model predicts these.
        """
        masked, task = masked_model(model), self.without_augmentation()

        def visible_mean(images: Tensor, told: Tensor, *_: object) -> Tensor:
            patches = target_of(masked)(patchify(images, masked.patch))  # B N P
            hidden = told if told.dtype == torch.bool else hidden_mask(told, patches.shape[1])
            return mean_where(~hidden[..., None], patches).expand_as(patches)

        ours, simple, constant = list[tuple[float, int]](), list[tuple[float, int]](), saying(masked, visible_mean)
        for some in batched(records, PART):
            # each image hides what its own name says, whatever stands beside it
            alone = [task.hiding(record) for record in some]
            images, draws = torch.cat([one.images for one in alone]), torch.cat([one.draws for one in alone])
            batch = to_device(MaskedImageBatch(images, draws), device_of(masked))
            ours += task.loss_parts(masked, batch)
            simple += task.loss_parts(constant, batch)
        scores, mean = (
            score_losses([loss for loss, _ in each], [count for _, count in each], "images", ("loss",))
            for each in (ours, simple)
        )
        return EvalResult(scores, baselines=(BaselineResult("the mean visible patch", mean),))

    def hiding(self, record: Record) -> MaskedImageBatch:
        """One image, of which the same patches are hidden whenever it is evaluated."""
        [row] = self.encode([record.handed])
        return self.collate([tuple(map(ids, row))], random_for("hidden", self.row_name(record)))

    @torch.inference_mode()
    def baselines(self, model: nn.Module, data: BaselineData, found: EvalResult) -> Iterator[BaselineResult]:
        """A model that says the mean of the images of training, wherever a patch is hidden."""
        masked, images = masked_model(model), list[Tensor]()
        for batch in data.batches:
            images.append(patchify(batch.images, masked.patch))
            if sum(map(len, images)) >= MEAN_IMAGES:
                break
        mean = target_of(masked)(torch.cat(images)).mean(0)  # N P

        def mean_image(images: Tensor, *_: object) -> Tensor:
            return mean.to(images).expand(len(images), -1, -1)

        constant = saying(masked, mean_image)
        yield BaselineResult("the mean image", loss_scores(self, constant, data.validation_batches, self.target))

    def report_details(
        self, model: nn.Module, batches: Sequence[Any], records: Sequence[Record], found: EvalResult
    ) -> ReportDetails:
        """Some images with what the model predicts of their hidden patches, by draws that are always the same."""
        task, preprocess = self.without_augmentation(), self.input.preprocess
        rows = [tuple(map(ids, row)) for row in task.encode([record.handed for record in records])]
        batch = to_device(task.collate(rows, random_for("pictures")), device_of(model))
        panels = zip(*restored(model, batch), batch.images, strict=True)
        pictures = [
            PictureStrip(record.name, tuple(png(image, preprocess) for image in images), PANELS)
            for record, images in zip(records, panels, strict=True)
        ]
        note = NORMALISED if predicts_normalised(model) else ""
        return replace(super().report_details(model, batches, records, found), note=note, pictures=pictures)


@dataclass(frozen=True, eq=False)
class MaskedPatchSelection:
    """What a model is told of the patches, visible ones by number or hidden ones as True; and which are hidden."""

    told: Tensor  # B V or B N
    hidden: Tensor  # B N


def concealed(model: nn.Module, batch: MaskedImageBatch) -> MaskedPatchSelection:
    """What the draws of a batch hide from this model."""
    model, draws = masked_model(model), batch.draws
    grid = patch_grid(draws, model.patch)
    if isinstance(model, MaskedAutoencoder):
        visible = visible_patches(cells(draws, model.patch), AUTOENCODER)
        return MaskedPatchSelection(visible, hidden_mask(visible, grid[0] * grid[1]))
    inside = patch_grid(draws, model.stride)
    hidden = spread(hidden_cells(cells(draws, model.stride), IMAGE_MODEL), inside, model.stride // model.patch)
    return MaskedPatchSelection(hidden, hidden)


class Reconstruction(NamedTuple):
    """Images with hidden patches, grey (0), and with what a model says of these; B Ch H W both."""

    shown: Tensor
    said: Tensor


@torch.inference_mode()
def restored(model: nn.Module, batch: MaskedImageBatch) -> Reconstruction:
    """What a model makes of what is hidden, by what it was shown alone.

    Where it predicts normalised patches, they are drawn with the mean brightness and contrast of the visible ones.
    """
    model, found = masked_model(model), concealed(model, batch)
    patches, said = patchify(batch.images, model.patch), model(batch.images, found.told)
    hidden, grid = found.hidden[..., None], patch_grid(batch.images, model.patch)
    if predicts_normalised(model):
        variance, mean = torch.var_mean(patches, -1, keepdim=True)  # B N 1
        said = said * mean_where(~hidden, variance.sqrt()) + mean_where(~hidden, mean)
    both = (patches.masked_fill(hidden, 0.0), torch.where(hidden, said, patches))
    return Reconstruction(*(unpatchify(one, grid, model.patch) for one in both))


def predicts_normalised(model: nn.Module) -> bool:
    """Whether it predicts each patch without its brightness and contrast."""
    return isinstance(model, MaskedAutoencoder) and model.target is normalise


def target_of(model: MaskedAutoencoder | MaskedImageModel) -> Callable[[Tensor], Tensor]:
    """What a model is to say of patches."""
    return model.target if isinstance(model, MaskedAutoencoder) else nn.Identity()


def saying(model: MaskedAutoencoder | MaskedImageModel, forward: Callable[..., Tensor]) -> nn.Module:
    """A model with the loss of this one that says something else."""
    other: Any = copy(model)
    other.forward = forward
    return other


def mean_where(keep: Tensor, numbers: Tensor) -> Tensor:
    """The mean of an image's numbers that are kept: B N 1 → B 1 1"""
    return numbers.masked_fill(~keep, 0.0).sum(1, keepdim=True) / keep.sum(1, keepdim=True)


def visible_patches(drawn: Tensor, share: float) -> Tensor:
    """The numbers of the patches with the lowest draws, in order, so that `share` of all are hidden: B N → B V"""
    patches = drawn.shape[1]
    seen = max(1, int(patches * (1 - share)))
    check_parts(patches)
    return drawn.argsort(stable=True, dim=1)[:, :seen].sort(1).values


def hidden_cells(drawn: Tensor, share: float) -> Tensor:
    """True at the cells with the lowest draws, `share` of all or a little more: B N → B N"""
    count = drawn.shape[1]
    check_parts(count)
    hidden = min(math.ceil(count * share), count - 1)
    order = drawn.argsort(stable=True, dim=1)[:, :hidden]
    return torch.zeros_like(drawn, dtype=torch.bool).scatter(1, order, True)


def spread(cells: Tensor, grid: Grid, times: int) -> Tensor:
    """Each cell of a grid as `times` × `times` patches: B (Y·X) → B N"""
    return cells.unflatten(1, grid).repeat_interleave(times, 1).repeat_interleave(times, 2).flatten(1)


def cells(draws: Tensor, side: int) -> Tensor:
    """The draws at the upper left corners of cells, row by row: B H W → B (Y·X)"""
    return draws[:, ::side, ::side].flatten(1)


def check_parts(count: int) -> None:
    if count < 2:
        raise UserError("an image of one patch has nothing that could be hidden", do="take smaller patches")


def masked_model(model: nn.Module) -> MaskedAutoencoder | MaskedImageModel:
    if not isinstance(model, MaskedAutoencoder | MaskedImageModel):
        raise UserError(f"a {type(model).__name__} does not say hidden patches", do="take a preset mae-… or simmim-…")
    return model
