"""Embeddings of tokens and image patches, and absolute position embeddings.

Axes:  B batch   T tokens   C width   Y X grid of patches
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headway.errors import UserError
from headway.nn.block import Dropout, Identity, Scale
from headway.nn.context import EMPTY, Context
from headway.ops.attend import shape_text
from headway.ops.patches import Resample, exact, patch_grid
from headway.ops.positions import Positions
from headway.ops.relative import sinusoid, sinusoid_2d
from headway.ops.rotary import PAIRS, Layout
from headway.ops.window import pad_to_tiles


class TokenEmbed(nn.Module):
    """project(drop(norm(position(scale · token) + segment))): B T integers → B T C.

    The 2017 Transformer has scale = √C.  `position` is a part that adds a mark of the position; segments (BERT's two
    sentences) are B T integers, all 0 unless given; `project` widens ALBERT's narrow tables to the stream.
    """

    emits = ("out",)

    def __init__(
        self,
        vocab: int,
        dim: int,
        *,
        position: nn.Module | None = None,
        segments: int = 0,
        scale: float = 1.0,
        norm: nn.Module | None = None,
        dropout: float = 0.0,
        project: nn.Module | None = None,
    ):
        super().__init__()
        self.token, self.scale = nn.Embedding(vocab, dim), Scale(scale)
        self.position = position or NoPosition()
        self.segment = nn.Embedding(segments, dim) if segments else None
        self.norm, self.drop = norm or nn.Identity(), Dropout(dropout)
        self.project = project or nn.Identity()

    def forward(self, tokens: Tensor, ctx: Context = EMPTY, segments: Tensor | None = None) -> Tensor:
        x = self.position(self.scale(self.token(tokens)), ctx)
        if self.segment is not None:
            x = x + self.segment(torch.zeros_like(tokens) if segments is None else segments)
        elif segments is not None:
            raise UserError("this embedding knows no segments", do="leave them out, or build it with segments=2")
        return ctx.emit(self, "out", self.project(self.drop(self.norm(x))))


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


class ClassToken(nn.Module):
    """A learned token in front of all others: B T C → B (1 + T) C."""

    weight_decay = True

    def __init__(self, dim: int):
        super().__init__()
        self.token = nn.Parameter(torch.zeros(1, 1, dim))
        nn.init.normal_(self.token, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.token.expand(x.shape[0], 1, -1), x], 1)


class NoPosition(nn.Module):
    """x: order is told elsewhere, by rotary or relative positions, or not at all."""

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        return x


class MarkedPosition(nn.Module):
    """x + a mark of each token's position, B T C.  Subclasses say what the mark is."""

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        positions = ctx.locate(self, x)
        if ctx.state is not None:
            ctx.state.append(self, positions)  # the next call's tokens stand after these
        return x + self.marks(positions).to(x.dtype)

    def marks(self, positions: Positions) -> Tensor:
        raise NotImplementedError


class LearnedPosition(MarkedPosition):
    """A learned vector for each of `context` positions; RoBERTa and BART begin at `first` = 2."""

    def __init__(self, context: int, dim: int, *, first: int = 0):
        super().__init__()
        self.first = first
        self.table = nn.Embedding(context, dim)

    @property
    def room(self) -> int:
        """How many positions have a vector."""
        return self.table.num_embeddings - self.first

    def marks(self, positions: Positions) -> Tensor:
        self.check(positions)
        return self.table(positions.at + self.first)

    def check(self, positions: Positions) -> None:
        """A position beyond the table has no vector; one known only as data is looked at where that costs nothing."""
        room = self.room
        if positions.start is not None:
            last = positions.start + len(positions) - 1
        elif torch.compiler.is_compiling() or positions.at.device.type != "cpu" or positions.at.numel() == 0:
            return
        else:
            last = int(positions.at.max())
        if last >= room:
            said = f"position {last} lies beyond the {room} positions of a learned table"
            raise UserError(said, allowed=f"0 to {room - 1}", do=f"shorten the input, or build with context={last + 1}")


class SinusoidalPosition(MarkedPosition):
    """The paper's sines and cosines, for any length.  `first`, `layout` and `steps` are as the checkpoint has them."""

    def __init__(
        self, dim: int, *, base: float = 10_000.0, layout: Layout = PAIRS, steps: int | None = None, first: int = 0
    ):
        super().__init__()
        self.dim, self.base, self.layout, self.steps, self.first = dim, base, layout, steps, first

    def marks(self, positions: Positions) -> Tensor:
        return sinusoid(positions.at + self.first, self.dim, self.base, self.layout, self.steps)

    def extra_repr(self) -> str:
        return f"{self.dim}"


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
