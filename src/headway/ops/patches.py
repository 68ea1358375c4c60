"""Image patches: patchify and unpatchify, losses of masked patches, and interpolation of position tables.

Patches run row by row over an image, and the numbers of each row by row too, its channels last.

Axes:  B batch   Ch channels   Y X rows and columns of patches   N = Y·X patches   V visible ones   P numbers of a patch
       C width
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.errors import UserError

Grid = tuple[int, int]  # rows, columns
Resample = Callable[[Tensor, Grid], Tensor]


def patch_grid(images: Tensor, patch: int) -> Grid:
    """How many rows and columns of patches an image has; one that they do not divide is told to the person."""
    high, wide = images.shape[-2:]
    if high % patch or wide % patch or 0 in (high, wide):
        fit = f"{high - high % patch or patch}×{wide - wide % patch or patch}"
        said = f"an image of {high}×{wide} does not divide into patches of {patch}"
        raise UserError(said, allowed=f"sides that are multiples of {patch}", do=f"resize it to {fit}")
    return high // patch, wide // patch


def patchify(images: Tensor, patch: int) -> Tensor:
    """B Ch H W → B N P, P = patch · patch · Ch"""
    patch_grid(images, patch)
    cut = images.unflatten(3, (-1, patch)).unflatten(2, (-1, patch))  # B Ch Y patch X patch
    return cut.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)


def unpatchify(patches: Tensor, grid: Grid, patch: int) -> Tensor:
    """B N P → B Ch H W"""
    cut = patches.unflatten(2, (patch, patch, -1)).unflatten(1, grid)  # B Y X patch patch Ch
    return cut.permute(0, 5, 1, 3, 2, 4).flatten(4).flatten(2, 3)


def normalise(patches: Tensor) -> Tensor:
    """Each patch with mean 0 and variance 1: what a masked autoencoder learns most from.  B N P"""
    variance, mean = torch.var_mean(patches, -1, keepdim=True)
    return (patches - mean) / (variance + 1e-6).sqrt()


def hidden_mask(visible: Tensor, patches: int) -> Tensor:
    """B V numbers of the patches that are seen → B N, True at all others."""
    hidden = torch.ones(len(visible), patches, dtype=torch.bool, device=visible.device)
    return hidden.scatter(1, visible, False)


def squared_error(predicted: Tensor, patches: Tensor, hidden: Tensor) -> Tensor:
    """MAE's loss: the mean squared error of each hidden patch, all of them together.  B N P, B N P, B N → a number"""
    return hidden_sum(F.mse_loss(predicted, patches, reduction="none"), hidden)


def absolute_error(predicted: Tensor, patches: Tensor, hidden: Tensor) -> Tensor:
    """SimMIM's loss: the mean absolute error of each hidden patch, all of them together."""
    return hidden_sum(F.l1_loss(predicted, patches, reduction="none"), hidden)


def hidden_sum(errors: Tensor, hidden: Tensor) -> Tensor:
    """A sum over patches, not a mean: steps over several batches divide by the count of all of them."""
    return errors.mean(-1).masked_fill(~hidden, 0.0).sum()


def exact(table: Tensor, grid: Grid) -> Tensor:
    """A table of vectors, rows cols C, on its own grid and on no other."""
    if table.shape[:2] != grid:
        given, has = (f"{rows}×{cols}" for rows, cols in (grid, table.shape[:2]))
        raise UserError(f"a grid of {given} cells for learned positions of {has}", do=f"resize the image to {has}")
    return table


def bicubic(table: Tensor, grid: Grid) -> Tensor:
    """The table laid on any grid, as in DINO and Hugging Face's ViT."""
    return interpolate_table(table, grid, antialias=False)


def bicubic_smooth(table: Tensor, grid: Grid) -> Tensor:
    """The same, smoothed where the grid is smaller, with another kernel: as in timm."""
    return interpolate_table(table, grid, antialias=True)


def interpolate_table(table: Tensor, grid: Grid, antialias: bool) -> Tensor:
    if table.shape[:2] == grid:
        return table
    image = table.permute(2, 0, 1)[None]
    return F.interpolate(image, grid, mode="bicubic", antialias=antialias)[0].permute(1, 2, 0)
