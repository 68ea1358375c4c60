"""Embeddings of tokens and image patches, and absolute position embeddings.

Axes:  B batch   T tokens   C width   Y X grid of patches
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headway.errors import UserError
from headway.nn.block import Dropout, Scale
from headway.nn.context import EMPTY, Context
from headway.ops.pattern import Positions
from headway.ops.rotary import PAIRS, Layout, sinusoid


class TokenEmbed(nn.Module):
    """project(drop(norm(position(widen(scale · token)) + segment))): B T integers → B T C.

    The 2017 Transformer has scale = √C.  `position` is a part that adds a mark of the position; segments (BERT's two
    sentences) are B T integers, all 0 unless given; `project` widens ALBERT's narrow tables to the stream, `widen` the
    narrow table of words alone, before positions are marked (OPT-350m).
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
        widen: nn.Module | None = None,
    ):
        super().__init__()
        self.token, self.scale = nn.Embedding(vocab, dim), Scale(scale)
        self.widen = widen or nn.Identity()
        self.position = position or NoPosition()
        self.segment = nn.Embedding(segments, dim) if segments else None
        self.norm, self.drop = norm or nn.Identity(), Dropout(dropout)
        self.project = project or nn.Identity()

    def forward(self, tokens: Tensor, ctx: Context = EMPTY, segments: Tensor | None = None) -> Tensor:
        return ctx.emit(self, "out", self.vectors(tokens, ctx, segments))

    def vectors(self, tokens: Tensor, ctx: Context, segments: Tensor | None = None) -> Tensor:
        x = self.position(self.widen(self.scale(self.token(tokens))), ctx)
        if self.segment is not None:
            x = x + self.segment(torch.zeros_like(tokens) if segments is None else segments)
        elif segments is not None:
            raise UserError("this embedding knows no segments", do="leave them out, or build it with segments=2")
        return self.project(self.drop(self.norm(x)))


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
