"""Image embeddings: patches with position embeddings, and an optional class token in front.

Axes:  B batch   Ch channels   Y X rows and columns of patches   N = Y·X patches   V of them that are seen
       T tokens   C width
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headway.errors import UserError
from headway.nn.block import Dropout, Identity, TrainingOnly
from headway.nn.context import EMPTY, Context
from headway.nn.embed import ClassToken, PatchEmbed
from headway.ops.attend import shape_text


class ImageEmbed(nn.Module):
    """drop(norm(token(thin(position(patches(images)))))): B Ch H W → B T C, the patches row by row.

    `thin` leaves out patches, or nothing; `token` puts a class token in front, or nothing; CLIP has a `norm`.  `marks`
    are what the patches take besides: which are hidden.
    """

    emits = ("out",)

    def __init__(
        self,
        patches: PatchEmbed,
        position: nn.Module,
        *,
        thin: nn.Module | None = None,
        token: ClassToken | None = None,
        norm: nn.Module | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.patches, self.position = patches, position
        self.thin, self.token, self.norm = thin or Identity(), token or Identity(), norm or Identity()
        self.drop = Dropout(dropout)

    def forward(self, images: Tensor, ctx: Context = EMPTY, *marks: Tensor) -> Tensor:
        grid = self.position(self.patches(images, ctx, *marks), ctx)  # B Y X C
        return ctx.emit(self, "out", self.drop(self.norm(self.token(self.thin(grid.flatten(1, 2))))))


class PatchDropout(TrainingOnly):
    """While training, leaves out a share of the patches of each image, and costs as much less: B N C → B V C.

    Liu et al. 2022.  Which ones is drawn anew for each image; the others keep their order.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.probability == 0.0:
            return x
        seen = max(1, round(x.shape[1] * (1.0 - self.probability)))
        chosen = torch.rand(x.shape[:2], device=x.device).topk(seen).indices.sort(1).values  # B V
        return x.take_along_dim(chosen[..., None], 1)


class PlacedClassToken(ClassToken):
    """A class token that has a position of its own, as in the published tables, which begin with it."""

    def __init__(self, dim: int):
        super().__init__(dim)
        self.position = nn.Parameter(torch.zeros(1, 1, dim))
        nn.init.normal_(self.position, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([(self.token + self.position).expand(x.shape[0], 1, -1), x], 1)


class MaskedPatches(PatchEmbed):
    """Patches of which the hidden ones (B N, True) are one learned vector instead: SimMIM's."""

    weight_decay = True

    def __init__(self, channels: int, dim: int, patch: int, *, norm: nn.Module | None = None):
        super().__init__(channels, dim, patch, norm=norm)
        self.token = nn.Parameter(torch.zeros(1, 1, dim))
        nn.init.normal_(self.token, std=0.02)

    @staticmethod
    def of(patches: PatchEmbed) -> MaskedPatches:
        """The same patches, with their parameters, that can be hidden."""
        project = patches.project
        made = MaskedPatches(project.in_channels, project.out_channels, patches.patch, norm=patches.norm)
        made.project = project
        return made

    def forward(self, images: Tensor, ctx: Context = EMPTY, hidden: Tensor | None = None) -> Tensor:
        grid = self.cells(images)
        if hidden is not None:
            grid = torch.where(self.fitting(hidden, grid)[..., None], self.token, grid)
        return ctx.emit(self, "out", grid)

    def fitting(self, hidden: Tensor, grid: Tensor) -> Tensor:
        """B N → B Y X"""
        rows, cols = grid.shape[1:3]
        if hidden.shape != (len(grid), rows * cols) or hidden.dtype != torch.bool:
            said = f"hidden patches are {shape_text(hidden)} of {str(hidden.dtype).removeprefix('torch.')}"
            raise UserError(said, allowed=f"{len(grid)}×{rows * cols} of bool, for {rows}×{cols} patches of each image")
        return hidden.unflatten(1, (rows, cols))
