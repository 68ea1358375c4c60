"""Masked image modelling: parts of an image are hidden, and the model is to say what is there.

Which parts is drawn by the random numbers that `collate` is handed, one for each pixel; the loss takes those at the
corners of the model's own cells, so that the task need not know the model.  As many are hidden in every image.

Axes:  B batch   Ch channels   H height   W width   Y X rows and columns of cells   N patches   V visible ones
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from headway.data.transforms.chain import generators
from headway.errors import UserError
from headway.nn.masked_image import MaskedAutoencoder, MaskedImageModel
from headway.ops.patches import Grid, hidden_from, normalised, patch_grid, patchify, unpatchify
from headway.tasks.senses import Nameless, told_by
from headway.tasks.task import Row

# the share that is hidden, as published
AUTOENCODER = 0.75  # He et al. 2021
IMAGE_MODEL = 0.6  # Xie et al. 2021


@dataclass(frozen=True, eq=False)
class HiddenBatch:
    images: Tensor  # B Ch H W
    draws: Tensor  # B H W, from 0 to 1

    @property
    def targets(self) -> int:
        return len(self.images)

    @property
    def tokens(self) -> int:
        return len(self.images)


@dataclass(frozen=True, eq=False)
class HiddenPatches(Nameless):
    """Say the hidden patches of an image; its loss is their mean."""

    columns: int = 2

    def collate(self, rows: Sequence[Row], random: np.random.Generator) -> HiddenBatch:
        streams = generators(random, len(rows))
        images = torch.stack(
            [self.sense.look(told_by(row[0]), stream) for row, stream in zip(rows, streams, strict=True)]
        )
        height, width = images.shape[-2:]
        draws = np.stack([stream.random((height, width), np.float32) for stream in streams])
        return HiddenBatch(images, torch.from_numpy(draws))

    def loss(self, model: nn.Module, batch: HiddenBatch) -> Tensor:
        """The mean loss of an image's hidden patches, a sum over images."""
        shown = concealed(model, batch)
        return masked_model(model).loss(batch.images, shown.told) / shown.hidden[0].sum()

    def measured(self) -> HiddenPatches:
        return replace(self, sense=self.sense.plain())

    def kept(self) -> Mapping[str, Any]:
        return {}


@dataclass(frozen=True, eq=False)
class Concealed:
    """What a model is told of the patches, visible ones by number or hidden ones as True; and which are hidden."""

    told: Tensor  # B V or B N
    hidden: Tensor  # B N


def concealed(model: nn.Module, batch: HiddenBatch) -> Concealed:
    """What the draws of a batch hide from this model."""
    model, draws = masked_model(model), batch.draws
    grid = patch_grid(draws, model.patch)
    if isinstance(model, MaskedAutoencoder):
        visible = visible_patches(cells(draws, model.patch), AUTOENCODER)
        return Concealed(visible, hidden_from(visible, grid[0] * grid[1]))
    inside = patch_grid(draws, model.stride)
    hidden = spread(hidden_cells(cells(draws, model.stride), IMAGE_MODEL), inside, model.stride // model.patch)
    return Concealed(hidden, hidden)


class Restored(NamedTuple):
    """Images with hidden patches, grey (0), and with what a model says of these; B Ch H W both."""

    shown: Tensor
    said: Tensor


@torch.inference_mode()
def restored(model: nn.Module, batch: HiddenBatch) -> Restored:
    """What a model makes of what is hidden; where it says patches normalised, the true ones' light and contrast."""
    model, found = masked_model(model), concealed(model, batch)
    patches, said = patchify(batch.images, model.patch), model(batch.images, found.told)
    if isinstance(model, MaskedAutoencoder) and model.target is normalised:
        variance, mean = torch.var_mean(patches, -1, keepdim=True)
        said = said * variance.sqrt() + mean
    hidden, grid = found.hidden[..., None], patch_grid(batch.images, model.patch)
    both = (patches.masked_fill(hidden, 0.0), torch.where(hidden, said, patches))
    return Restored(*(unpatchify(one, grid, model.patch) for one in both))


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
