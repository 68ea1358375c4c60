"""Masked image modelling (MAE, SimMIM): a model sees a part of an image and predicts the pixels of the rest.

The mask is given with the images: nothing is sampled here.  Both models predict the pixels of every patch, as
`ops.patches` cuts them, and their losses are of the hidden ones alone.

Axes:  B batch   Ch channels   N patches   V visible ones   P numbers of a patch   T tokens   C width
       D decoder's width
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from headway.errors import UserError
from headway.nn.context import EMPTY, Context
from headway.nn.trunk import Trunk
from headway.ops.attend import shape_text
from headway.ops.patches import (
    Grid,
    absolute_error,
    hidden_mask,
    normalise,
    patch_grid,
    patchify,
    squared_error,
    unpatchify,
)


class MaskedAutoencoder(nn.Module):
    """decoder(encoder(the visible patches)): B Ch H W, B V → B N P.

    `visible` are the numbers of the patches that the encoder sees, as many in each image, and it costs as much as these
    do.  The encoder's tokens are its patches, row by row, behind a class token or nothing.  What is to be said of each
    patch is `target` of its pixels.
    """

    def __init__(
        self, encoder: Trunk, decoder: PixelDecoder, patch: int, *, target: Callable[[Tensor], Tensor] = normalise
    ):
        super().__init__()
        self.encoder, self.decoder, self.patch, self.target = encoder, decoder, patch, target

    @property
    def input_encoder(self) -> Trunk:
        return self.encoder

    def forward(self, images: Tensor, visible: Tensor, ctx: Context = EMPTY) -> Tensor:
        return self.decoder(self.encode(images, visible, ctx), visible, patch_grid(images, self.patch), ctx)

    def example_mask(self, images: Tensor) -> Tensor:
        """The numbers of a quarter of the patches, as the paper has it: B V."""
        patches = area(patch_grid(images, self.patch))
        return torch.arange(max(1, patches // 4), device=images.device).expand(len(images), -1)

    def loss(self, images: Tensor, visible: Tensor, ctx: Context = EMPTY) -> Tensor:
        """The squared error of the hidden patches, a sum over them."""
        wanted = self.target(patchify(images, self.patch))
        return squared_error(self(images, visible, ctx), wanted, hidden_mask(visible, wanted.shape[1]))

    def encode(self, images: Tensor, visible: Tensor, ctx: Context = EMPTY) -> Tensor:
        """What the encoder makes of the visible patches alone: B Ch H W, B V → B (T − N + V) C."""
        patches = area(patch_grid(images, self.patch))
        check_visible(visible, len(images), patches)
        first, others = self.encoder.embed(images, ctx).tensor_split([-patches], 1)
        seen = others.take_along_dim(visible[..., None], 1)  # B V C
        return self.encoder.stack(torch.cat([first, seen], 1), ctx)


class PixelDecoder(nn.Module):
    """out(stack(position(narrow(x) at the visible patches and a learned vector at all others))): … C → B N P.

    `position` marks a grid of patches, B Y X D; the class token, where there is one, has a position of its own.
    """

    weight_decay = True

    def __init__(self, dim: int, width: int, pixels: int, position: nn.Module, stack: nn.Module):
        super().__init__()
        self.narrow, self.out = nn.Linear(dim, width), nn.Linear(width, pixels)
        self.hidden, self.first = nn.Parameter(torch.zeros(1, 1, width)), nn.Parameter(torch.zeros(1, 1, width))
        nn.init.normal_(self.hidden, std=0.02)
        self.position, self.stack = position, stack

    def forward(self, x: Tensor, visible: Tensor, grid: Grid, ctx: Context = EMPTY) -> Tensor:
        """B (1 + V) C or B V C → B N P"""
        first, seen = self.narrow(x).tensor_split([-visible.shape[1]], 1)
        hidden = self.hidden.to(seen.dtype).expand(len(x), area(grid), -1)
        patches = hidden.scatter(1, visible[..., None].expand_as(seen), seen).unflatten(1, grid)  # B Y X D
        tokens = torch.cat([first + self.first, self.position(patches, ctx).flatten(1, 2)], 1)
        return self.out(self.stack(tokens, ctx)[:, first.shape[1] :])


class MaskedImageModel(nn.Module):
    """out(encoder(the image, its hidden patches one learned vector)): B Ch H W, B N → B N P.

    SimMIM.  The encoder takes what is hidden besides the images (`MaskedPatches`), and gives tokens or a grid of cells
    that are `stride` pixels wide each: more than a patch, where it merges them.
    """

    def __init__(self, encoder: Trunk, dim: int, channels: int, patch: int, stride: int):
        super().__init__()
        self.encoder, self.patch, self.stride = encoder, patch, stride
        self.out = nn.Linear(dim, stride * stride * channels)

    @property
    def input_encoder(self) -> Trunk:
        return self.encoder

    def forward(self, images: Tensor, hidden: Tensor, ctx: Context = EMPTY) -> Tensor:
        grid = patch_grid(images, self.stride)
        cells = self.encoder.features(images, ctx, hidden).flatten(1, -2)[:, -area(grid) :]  # no class token
        pixels = self.out(cells)
        return pixels if self.stride == self.patch else patchify(unpatchify(pixels, grid, self.stride), self.patch)

    def example_mask(self, images: Tensor) -> Tensor:
        """No patch hidden: B N."""
        patches = area(patch_grid(images, self.patch))
        return torch.zeros(len(images), patches, dtype=torch.bool, device=images.device)

    def loss(self, images: Tensor, hidden: Tensor, ctx: Context = EMPTY) -> Tensor:
        """The absolute error of the hidden patches, a sum over them."""
        return absolute_error(self(images, hidden, ctx), patchify(images, self.patch), hidden)


def check_visible(visible: Tensor, images: int, patches: int) -> None:
    if visible.dim() != 2 or len(visible) != images or visible.is_floating_point() or visible.dtype == torch.bool:
        said = f"visible patches are {shape_text(visible)} of {str(visible.dtype).removeprefix('torch.')}"
        raise UserError(said, allowed=f"{images}×V numbers from 0 to {patches - 1}, as many for each image")


def area(grid: Grid) -> int:
    return grid[0] * grid[1]
