"""Image embeddings: patches, their positions, a class token; patches that are left out, masked or merged.

Axes:  B batch   Ch channels   Y X rows and columns of patches   N = Y·X patches   V of them that are seen
       T tokens   C width
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from headway.errors import UserError
from headway.nn.block import Dropout, Identity, TrainingOnly
from headway.nn.context import EMPTY, Context, padded
from headway.nn.frames import Count, Shortening
from headway.ops.attend import shape_text
from headway.ops.patches import Grid, Resample, exact, patch_grid
from headway.ops.rotary import sinusoid_2d
from headway.ops.window import pad_to_tiles


class PatchEmbed(nn.Module):
    """An image cut into patch × patch squares, each projected to a vector: B channels H W → B Y X C."""

    emits = ("out",)

    def __init__(self, channels: int, dim: int, patch: int, *, norm: nn.Module | None = None, bias: bool = True):
        super().__init__()
        self.patch = patch
        self.project = nn.Conv2d(channels, dim, patch, stride=patch, bias=bias)
        self.norm = norm or nn.Identity()

    def forward(self, images: Tensor, ctx: Context = EMPTY) -> Tensor:
        return ctx.emit(self, "out", self.cells(images))

    def cells(self, images: Tensor) -> Tensor:
        if images.dim() != 4 or images.shape[1] != self.project.in_channels:
            raise UserError(f"images are {shape_text(images)}", allowed=f"B {self.project.in_channels} H W")
        patch_grid(images, self.patch)
        return self.norm(self.project(images).movedim(1, -1))


class CoveredPatches(PatchEmbed):
    """Patches of an image as far as they cover it: what is left at its right and its bottom is not seen."""

    def cells(self, images: Tensor) -> Tensor:
        high, wide = (side - side % self.patch if side >= self.patch else side for side in images.shape[-2:])
        return super().cells(images[..., :high, :wide])


class ImageEmbed(nn.Module):
    """drop(norm(token(thin(position(patches(images)))))): B Ch H W → B T C, the patches row by row.

    `thin` leaves out patches, or nothing; `token` puts a class token in front, or nothing; CLIP has a `norm`.  `marks`
    are what the patches take besides: which are hidden.
    """

    emits = ("out",)

    def __init__(
        self,
        patches: PatchEmbed,
        position: nn.Module | None = None,
        *,
        thin: nn.Module | None = None,
        token: ClassToken | None = None,
        norm: nn.Module | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.patches, self.position = patches, position or Identity()
        self.thin, self.token, self.norm = thin or Identity(), token or Identity(), norm or Identity()
        self.drop = Dropout(dropout)

    def forward(self, images: Tensor, ctx: Context = EMPTY, *marks: Tensor) -> Tensor:
        grid = self.position(self.patches(images, ctx, *marks), ctx)  # B Y X C
        return ctx.emit(self, "out", self.drop(self.norm(self.token(self.thin(grid.flatten(1, 2))))))


class SpectrogramEmbed(Shortening):
    """drop(token(position(patches))) of spectrograms of one size, B T F → B N C, in patches that may overlap (AST).

    The grid has a row for every `strides[0]` features, the lowest first, and a column for every `strides[1]` frames.
    """

    emits = ("out",)

    def __init__(
        self,
        size: tuple[int, int],
        dim: int,
        patch: int,
        strides: tuple[int, int],
        *,
        token: ClassToken,
        dropout: float = 0.0,
    ):
        super().__init__(1)
        frames, features = self.size = size
        pairs = zip((features, frames), strides, strict=True)
        rows, cols = ((side - patch) // stride + 1 for side, stride in pairs)
        self.grid = rows, cols
        if min(rows, cols) < 1:
            said = f"spectrograms of {frames} frames and {features} features hold no patch of {patch}×{patch}"
            raise UserError(said, do="take smaller patches")
        self.project = nn.Conv2d(1, dim, patch, stride=strides)
        self.position, self.token, self.drop = LearnedGridPosition(rows, cols, dim), token, Dropout(dropout)

    def forward(self, frames: Tensor, ctx: Context = EMPTY) -> Tensor:
        x = padded(frames, ctx.rows)
        if x.dim() != 3 or x.shape[1:] != self.size:
            allowed = f"B {self.size[0]} {self.size[1]}, frames and features"
            raise UserError(f"spectrograms are {shape_text(x)}", allowed=allowed)
        grid = self.position(self.project(x.mT[:, None]).movedim(1, -1))  # B Y X C
        return ctx.emit(self, "out", self.drop(self.token(grid.flatten(1, 2))))

    def length(self, frames: Count) -> Count:
        """All are of one size."""
        return frames * 0 + len(self.token.names) + self.grid[0] * self.grid[1]

    def shortened(self, ctx: Context) -> Context:
        return replace(ctx, rows=None, keep=None, positions=None)


class GridPosition(nn.Module):
    """B Y X C + sines and cosines of y and of x, for a grid of any size."""

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        rows, cols, dim = x.shape[1:]
        return x + sinusoid_2d(rows, cols, dim, device=x.device).unflatten(0, (rows, cols)).to(x.dtype)


class LearnedGridPosition(nn.Module):
    """B Y X C + a learned vector for each cell of a grid of rows × cols; `resample` lays it on grids of other sizes."""

    weight_decay = True

    def __init__(self, rows: int, cols: int, dim: int, *, resample: Resample = exact):
        super().__init__()
        self.resample = resample
        self.table = nn.Parameter(torch.zeros(rows, cols, dim))
        nn.init.normal_(self.table, std=0.02)

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        return x + self.resample(self.table, (x.shape[1], x.shape[2]))


class ClassToken(nn.Module):
    """A learned token in front of all others: B T C → B (1 + T) C."""

    weight_decay = True

    def __init__(self, dim: int):
        super().__init__()
        self.token = learned_tokens(1, dim)

    @property
    def names(self) -> tuple[str, ...]:
        """What stands in front, token by token."""
        return ("[CLS]",)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.first().expand(x.shape[0], -1, -1), x], 1)

    def first(self) -> Tensor:
        """What is put in front, 1 N C."""
        return self.token


class PlacedClassToken(ClassToken):
    """A class token that has a position of its own, as in the published tables, which begin with it."""

    def __init__(self, dim: int):
        super().__init__(dim)
        self.position = learned_tokens(1, dim)

    def first(self) -> Tensor:
        return self.token + self.position


class DistilledClassToken(PlacedClassToken):
    """A class token and a distillation token, each with a position of its own: B T C → B (2 + T) C (DeiT)."""

    def __init__(self, dim: int):
        super().__init__(dim)
        self.distilled, self.position = learned_tokens(1, dim), learned_tokens(2, dim)

    @property
    def names(self) -> tuple[str, ...]:
        return "[CLS]", "[DIST]"

    def first(self) -> Tensor:
        return torch.cat([self.token, self.distilled], 1) + self.position


class UnplacedRegisters(ClassToken):
    """A class token and then `registers` learned tokens, all without positions: B T C → B (1 + registers + T) C.

    Darcet et al. 2023: room for what belongs to no patch.
    """

    def __init__(self, dim: int, registers: int):
        super().__init__(dim)
        self.registers = learned_tokens(registers, dim)

    @property
    def names(self) -> tuple[str, ...]:
        return "[CLS]", *(f"[REG {at + 1}]" for at in range(self.registers.shape[1]))

    def first(self) -> Tensor:
        return torch.cat([super().first(), self.registers], 1)


class RegisteredClassToken(UnplacedRegisters):
    """The same with a position for the class token, which the registers have none of (DINOv2)."""

    def __init__(self, dim: int, registers: int):
        super().__init__(dim, registers)
        self.position = learned_tokens(1, dim)

    def first(self) -> Tensor:
        return torch.cat([self.token + self.position, self.registers], 1)


def learned_tokens(count: int, dim: int) -> nn.Parameter:
    """1 N C"""
    tokens = nn.Parameter(torch.zeros(1, count, dim))
    nn.init.normal_(tokens, std=0.02)
    return tokens


class PatchCentres(nn.Module):
    """Where the middle of each patch of an image stands, 1 T 2: y and x from −1 to 1, as float32.

    The `first` tokens belong to no patch and stand at (0, 0).  While training, the image is as much as `stretch` times
    as large or as small, drawn anew in each call.  B Ch H W → 1 T 2
    """

    def __init__(self, patch: int, first: int, *, stretch: float = 1.0):
        super().__init__()
        if not stretch >= 1:
            raise UserError(f"PatchCentres(stretch={stretch})", allowed="1 or more")
        self.patch, self.first, self.stretch = patch, first, stretch

    def forward(self, images: Tensor) -> Tensor:
        sides = patch_grid(images, self.patch)
        axes = [(torch.arange(0.5, side, device=images.device) / side) * 2 - 1 for side in sides]
        places = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).flatten(0, 1)  # N 2
        if self.training and self.stretch > 1:
            places = places * self.stretch ** torch.empty(1, device=images.device).uniform_(-1, 1)
        return torch.cat([places.new_zeros(self.first, 2), places])[None]


class PatchCells(nn.Module):
    """In which cell of a grid of rows × cols each patch of an image stands, 1 T 2: y and x.

    The `first` tokens belong to no patch and stand at (−1, −1).  Larger images stand closer, so that the offsets of
    their patches are spread over those of the grid, between whole numbers.  B Ch H W → 1 T 2
    """

    def __init__(self, patch: int, first: int, grid: Grid):
        super().__init__()
        self.patch, self.first, self.grid = patch, first, grid

    def forward(self, images: Tensor) -> Tensor:
        sides = patch_grid(images, self.patch)
        axes = [torch.arange(side, device=images.device) for side in sides]
        if sides != self.grid:
            pairs = zip(axes, sides, self.grid, strict=True)
            axes = [axis * ((2 * cells - 1) / (2 * side - 1)) for axis, side, cells in pairs]
        places = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).flatten(0, 1)  # N 2
        return torch.cat([places.new_full((self.first, 2), -1), places])[None]


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


class PatchMerge(nn.Module):
    """after(reduce(before(the cells of each 2×2 square side by side))): B Y X C → B Y/2 X/2 2·C, zeros beyond the edge.

    Swin has its norm (4·C) in `before`, Swin-V2 (2·C) in `after`.
    """

    emits = ("out",)

    def __init__(self, dim: int, *, before: nn.Module | None = None, after: nn.Module | None = None):
        super().__init__()
        self.before, self.after = before or Identity(), after or Identity()
        self.reduce = nn.Linear(4 * dim, 2 * dim, bias=False)

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        x = pad_to_tiles(x, 2, 2)
        x = x.unflatten(2, (-1, 2)).unflatten(1, (-1, 2))  # B Y/2 2 X/2 2 C
        x = x.permute(0, 1, 3, 4, 2, 5).flatten(3)  # a square's cells down its columns, as published
        return ctx.emit(self, "out", self.after(self.reduce(self.before(x))))
