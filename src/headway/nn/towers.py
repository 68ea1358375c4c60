"""Dual encoders (CLIP): the vectors of images and texts, or of two views of an image, compared by cosine.

Axes:  B batch   T tokens   N images   M texts   C width   P width of the vectors that are compared
"""

from __future__ import annotations

from dataclasses import replace
from math import log

import torch
from torch import Tensor, nn

from headway.errors import UserError
from headway.nn.context import EMPTY, Context
from headway.nn.head import RowHead
from headway.nn.trunk import Trunk
from headway.ops.losses import cosines
from headway.ops.pattern import both


class TwoTowers(nn.Module):
    """scale · cosine(image tower, text tower): how well each image and each text belong together.

    N Ch H W, M T → N M.  The scale is learned as its logarithm from 1 / 0.07, and while it learns held at `most`, as
    CLIP's is.  To learn: `info_nce(model.image(images), model.text(texts), model.scale)`.
    """

    reads_pairs = True

    def __init__(self, image: Trunk, text: Trunk, *, start: float = 1 / 0.07, most: float = 100.0):
        super().__init__()
        if not 0 < start <= most:
            raise UserError(f"TwoTowers(start={start:g}, most={most:g}) could not learn", allowed="0 < start ≤ most")
        self.image, self.text, self.most = image, text, most
        self.log_scale = nn.Parameter(torch.tensor(log(start)))

    @property
    def input_encoder(self) -> Trunk:
        return self.image

    def forward(self, images: Tensor, texts: Tensor, image_ctx: Context = EMPTY, text_ctx: Context = EMPTY) -> Tensor:
        return self.scale * cosines(self.image(images, image_ctx), self.text(texts, text_ctx))

    @property
    def scale(self) -> Tensor:
        """The inverse temperature."""
        return (self.log_scale.clamp(max=log(self.most)) if self.training else self.log_scale).exp()


class EndingTrunk(Trunk):
    """A trunk of texts that end with the token `end`: what stands behind the first of a row is padding to its head."""

    def __init__(self, embed: nn.Module, stack: nn.Module, head: nn.Module, end: int):
        super().__init__(embed, stack, head)
        self.end = end

    def readable(self, inputs: Tensor, ctx: Context) -> Context:
        if ctx.rows is not None:
            return ctx
        ends = inputs == self.end
        before = ends.cumsum(1) - ends.long() == 0  # B T: no end stands before the token
        return replace(ctx, keep=both(ctx.keep, before[:, None]))


class Projection(RowHead):
    """W inside(norm(pool(x))): one vector of a whole row, to be compared with others.  B T C or B Y X C → B P

    Without a width there is no W, and P is C: a tower of CLIP's before its projection.
    """

    def __init__(
        self,
        dim: int,
        width: int | None,
        *,
        pool: nn.Module,
        norm: nn.Module | None = None,
        inside: nn.Module | None = None,
    ):
        super().__init__(pool)
        self.norm, self.inside = norm or nn.Identity(), inside or nn.Identity()
        self.out = nn.Identity() if width is None else nn.Linear(dim, width, bias=False)

    def forward(self, x: Tensor, ctx: Context = EMPTY) -> Tensor:
        return self.out(self.inside(self.norm(self.pool(x, ctx))))
